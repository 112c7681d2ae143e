"""The LLM tab of Locust's page: its script, its data, its downloads, and the change of a rate.

The one thing to know: nothing of Locust's page is replaced. The tab is declared by ``extended_tabs`` without a table,
one script is put into the index page and fills the empty panel; ``/llm/`` shows the same without Locust's page. Routes
hang under the place where Locust's index is, so a base path needs no care; all are guarded as Locust's own are, and
answer no other site.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
from flask import Blueprint, Response, request

from ..errors import UsageError
from ..load.arrivals import checked_rate, read_rate
from ..options import OPTIONS
from .downloads import Downloads, Nothing

HERE = Path(__file__).parent / "page"
TAB = {"title": "LLM", "key": "llm"}
LINKS = [
    {"href": "./llm/summary.csv", "title": "Download LLM figures CSV"},
    {"href": "./llm/report.html", "title": "Download LLM report"},
]
_TYPES = {".js": "text/javascript", ".css": "text/css"}
_TEXT = "text/plain"


def attach(web_ui: Any, desk: Any) -> None:
    """Put the tab into Locust's page and the routes beside Locust's.

    Args:
        web_ui: Locust's, before it serves.
        desk: what is known of the run (``live.desk.Desk``).
    """
    tabs = web_ui.template_args.setdefault("extended_tabs", [])
    if TAB in tabs:
        return
    tabs.append(TAB)
    web_ui.template_args.setdefault("extended_csv_files", []).extend(LINKS)
    files = {path.name: path.read_bytes() for path in sorted(HERE.iterdir()) if path.suffix in _TYPES}
    version = sha256(b"".join(files.values())).hexdigest()[:12]
    web_ui.app.register_blueprint(_routes(web_ui, desk, files, version), url_prefix=f"{base_of(web_ui)}/llm")
    script = f'{_fields()}<script type="module" src="./llm/ui/{version}/main.js"></script>'

    @web_ui.app.after_request  # type: ignore[untyped-decorator]
    def add_script(response: Response) -> Response:
        if request.endpoint == "locust.index" and response.status_code == 200 and response.mimetype == "text/html":
            response.set_data(response.get_data(as_text=True).replace("</body>", f"{script}</body>"))
        return response


def base_of(web_ui: Any) -> str:
    """Return the path under which Locust's page is, without a slash at its end."""
    index: str = next(iter(web_ui.app.url_map.iter_rules("locust.index"))).rule
    return index.rstrip("/")


def _routes(web_ui: Any, desk: Any, files: dict[str, bytes], version: str) -> Blueprint:
    routes = Blueprint("locust_llm", __name__)
    downloads = Downloads()

    def route(rule: str, *methods: str) -> Callable[[Callable[..., Response]], Callable[..., Response]]:
        def add(view: Callable[..., Response]) -> Callable[..., Response]:
            guarded = web_ui.auth_required_if_enabled(own_site(view))
            routes.add_url_rule(rule, view.__name__, guarded, methods=methods or ("GET",))
            return view

        return add

    @route("/")
    def page() -> Response:
        return Response(_PAGE.replace("VERSION", version), mimetype="text/html", headers={"Cache-Control": "no-cache"})

    @route("/ui/<_version>/<name>")
    def ui(_version: str, name: str) -> Response:
        if name not in files:
            return _said(404, f"no such file: {name}")
        headers = {"Cache-Control": "private, max-age=31536000, immutable" if _version == version else "no-cache"}
        return Response(files[name], mimetype=_TYPES[Path(name).suffix], headers=headers)

    @route("/data")
    def data() -> Response:
        since = request.args.get("since", "0")
        if not since.isdecimal() or len(since) > 18:
            return _said(400, f"since must be a version, such as 417 (got {since[:40]!r})")
        begun = time.thread_time()
        body = orjson.dumps(desk.snapshot(int(since)), option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
        # The page polls so that this stays under a hundredth of the process's time.
        cost = f"made;dur={(time.thread_time() - begun) * 1e3:.2f}"
        return Response(body, mimetype="application/json", headers={"Cache-Control": "no-store", "Server-Timing": cost})

    @route("/rate", "POST")
    def rate() -> Response:
        try:
            stream, asked = _asked_rate(request.get_data())
            desk.set_rate(asked, stream)
        except UsageError as e:
            return _said(400, str(e))
        return Response(orjson.dumps({"stream": stream, "rate": asked}), mimetype="application/json")

    @route("/<any('summary.json', 'summary.csv', 'report.html', 'events.jsonl'):name>")
    def download(name: str) -> Response:
        try:
            body, mimetype = downloads.get(name, desk)
        except Nothing as e:
            return _said(e.status, str(e))
        headers = {
            "Content-Disposition": f'attachment; filename="{downloads.filename(name, desk)}"',
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        return Response(body, mimetype=mimetype, headers=headers)

    return routes


def own_site(view: Callable[..., Response]) -> Callable[..., Response]:
    """Refuse what a page of another site asks for. Locust's own routes only rely on POST and on the login."""

    @wraps(view)
    def checked(*args: Any, **kwargs: Any) -> Response:
        origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site")
        # Not X-Forwarded-Host: Locust lets scripts of any site send what headers they like.
        foreign = origin is not None and site != "same-origin" and urlsplit(origin).netloc != request.host
        if foreign or (request.method == "POST" and site in ("cross-site", "same-site")):
            return _said(403, f"refused: it comes from another site ({origin or site}); a proxy must pass on Host")
        return view(*args, **kwargs)

    return checked


def _asked_rate(body: bytes) -> tuple[str, float]:
    """Read ``{"stream": "", "rate": 20}``.

    Raises:
        UsageError: it is something else.
    """
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError:
        asked = None
    if not isinstance(asked, dict) or not isinstance(asked.get("stream", ""), str) or "rate" not in asked:
        raise UsageError('the rate must come as JSON, such as {"rate": 20}')
    rate = asked["rate"]
    number = read_rate("the rate", rate) if isinstance(rate, str) and rate.strip() else rate
    if isinstance(number, bool | str) or number is None:
        raise UsageError(f"the rate must be a number of exchanges per second, such as 5 (got {rate!r})")
    return asked.get("stream", ""), checked_rate("the rate", number)


def _fields() -> str:
    """Return labels and help of our start-form fields for the script: Locust makes its labels of option names."""
    fields = {}
    for option in OPTIONS:
        if option.web:
            form = f": {option.metavar}" if option.metavar and "[" in option.metavar else ""
            fields[option.dest] = {"label": option.web, "help": option.help + form}
    data = orjson.dumps(fields).decode().replace("<", "\\u003c")
    return f'<script type="application/json" id="locust-llm-fields">{data}</script>'


def _said(status: int, text: str) -> Response:
    return Response(f"{text}\n", status=status, mimetype=_TEXT)


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>LLM · Locust</title>
<link rel="icon" href="../assets/favicon-light.png">
<script>
  const dark = localStorage.theme ? localStorage.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.className = dark ? "dark" : "";
</script>
<style>
  body { margin: 0; background: #fff; color: #1b1f24; font: 14px/1.5 Roboto, Helvetica, Arial, sans-serif; }
  .dark body { background: #121212; color: #fff; }
  main { max-width: 1488px; margin: 0 auto; padding: 16px; }
</style>
</head>
<body>
<main id="llm"></main>
<noscript>This page needs JavaScript; without it: summary.json, summary.csv and report.html beside it.</noscript>
<script type="module" src="./ui/VERSION/main.js"></script>
</body>
</html>
"""
