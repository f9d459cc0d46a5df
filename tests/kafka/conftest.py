"""The broker of these tests, and the world in which the conformance suite finds it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing.broker import KafkaBroker
from tests.kafka.real import RealBackend


@pytest.fixture
def backend(kafka: KafkaBroker) -> Iterator[RealBackend]:
    world = RealBackend(kafka)
    yield world
    world.close()
