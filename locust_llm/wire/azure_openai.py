"""Azure OpenAI: the OpenAI chat under a deployment's URL, or under Azure's own ``/openai/v1``.

The model is the deployment's name. Azure's filter adds events that carry no token (``prompt_filter_results`` before the
first, annotations between and after), which the OpenAI reader takes for what they are. Servers here know no exact
length, so none is asked for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import quote

from .api import Call
from .openai_chat import OpenAIChat

API_VERSION = "2024-10-21"
"""The last dated version that is not a preview; the first of that kind with usage in streams."""


class AzureOpenAI(OpenAIChat):
    """See ``api.Api``. For another version name the whole path with ``--llm-endpoint``, or register one of your own.

    Args:
        api_version: value of the query ``api-version``.
        name: what ``--llm-api`` calls it.
    """

    root = "/openai"
    models_path: str | None = None

    def __init__(self, api_version: str = API_VERSION, name: str = "azure-openai") -> None:
        self.api_version = api_version
        self.name = name

    def build_body(self, call: Call) -> dict[str, Any]:
        """Return the JSON body of an OpenAI chat."""
        return super().build_body(replace(call, exact_length=False))

    def path(self, call: Call) -> str:
        """Return the endpoint of the deployment that the model names."""
        return f"/deployments/{quote(call.model, safe='')}/chat/completions?api-version={quote(self.api_version)}"

    def headers(self, key: str) -> list[tuple[str, str]]:
        """Return the key; for a token of Entra ID use ``--llm-header 'Authorization: env:VARIABLE'``."""
        return [("api-key", key)] if key else []


class AzureOpenAIv1(AzureOpenAI):
    """Azure's API without versions: ``/openai/v1/chat/completions``; the model in the body names the deployment."""

    root = "/openai/v1"
    models_path: str | None = "/models"

    def __init__(self, name: str = "azure-openai-v1") -> None:
        super().__init__(name=name)

    def path(self, call: Call) -> str:
        """Return the endpoint."""
        return "/chat/completions"
