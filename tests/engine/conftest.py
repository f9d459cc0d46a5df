"""The fixtures that the tests of the engine share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from keepfast.engine.workers import EventLoopThread
from tests.support.log_capture import LogCapture


@pytest.fixture
def log() -> Iterator[LogCapture]:
    with LogCapture() as capture:
        yield capture


@pytest.fixture
def events() -> Iterator[EventLoopThread]:
    """The thread of async handlers."""
    made = EventLoopThread(asyncio.new_event_loop)
    yield made
    made.stop(2.0)
