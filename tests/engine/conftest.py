"""One server with a real model for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine_loads import Server, serving


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with serving() as started:
        yield started
