"""The backends on which every test of this folder runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.backend import Backend
from tests.conformance.simulated import SimulatedBackend


@pytest.fixture(params=["simulator-1", "simulator-2", "simulator-3", "kafka"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    world: Backend
    if request.param == "kafka":
        from tests.conformance.real import RealBackend

        world = RealBackend(request.getfixturevalue("kafka"))
    else:
        world = SimulatedBackend(int(request.param.removeprefix("simulator-")))
    yield world
    world.close()
