"""Whether the ports that Locust is going to listen on can be had, asked before it starts.

Locust itself finds out when it is up, and says so with a traceback. Somebody may take a port between this look and
Locust's own; then that is what is seen.
"""

from __future__ import annotations

import errno
import socket
from typing import Any

from ..errors import UsageError


def must_be_free(options: Any, page: bool) -> None:
    """Look at the port of the page, and at the one that a master has for its workers.

    Args:
        options: Locust's, read from command line, environment and files.
        page: whether there will be a page.

    Raises:
        UsageError: one of them is taken, or this machine has no such address.
    """
    if options.worker:
        return
    if page:
        _look(options.web_host, options.web_port, "--web-host", "--web-port", "--web-port PORT")
    if options.master or options.processes:
        workers = " --master-port PORT" if options.processes else ", and --master-port PORT for the workers"
        remedy = f"--master-bind-port PORT{workers}"
        _look(options.master_bind_host, options.master_bind_port, "--master-bind-host", "--master-bind-port", remedy)


# ---- helpers


def _look(host: str, port: int, host_flag: str, port_flag: str, remedy: str) -> None:
    host = "" if host == "*" else host
    if not 0 <= port <= 65535:
        raise UsageError(f"{port_flag} must be from 0 to 65535 (got {port})")
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as e:
        words = (e.strerror or str(e)).partition(" (while")[0]
        if e.errno in (errno.EADDRINUSE, errno.EACCES):
            raise UsageError(f"{port_flag} {port}: cannot listen there ({words}); choose another: {remedy}") from None
        raise UsageError(
            f"{host_flag} {host}: cannot listen there ({words}); name an address of this machine"
        ) from None
