"""The start form's side: LLM options are checked, and first contact is made, before Locust starts a test.

A bad value, or a server that cannot serve, is a 400 with one line of text; Locust's own handler never sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from flask import Response, request

from .errors import UsageError
from .options import BY_DEST


def attach(web_ui: Any, prepare: Callable[[Mapping[str, str]], None], notice: Callable[[], str]) -> None:
    """Put ``prepare`` before the start of a test from the page.

    Args:
        web_ui: Locust's.
        prepare: takes the form's values (options that are not in the form are absent); raises UsageError.
        notice: text for the top of the page, "" for none.
    """
    app = web_ui.app
    start = app.view_functions["locust.swarm"]

    def checked_start() -> Any:
        values = {key: value for key, value in request.form.items() if key in BY_DEST or key == "host"}
        try:
            prepare(values)
        except UsageError as e:
            return Response(f"{e}\n", status=400, mimetype="text/plain")
        return start()

    app.view_functions["locust.swarm"] = checked_start

    @app.after_request  # type: ignore[untyped-decorator]
    def show_notice(response: Response) -> Response:
        text = notice()
        if text and request.endpoint == "locust.index" and response.mimetype == "text/html":
            page = response.get_data(as_text=True)
            response.set_data(page.replace("</body>", f"{_BANNER % escape(text)}</body>"))
        return response


_BANNER = (
    '<div role="status" style="position:fixed;bottom:0;left:0;right:0;z-index:2000;padding:6px 16px;'
    'background:#b26a00;color:#fff;font:14px sans-serif;text-align:center">%s</div>'
)
