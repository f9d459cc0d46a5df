from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.classify import errors


@pytest.fixture(scope="session")
def server() -> Iterator[errors.HttpServer]:
    with errors.http_server() as running:
        yield running
