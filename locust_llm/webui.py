"""The start form's side: LLM options are checked, and first contact is made, before Locust starts a test.

A bad value, or a server that cannot serve, is a 400 with one line of text; Locust's own handler never sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

from flask import Response, jsonify, request

from .errors import UsageError
from .options import BY_DEST


@dataclass(frozen=True, slots=True)
class Form:
    """What the start form says.

    Attributes:
        options: the LLM options that are in it, by ``dest``, as text.
        host: None if it has no such field.
        users: how many, 0 if it does not say.
        user_classes: what is picked in the class picker, None without it.
    """

    options: dict[str, str]
    host: str | None
    users: int
    user_classes: list[type] | None


def attach(
    web_ui: Any, prepare: Callable[[Form], None], stop_again: Callable[[], bool], notice: Callable[[], str]
) -> None:
    """Put ourselves before Locust's start and stop.

    Args:
        web_ui: Locust's.
        prepare: makes a test ready; raises UsageError.
        stop_again: ends a drain that is under way; returns False if none is.
        notice: text for the foot of the page, "" for none.
    """
    views = web_ui.app.view_functions
    start, stop = views["locust.swarm"], views["locust.stop"]

    def checked_start() -> Any:
        try:
            prepare(_form(web_ui))
        except UsageError as e:
            return Response(f"{e}\n", status=400, mimetype="text/plain")
        return start()

    def stop_or_cut() -> Any:
        return jsonify({"success": True, "message": "Test stopped"}) if stop_again() else stop()

    views["locust.swarm"] = web_ui.auth_required_if_enabled(checked_start)
    views["locust.stop"] = web_ui.auth_required_if_enabled(stop_or_cut)

    @web_ui.app.after_request  # type: ignore[untyped-decorator]
    def show_notice(response: Response) -> Response:
        text = notice()
        if text and request.endpoint == "locust.index" and response.mimetype == "text/html":
            page = response.get_data(as_text=True)
            response.set_data(page.replace("</body>", f"{_BANNER % escape(text)}</body>"))
        return response


def _form(web_ui: Any) -> Form:
    """Read the form. Raises UsageError: a number is empty, which Locust would answer with a 500."""
    available = web_ui.environment.available_user_classes or {}
    picked = None
    if web_ui.userclass_picker_is_active:
        names = request.form.getlist("user_classes") or list(available)
        picked = [available[name] for name in names if name in available]
    options = {key: value for key, value in request.form.items() if key in BY_DEST}
    for key, value in options.items():
        option = BY_DEST[key]
        if isinstance(option.default, int | float) and not isinstance(option.default, bool) and not value.strip():
            raise UsageError(f"{option.flag} is empty; without a wish of your own it is {option.default}")
    users = request.form.get("user_count", 0, type=int)
    return Form(options, request.form.get("host"), users, picked)


_BANNER = (
    "<style>body { padding-bottom: 34px; }</style>"
    '<div role="status" style="position:fixed;bottom:0;left:0;right:0;z-index:2000;padding:6px 16px;'
    'background:#b26a00;color:#fff;font:14px sans-serif;text-align:center">%s</div>'
)
