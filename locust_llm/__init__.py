"""locust-llm: load tests of LLM serving on Locust, with token-level metrics that are right.

    from locust import task
    from locust_llm import ChatUser

    class Chat(ChatUser):
        @task
        def ask(self):
            self.chat()

Importing a name from here loads Locust and the extension. The submodules ``report``, ``wire`` and ``exchange`` need
neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "ChatUser",
    "CompletionUser",
    "JsonPathApi",
    "LLMUser",
    "Prompt",
    "Reply",
    "Workload",
    "__version__",
    "arrivals",
    "register_api",
    "setup",
]

if TYPE_CHECKING:
    from .client import Reply
    from .load import arrivals
    from .plugin import setup
    from .users import ChatUser, CompletionUser, LLMUser
    from .wire.custom import JsonPathApi
    from .wire.registry import register_api
    from .workload.prompts import Prompt, Workload

_HOME = {
    "ChatUser": "users",
    "CompletionUser": "users",
    "LLMUser": "users",
    "Reply": "client",
    "JsonPathApi": "wire.custom",
    "Prompt": "workload.prompts",
    "Workload": "workload.prompts",
    "register_api": "wire.registry",
    "setup": "plugin",
}


def __getattr__(name: str) -> Any:
    if name == "arrivals":
        from .load import arrivals

        return arrivals
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    import locust  # noqa: F401  # first: it patches the standard library for gevent

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
