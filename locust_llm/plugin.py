"""How the extension is hooked into Locust. Importing this module registers the listeners on ``locust.events``.

The order of things in a test: command line → ``init`` (simulator, signals) → ``test_start`` (settings, first contact,
run folder) → ``spawning_complete`` → ``test_stopping`` (drain) → ``test_stop`` (log closed, report started) →
``quitting`` (exit code) → ``quit`` (table). What happens at each is in ``conductor`` (local process or master) and
``worker``.
"""

from __future__ import annotations

import weakref
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

import locust
from locust.env import Environment
from locust.runners import WorkerRunner

from . import assembly, options
from .conductor import Conductor
from .node import Node
from .stalls import shorten
from .worker import WorkerNode

_nodes: weakref.WeakKeyDictionary[Environment, Node] = weakref.WeakKeyDictionary()
_begun: weakref.WeakSet[Environment] = weakref.WeakSet()


def node_of(environment: Environment) -> Node:
    """Return an environment's node, made at first use: on a late worker ``test_start`` can precede ``init``."""
    node = _nodes.get(environment)
    if node is None:
        node = _nodes[environment] = (WorkerNode if _is_worker(environment) else Conductor)(environment)
    return node


def setup(environment: Environment) -> None:
    """Attach the extension to an environment made in code (library mode), after its runner, before a test starts.

    With ``Environment(events=locust.events)`` it is enough too, and needed only if ``init`` is never fired.
    """
    if environment.events is not locust.events and environment not in _begun:
        _listen(environment.events)
    _init(environment, environment.runner, environment.web_ui)


def _init(environment: Environment, runner: Any = None, web_ui: Any = None, **_: Any) -> None:
    if not _concerns(environment) or environment in _begun:
        return
    _begun.add(environment)
    node = node_of(environment)
    node.on_init(runner, web_ui)
    events: Any = environment.events
    events.quit.add_listener(lambda **_: node.on_quit())


def _spawning_complete(user_count: int, **_: Any) -> None:
    # Locust does not say in which environment; in one process one is spawning.
    for node in list(_nodes.values()):
        node.on_spawning_complete(user_count)


def _for(name: str) -> Callable[..., None]:
    def listener(environment: Environment, **_: Any) -> None:
        if _concerns(environment):
            getattr(node_of(environment), f"on_{name}")()

    return listener


def _listen(events: Any) -> None:
    events.init.add_listener(_init)
    events.spawning_complete.add_listener(_spawning_complete)
    # "quitting" fires in reverse order: registered at import, ours runs after the runner's own.
    for name in ("test_start", "test_stopping", "test_stop", "quitting"):
        getattr(events, name).add_listener(_for(name))


def _concerns(environment: Environment) -> bool:
    """Whether users of ours run in it, or could be picked in its page."""
    classes = list(environment.user_classes)
    if getattr(environment.parsed_options, "class_picker", False):
        available: Any = environment.available_user_classes or {}
        classes += available.values()
    return bool(assembly.llm_classes(classes))


def _is_worker(environment: Environment) -> bool:
    if environment.runner is None:
        return bool(getattr(environment.parsed_options, "worker", False))
    return isinstance(environment.runner, WorkerRunner)


def _add_options(parser: ArgumentParser, **_: Any) -> None:
    options.add_to(parser)


_parser_event: Any = locust.events.init_command_line_parser
_parser_event.add_listener(_add_options)
_listen(locust.events)
shorten()
