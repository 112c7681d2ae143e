"""``locust-llm run``: Locust with the extension loaded and the manners of an LLM benchmark.

The command line is translated (``translate``), completed by what can only be said there (``_complete``), and handed to
Locust's own ``main``. What depends on environment, config files or the locustfile is decided in Locust's ``init``
event (``apply_manners``), when Locust has read them all.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..load.arrivals import read_rate
from .translate import translate

DEFAULT_RUN_TIME_S = 60.0
LEAST_USERS, MOST_USERS = 16, 1000
DEFAULT_LOCUSTFILE = Path(__file__).parent.parent / "locustfile_templates" / "default.py"

logger = logging.getLogger(__name__)


def run(argv: Sequence[str]) -> int:
    """Run a load test. Locust ends with SystemExit, which carries its exit code.

    Raises:
        UsageError: an option that cannot be followed.
    """
    if _asks(argv, "--help-all"):
        return _locusts_help()
    if _asks(argv, "-h", "--help"):
        from .help import run_help

        print(run_help(), end="")
        return 0
    translation = translate(argv)
    for note in translation.notes:
        print(f"locust-llm: note: {note}", file=sys.stderr)

    import locust  # first: it patches the standard library for gevent

    init: Any = locust.events.init
    init.add_listener(apply_manners)  # before the plugin's, which reads what it decides
    parser_made: Any = locust.events.init_command_line_parser
    parser_made.add_listener(_no_abbreviations)
    from locust.main import main as locust_main

    import locust_llm.plugin  # noqa: F401  # registers the options and the rest

    init.add_listener(quiet)  # after the plugin's, which asks what the user wants
    argv = translation.argv
    sys.argv = ["locust-llm run", *(word for word in argv if word != "--web")]
    os.environ.update(_complete(sys.argv[1:], web="--web" in argv))
    locust_main()  # type: ignore[no-untyped-call]
    return 0


def apply_manners(environment: Any, **_: Any) -> None:
    """Set what was not said: ``-r`` is ``-u``; ``-t`` counts from the end of the ramp; 60 s without a stop rule.

    With the web page and with a load shape, time is Locust's and the shape's.
    """
    options = environment.parsed_options
    if options.worker:
        return
    if environment.host and "://" not in environment.host:  # HttpUser classes beside ours insist on it
        environment.host = options.host = f"http://{environment.host}"
    if options.llm_rate and not options.num_users:
        options.num_users = _users_for(options.llm_rate)
    if options.spawn_rate is None and options.num_users:
        options.spawn_rate = float(options.num_users)
    if not options.headless or environment.shape_class is not None:
        return
    if options.run_time is not None:
        options.llm_run_time = float(options.run_time)
        options.run_time = None
    elif not options.llm_requests and not options.llm_run_time:
        options.llm_run_time = DEFAULT_RUN_TIME_S
    logging.getLogger("locust.main").addFilter(_untrue_without_run_time)
    logger.info(_load_in_words(options))


def quiet(environment: Any, **_: Any) -> None:
    """Leave out Locust's table each 2 s where our figures each 10 s tell more; ``--print-stats`` wants both."""
    from ..assembly import llm_classes

    options = environment.parsed_options
    ours = len(llm_classes(environment.user_classes)) == len(environment.user_classes)
    if options.headless and ours and options.llm_console != "off" and not options.print_stats:
        options.only_summary = True


# ---- helpers


def _complete(argv: list[str], web: bool) -> dict[str, str]:
    """Return variables for Locust that say which locustfile, and whether headless, where nobody has said it.

    Not words of the command line: that stays what the user typed, and goes into the run card.
    """
    from locust.argument_parser import get_parser

    if web and "--headless" in argv:
        raise UsageError("--web and --headless contradict each other; give one of them")
    parser = get_parser()
    # Environment and config files count, so Locust's own parser is asked; empty defaults say "not given".
    parser.set_defaults(locustfile="", headless=None)
    for action in parser._actions:
        if action.dest == "llm_api":
            action.choices = None  # the locustfile, not read yet, may register more
    given, _ = parser.parse_known_args(argv)
    added = {}
    if web:
        added["LOCUST_HEADFUL"] = "true"
    elif not (given.headless or given.headful or given.autostart or given.worker):
        added["LOCUST_HEADLESS"] = "true"
    if not given.locustfile:
        added["LOCUST_LOCUSTFILE"] = str(DEFAULT_LOCUSTFILE)
        if Path("locustfile.py").exists():
            print("locust-llm: note: ./locustfile.py is not used; -f locustfile.py would run it", file=sys.stderr)
    return added


def _users_for(rate: str) -> int | None:
    """Return users enough for exchanges of 20 s, which is what ``-u`` is with a rate unless it is said."""
    try:
        wanted = ceil(20 * read_rate("--llm-rate", rate))
    except UsageError:
        return None  # Locust's init says so
    return min(max(wanted, LEAST_USERS), MOST_USERS)


def _no_abbreviations(parser: Any, **_: Any) -> None:
    """An option that is not written in full would get past the translation, and past its look for contradictions."""
    parser.allow_abbrev = False


def _load_in_words(options: Any) -> str:
    users = options.num_users or 1
    who = (
        "1 user, one request at a time (-u N for more)" if users == 1 else f"{users} users, each one request at a time"
    )
    if options.llm_rate:
        who = f"{options.llm_rate} requests a second ({options.llm_arrivals}), {users} at most at once (-u)"
    ends = []
    if options.llm_requests:
        ends.append(f"after {options.llm_requests} requests")
    if options.llm_run_time:
        ends.append(f"{options.llm_run_time:g} s after the last user has started")
    return f"load: {who}; ends {' or '.join(ends) or 'with Ctrl-C'}"


def _untrue_without_run_time(record: logging.LogRecord) -> bool:
    return "No run time limit set" not in record.getMessage()


def _asks(argv: Sequence[str], *flags: str) -> bool:
    before = argv[: argv.index("--")] if "--" in argv else argv
    return any(word in flags for word in before)


def _locusts_help() -> int:
    import locust.argument_parser

    import locust_llm.plugin  # noqa: F401

    sys.argv[0] = "locust-llm run"
    locust.argument_parser.get_parser().print_help()
    return 0
