"""``locust-llm run``: Locust with the extension loaded and the manners of an LLM benchmark.

The command line is translated (``translate``), completed by what can only be said there and checked (``_complete``),
and handed to Locust's own ``main``: an error is the first and only thing that is printed. What depends on environment,
config files or the locustfile is decided in Locust's ``init`` event (``apply_manners``), when Locust has read them all.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any, NoReturn

from ..errors import UsageError
from ..load.arrivals import read_rate
from ..options import BY_DEST
from ..parsing import in_our_words
from ..settings import settings_from
from .ports import must_be_free
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
    parser_made.add_listener(_our_manners)
    from locust.main import main as locust_main

    import locust_llm.plugin  # noqa: F401  # registers the options and the rest

    init.add_listener(say)  # after the plugin's, which refuses what cannot be run
    argv = translation.argv
    sys.argv = ["locust-llm run", *(word for word in argv if word != "--web")]
    os.environ.update(_complete(sys.argv[1:], web="--web" in argv))
    locust_main()  # type: ignore[no-untyped-call]
    return 0


def apply_manners(environment: Any, **_: Any) -> None:
    """Set what was not said: ``-r`` is ``-u``; ``-t`` counts from the end of the ramp; 60 s without a stop rule.

    With the web page, with a load shape, and without a class that talks to a model, time is Locust's and the shape's.
    """
    from ..assembly import llm_classes

    options = environment.parsed_options
    if options.worker:
        return
    if environment.host and "://" not in environment.host:  # HttpUser classes beside ours insist on it
        environment.host = options.host = f"http://{environment.host}"
    if options.llm_rate and not options.num_users:
        options.num_users = _users_for(options.llm_rate)
    if options.spawn_rate is None and options.num_users:
        options.spawn_rate = float(options.num_users)
        logging.getLogger("locust.runners").addFilter(_about_a_rate_of_ours)
    if not llm_classes(environment.user_classes):
        print("locust-llm: note: no class here talks to a model: this is a test of Locust alone", file=sys.stderr)
        return
    if not options.headless or environment.shape_class is not None:
        return
    if options.run_time is not None:
        options.llm_run_time = float(options.run_time)
        options.run_time = None
    elif not options.llm_requests and not options.llm_run_time:
        options.llm_run_time = DEFAULT_RUN_TIME_S
    logging.getLogger("locust.main").addFilter(_untrue_without_run_time)


def say(environment: Any, **_: Any) -> None:
    """Say what load it will be, once it is known to be possible, and settle which live figures are printed.

    Locust's table each 2 s is left out where our figures each 10 s tell more; ``--print-stats`` wants both.
    """
    from ..assembly import llm_classes

    options, of_llm = environment.parsed_options, llm_classes(environment.user_classes)
    if options.headless and of_llm and not options.worker and environment.shape_class is None:
        logger.info(_load_in_words(options))
    ours = len(of_llm) == len(environment.user_classes)
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
        if action.dest in BY_DEST:
            action.choices = action.type = None  # the settings know them, and say what is wrong in their words
    given, _ = parser.parse_known_args(argv)
    if not given.worker:  # it gets its master's
        # The locustfile, not read yet, may register more APIs; Locust's own parser looks at that option afterwards.
        settings_from({key: value for key, value in vars(given).items() if key != "llm_api"})
    added = {}
    if web:
        added["LOCUST_HEADFUL"] = "true"
    elif not (given.headless or given.headful or given.autostart or given.worker):
        added["LOCUST_HEADLESS"] = "true"
    must_be_free(given, page=not given.headless and "LOCUST_HEADLESS" not in added)
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


def _our_manners(parser: Any, **_: Any) -> None:
    """Give Locust's parser the form of our errors, and forbid it abbreviations.

    An option that is not written in full would get past the translation, and past its look for contradictions.
    """

    def error(message: str) -> NoReturn:
        raise UsageError(in_our_words(message, "locust-llm run", parser._option_string_actions))

    parser.allow_abbrev = False
    parser.error = error


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


def _about_a_rate_of_ours(record: logging.LogRecord) -> bool:
    """Locust warns of more than 100 users a second, which nobody chose; ours start in turns (benchmarks/start.py)."""
    return "spawn rate is very high" not in record.getMessage()


def _asks(argv: Sequence[str], *flags: str) -> bool:
    before = argv[: argv.index("--")] if "--" in argv else argv
    return any(word in flags for word in before)


def _locusts_help() -> int:
    import locust.argument_parser

    import locust_llm.plugin  # noqa: F401

    sys.argv[0] = "locust-llm run"
    locust.argument_parser.get_parser().print_help()
    return 0
