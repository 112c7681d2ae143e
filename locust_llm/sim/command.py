"""The command ``locust-llm simulate``: a simulator in the foreground, one flag for each of ``SimOptions``' fields."""

from __future__ import annotations

import argparse
import signal
from dataclasses import fields
from typing import Any

from .options import DURATION, FLAG, Kind, SimOptions, kind_of
from .serve import Stop, serve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--host``, ``--port`` and a flag for every option of a simulator."""
    parser.description = "A simulated model server: OpenAI's API, made-up text, made-up timings. No model, no GPU."
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: %(default)s, this machine only)"
    )
    parser.add_argument("--port", type=int, default=8000, help="port, 0 for a free one (default: %(default)s)")
    for spec in fields(SimOptions):
        kind = kind_of(spec)
        default = _shown(kind, spec.default)
        parser.add_argument(
            "--" + spec.name.replace("_", "-"),
            dest=f"sim_{spec.name}",
            metavar="TRUE" if kind is FLAG else spec.name.upper(),
            nargs="?" if kind is FLAG else None,
            const="true" if kind is FLAG else None,
            help=f"{spec.metadata['help']} (default: {default})".replace("%", "%%"),
        )


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM; return the exit code.

    Raises:
        UsageError: a bad option, a port that is taken, a truth log that cannot be written.
    """
    given = {spec.name: getattr(args, f"sim_{spec.name}") for spec in fields(SimOptions)}
    options = SimOptions.from_texts({name: text for name, text in given.items() if text is not None})
    stop = Stop()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stop())
    serve(options, args.host, args.port, lambda url, _: print(_greeting(url, options), flush=True), stop)
    print("simulator ended", flush=True)
    return 0


def _greeting(url: str, options: SimOptions) -> str:
    pace = f"ttft {options.ttft * 1e3:g} ms, itl {options.itl * 1e3:g} ms, {options.tokens} tokens by default"
    body = '{"stream":true,"messages":[{"role":"user","content":"hi"}]}'
    return f"""\
SIMULATED MODEL SERVER at {url}: text and timings are made up, there is no model here.
  model {options.model}, {pace}
  load test it:  locust-llm run --host {url} -u 8 -t 30s
  or ask it:     curl -N {url}/v1/chat/completions -d '{body}'
Ctrl-C ends it."""


def _shown(kind: Kind, default: Any) -> str:
    if kind is DURATION:
        return f"{default * 1e3:g}ms"
    if isinstance(default, bool):
        return str(default).lower()
    return str(default) if default not in ("", ()) else "none"
