"""What TLS costs the client: CPU a token over TLS against plain, in turns on the same server.

    python benchmarks/tls.py                          # about 3 minutes; exit code 1 if the goal is missed
    python benchmarks/tls.py --streams 50 --seconds 5 --repeats 1 --json /tmp/tls.json

The terminator stands between client and server as in production: hitch (OpenSSL, `apt install hitch`), which makes one
TLS record of each piece the server sends; its CPU, like the server's, does not count. *Streaming* is CPU between the
moment when all streams run and the last exchange's begin, over the tokens that left the server then.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from common import (
    COST_COLUMNS,
    Row,
    Server,
    Table,
    closed_loop,
    free_port,
    ground_truth,
    leave,
    medians,
    options,
    save,
    say,
    show,
    token_cost,
    workplace,
)

from locust_llm.errors import UsageError
from locust_llm.telemetry.check import Schedule

GOAL = 1.6
PLAIN, TLS = "plain", "TLS"
_UP_S = 5.0

COLUMNS = [
    ("over", "over", ""),
    *COST_COLUMNS,
    ("ratio", "streaming, ratio to plain", ".2f"),
    ("reached", "goal reached", ""),
]

TEXT = """\
CPU a token of the client, plain and over TLS, in turns on the same server. The terminator is {terminator}:
{cipher}, a record for each piece that the server sends (one token). Server and terminator do not count. Goal: at most
{goal} times the plain cost while streaming."""


def main() -> int:
    given = options(__doc__, streams=[200], itl_us=10_000, tokens=200, seconds=20, repeats=3).parse_args()
    hitch, openssl = shutil.which("hitch", path=f"{os.environ['PATH']}:/usr/sbin"), shutil.which("openssl")
    if hitch is None or openssl is None:
        raise UsageError("this benchmark needs hitch and openssl (apt install hitch openssl)")
    schedule = Schedule(0.05, given.itl_us / 1e6, given.tokens)
    rows: list[Row] = []
    every: list[Row] = []
    with workplace() as (tools, work):
        certificate = _certificate(openssl, work)
        cipher = "no cipher known"
        for streams in given.streams:
            runs: dict[str, list[Row]] = {PLAIN: [], TLS: []}
            for turn in range(given.repeats):
                for over, of in runs.items():
                    with ground_truth(tools, work, schedule) as server:
                        if over == PLAIN:
                            of.append(_measure(over, server, work, streams, given.seconds))
                        else:
                            with _terminated(hitch, certificate, work, server) as (encrypted, cipher):
                                of.append(_measure(over, encrypted, work, streams, given.seconds, certificate))
                    say(f"turn {turn + 1}/{given.repeats}: {show(of[-1])}")
            plain, tls = (medians(of) for of in runs.values())
            tls["ratio"] = tls["streaming_us"] / plain["streaming_us"]
            rows += [plain, tls | {"reached": tls["ratio"] <= GOAL}]
            every += [row for of in runs.values() for row in of]
    text = TEXT.format(terminator=_version(hitch), cipher=cipher, goal=GOAL)
    save(given.json, "What TLS costs", text, [Table("", COLUMNS, rows)], vars(given), every)
    return 0 if all(row.get("reached", True) for row in rows) else 1


def _measure(over: str, server: Server, work: Path, streams: int, seconds: int, certificate: Path | None = None) -> Row:
    more = ["--llm-ca-file", str(certificate)] if certificate else []
    ended = closed_loop(server, work, streams, seconds, more=more).process
    return {"over": over, **token_cost(ended, server, streams)}


@contextmanager
def _terminated(hitch: str, certificate: Path, work: Path, server: Server) -> Iterator[tuple[Server, str]]:
    """Put the terminator before a server; yields the server as clients see it, and the cipher."""
    port = free_port()
    command = [
        hitch, "--workers=1", "--backlog=4096", "--quiet",
        f"--frontend=[127.0.0.1]:{port}", f"--backend=[127.0.0.1]:{server.port}", str(work / "server.pem"),
    ]  # fmt: skip
    if os.geteuid() == 0:
        command.insert(1, "--user=nobody")  # it refuses to work as root
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield replace(server, port=port, scheme="https"), _cipher(port, certificate, process)
    finally:
        process.terminate()
        process.wait()


def _cipher(port: int, certificate: Path, process: subprocess.Popen[bytes]) -> str:
    """Wait until the terminator answers; return what was agreed on."""
    context = ssl.create_default_context(cafile=str(certificate))
    deadline = time.monotonic() + _UP_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with (
                socket.create_connection(("127.0.0.1", port)) as raw,
                context.wrap_socket(raw, server_hostname="127.0.0.1") as sock,
            ):
                agreed = sock.cipher()
                return f"{agreed[1]} {agreed[0]}" if agreed else "unknown"
        except ConnectionRefusedError:
            time.sleep(0.02)
    said = (
        process.stderr.read().decode(errors="replace").strip() if process.poll() is not None and process.stderr else ""
    )
    raise UsageError(f"hitch did not come up on port {port} ({said or 'it said nothing'})")


def _certificate(openssl: str, work: Path) -> Path:
    """Make a certificate for 127.0.0.1, and beside it ``server.pem``, which has its key, too."""
    key, certificate = work / "key.pem", work / "certificate.pem"
    command: list[str | Path] = [
        openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key, "-out", certificate,
        "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    (work / "server.pem").write_bytes(key.read_bytes() + certificate.read_bytes())
    return certificate


def _version(hitch: str) -> str:
    return subprocess.run([hitch, "--version"], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    leave(main)
