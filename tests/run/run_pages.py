"""A Locust with a page, and what a browser would do to it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from urllib.parse import urlencode

from run_processes import CHAT, Live, Plan, free_port


class Page:
    """What a browser would do."""

    def __init__(self, live: Live, port: int) -> None:
        self.live = live
        self.url = f"http://127.0.0.1:{port}"
        live.wait_for("Starting web interface")
        live.until(self._answers, "the page")

    def _answers(self) -> bool:
        try:
            return self.get("/")[0] == 200
        except OSError:
            return False

    def get(self, path: str) -> tuple[int, str]:
        return self._open(urllib.request.Request(self.url + path))

    def post(self, path: str, **form: object) -> tuple[int, str]:
        return self._open(urllib.request.Request(self.url + path, urlencode(form).encode(), method="POST"))

    def swarm(self, **form: object) -> tuple[int, str]:
        return self.post("/swarm", **({"user_count": 3, "spawn_rate": 3} | form))

    def state(self) -> str:
        """Return Locust's state; it is up to two seconds old."""
        return str(json.loads(self.get("/stats/requests")[1])["state"])

    def requests(self) -> int:
        stats = json.loads(self.get("/stats/requests")[1])["stats"]
        return int(next(row["num_requests"] for row in stats if row["name"] == "Aggregated"))

    def run_until(self, requests: int) -> None:
        self.live.until(lambda: self.requests() >= requests, f"{requests} requests")

    def _open(self, request: urllib.request.Request) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()


def page(
    args: list[str], act: Callable[[Page], None], locustfile: str = CHAT, env: Mapping[str, str] | None = None
) -> Plan:
    """Return the plan of a Locust with a page, ended by SIGINT when ``act`` has done its part."""
    port = free_port()

    def use(live: Live) -> None:
        act(Page(live, port))
        if live.process.poll() is None:
            live.signal(2)

    args = [*args, "--web-host", "127.0.0.1", "--web-port", str(port)]
    return Plan(args, locustfile, act=use, env=env or {}, headless=False)
