"""The command ``locust-llm``: finds the command, runs it, turns errors into one line.

Each command is loaded only when it is asked for: ``report``, ``simulate`` and ``init`` load neither Locust nor gevent.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

from .errors import UsageError
from .parsing import Parser

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
_SWITCH_S = 0.0005

HELP = """\
Usage: locust-llm COMMAND [options]

Load tests of LLM servers on Locust: correct TTFT, inter-token latency and tokens per second.

Commands:
  run          run a load test
  init         write a locustfile to start from
  report       make tables, a page and summaries from a run's event log; a curve from several runs
  compare      tell whether one run, or several, became better or worse than others
  leaderboard  tables of several runs by framework, model and size, as of LLMPerf's leaderboard
  export       write a run in the files of another tool, as Parquet or as CSV
  simulate     start a simulated model server
  selfcheck    find out what this machine can measure soundly

Examples:
  locust-llm run --llm-simulate -u 8 -t 10s
  locust-llm run -H http://localhost:8000 -u 32 -t 60s --llm-input-tokens 1024 --llm-output-tokens 128
  locust-llm report reports/RUN
  locust-llm export reports/RUN --to vllm
  locust-llm init chat my_test.py && locust-llm run -f my_test.py -H http://localhost:8000 --web
  locust-llm simulate --port 8000 --ttft 50ms --itl 10ms

locust-llm COMMAND --help says more about each. In a locustfile run by plain `locust` the same options work.
"""

# Modules that offer add_arguments(parser) and run(args); "run" has Locust's parser instead.
PARSED: Mapping[str, str] = {
    "init": "locust_llm.commands.init",
    "report": "locust_llm.report.command",
    "compare": "locust_llm.report.compare_command",
    "leaderboard": "locust_llm.report.curve_command",
    "export": "locust_llm.report.export.command",
    "simulate": "locust_llm.sim.command",
    "selfcheck": "locust_llm.commands.selfcheck",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``locust-llm`` with ``argv`` (default: the process's) and return the exit code; 2 is a usage error."""
    # numpy's linear algebra starts a thread a core, which spin for a while; our matrices are small.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        code = _dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except UsageError as e:
        print(f"locust-llm: error: {e}", file=sys.stderr)
        return EXIT_USAGE
    except SystemExit as end:  # argparse, Locust
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has left. What Python would still flush goes nowhere, quietly.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE


def _dispatch(argv: list[str]) -> int:
    if not argv:
        print(HELP, end="", file=sys.stderr)
        return EXIT_USAGE
    command, rest = argv[0], argv[1:]
    if command in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if command in ("-V", "--version"):
        from . import __version__

        print(f"locust-llm {__version__}")
        return 0
    if command == "run":
        from .commands.run import run

        return run(rest)
    if command in PARSED:
        return _parsed(command, rest)
    if command.startswith("-"):
        raise UsageError(f"the command comes first: locust-llm run {command} … (got no command)")
    raise UsageError(f"unknown command {command!r}; the commands are run, {', '.join(PARSED)}")


def _parsed(command: str, argv: list[str]) -> int:
    if PARSED[command].startswith("locust_llm.report."):
        # Our matrices are small: OpenBLAS's threads would only spin beside those that read logs. And these hand over
        # Python's lock often; the usual 5 ms are as long as a thread holds it for most of a block.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        sys.setswitchinterval(_SWITCH_S)
    module = import_module(PARSED[command])
    parser = Parser(prog=f"locust-llm {command}")
    module.add_arguments(parser)
    run: Callable[[argparse.Namespace], int] = module.run
    return run(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
