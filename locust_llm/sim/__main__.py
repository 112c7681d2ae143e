"""``python -m locust_llm.sim``: the command ``locust-llm simulate``, or (``--owned``) what ``process.start`` starts."""

from __future__ import annotations

import sys


def main() -> int:
    """Run and return the exit code."""
    if sys.argv[1:] == ["--owned"]:
        from .owned import serve_parent

        return serve_parent()
    from ..errors import UsageError
    from ..parsing import Parser
    from .command import add_arguments, run

    parser = Parser(prog="python -m locust_llm.sim")
    add_arguments(parser)
    try:
        return run(parser.parse_args())
    except UsageError as e:
        print(f"locust-llm: error: {e}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
