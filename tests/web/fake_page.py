"""Locust's page with a ``FakeDesk`` behind the tab, in a process of its own: ``python fake_page.py PORT``.

``POST /fake`` with JSON sets attributes of the desk, so that a test can show what a real run shows only now and then.
"""

from __future__ import annotations

import sys

import gevent
from fake_desk import FakeDesk
from flask import Response, jsonify, request
from locust import User, constant, task
from locust.env import Environment

from locust_llm.live import html_section, web


class Idle(User):
    wait_time = constant(1)

    @task
    def nothing(self) -> None:
        pass


def main() -> None:
    environment = Environment(user_classes=[Idle])
    environment.create_local_runner()
    web_ui = environment.create_web_ui("127.0.0.1", int(sys.argv[1]), delayed_start=True)
    desk = FakeDesk(None, "ready")
    web.attach(web_ui, desk)
    html_section.attach(desk)

    @web_ui.app.post("/fake")
    def fake() -> Response:
        for name, value in request.get_json().items():
            setattr(desk, name, value)
        return jsonify({"sinces": desk.sinces, "asked": desk.asked})

    web_ui.start()
    gevent.get_hub().join()


if __name__ == "__main__":
    main()
