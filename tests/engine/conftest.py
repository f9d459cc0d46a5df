"""The fixture that the tests of the loop share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.engine.heard import Heard


@pytest.fixture
def heard() -> Iterator[Heard]:
    handler, logger = Heard(), logging.getLogger("keepfast")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)
