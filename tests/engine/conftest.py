"""The fixture that the tests of the loop share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.log_capture import LogCapture


@pytest.fixture
def log() -> Iterator[LogCapture]:
    with LogCapture() as capture:
        yield capture
