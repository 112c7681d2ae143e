"""A fuzz run over all decoders: ``python benchmarks/fuzz_wire.py --seconds 600`` (needs ``pip install atheris``).

Inputs grow, guided by coverage of ``locust_llm.wire``, from the bodies of the test cases. The first byte of an input
picks the API, the second how the body is cut. Each is decoded whole and in pieces, which must give the same sound
answer; the same bytes as the body of an error must give a message. What breaks that is kept as a file in the working
directory, and ``python benchmarks/fuzz_wire.py crash-…`` plays it again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "wire")]

import atheris  # noqa: E402

with atheris.instrument_imports(include=["locust_llm.wire"]):
    from locust_llm.wire import registry
    from locust_llm.wire.errors import server_error

from cases import body, load  # noqa: E402
from soundness import check_sound, facts, run  # noqa: E402

APIS = registry.names()
LONGEST = 32 * 1024


def decode_one(data: bytes) -> None:
    """Decode one input; raise if it shows a fault."""
    if len(data) < 2:
        return
    api, size, rest = registry.api(APIS[data[0] % len(APIS)]), data[1] % 61 + 1, data[2:]
    whole = run(lambda: api.decoder(True), [rest])
    check_sound(whole)
    pieces = [rest[at : at + size] for at in range(0, len(rest), size)]
    assert facts(run(lambda: api.decoder(True), pieces)) == facts(whole)
    assert server_error(rest, None).message


def write_seeds(folder: Path) -> None:
    """Write the bodies of all cases as inputs."""
    for case in load():
        data = b"".join(piece for _, _, piece in body(case))
        if len(data) < LONGEST:
            (folder / case.id).write_bytes(bytes([APIS.index(case.api), 7]) + data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=600, help="length of the run")
    parser.add_argument("inputs", nargs="*", help="inputs to play again instead")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not given.inputs:
            write_seeds(Path(folder))
        limits = [f"-max_total_time={given.seconds}", f"-max_len={LONGEST}", "-timeout=10", "-rss_limit_mb=2048"]
        atheris.Setup([sys.argv[0], *limits, "-print_final_stats=1", *(given.inputs or [folder])], decode_one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
