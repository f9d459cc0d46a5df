"""The backends on which every test of this folder runs.

What a client cannot do is written down in `LIMITS`; a test that needs it says so with `@pytest.mark.needs("…")`, and is
then not made for that client at all.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.backend import Backend
from tests.conformance.simulated import SimulatedBackend

LIMITS: dict[str, frozenset[str]] = {
    "simulator-1": frozenset(),
    "simulator-2": frozenset(),
    "simulator-3": frozenset(),
    "kafka": frozenset(),
    "adopted": frozenset({"reasons of refused commits", "another subscription"}),
    "kafka-python": frozenset(
        {
            "null headers",
            "records of nothing",
            "missing topics",
            "going on after a record too large",
            "another subscription",
        }
    ),
    "kafka-python-eager": frozenset({"incremental assignment", "another subscription"}),
}

# Where a client is tried: everywhere, unless it differs from another one in these points only.
FILES = {
    "adopted": ("test_a_sink_delivers", "test_a_source_reads", "test_a_source_commits", "test_a_source_shares"),
    "kafka-python": ("test_a_sink_delivers", "test_a_source_reads", "test_a_source_commits", "test_a_source_shares"),
    "kafka-python-eager": ("test_a_source_shares",),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        needed = {what for mark in metafunc.definition.iter_markers("needs") for what in mark.args}
        file = metafunc.definition.path.stem
        able = [name for name, limits in LIMITS.items() if not needed & limits and file in FILES.get(name, (file,))]
        metafunc.parametrize("backend", able, indirect=True)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    world: Backend
    if request.param.startswith("simulator-"):
        world = SimulatedBackend(int(request.param.removeprefix("simulator-")))
    elif request.param == "kafka":
        from tests.conformance.real import RealBackend

        world = RealBackend(request.getfixturevalue("kafka"))
    elif request.param == "adopted":
        from tests.conformance.adopted_client import AdoptedBackend

        world = AdoptedBackend(request.getfixturevalue("kafka"))
    else:
        from tests.conformance.python_client import PythonBackend

        world = PythonBackend(request.getfixturevalue("kafka"), eager=request.param.endswith("eager"))
    yield world
    world.close()
