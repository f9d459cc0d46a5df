"""What the scenarios share: a scene on the broker of the session. See scene.py, member.py and reconcile.py.

Members have a short session. Every scenario runs under both group protocols, except CLASSIC_ONLY; `make test` runs it
under one of them, chosen by its name.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keepfast.testing.broker import KafkaBroker
from keepfast.testing.pytest_plugin import TopicFactory
from tests.scenarios.scene import Scene

PROTOCOLS = ("classic", "consumer")
CLASSIC_ONLY = {
    # tests/kafka/test_source_membership.py
    "test_a_fenced_static_member_ends_with_code_6": "a name that is taken is waited for",
    "test_a_stop_while_the_group_rebalances_is_clean_if_all_is_committed": "commits do not wait for a join",
    "test_a_static_member_killed_between_two_rounds_leaves_no_partition_without_an_owner": "it has no rounds",
}
"""Why a file says nothing under KIP-848."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "make_scene" in metafunc.fixturenames and metafunc.definition.path.stem not in CLASSIC_ONLY:
        metafunc.parametrize("group_protocol", PROTOCOLS, indirect=True)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test` runs one of the two: the engine is the same under both, and tests/kafka tests what differs. The other
    waits for `make test-full`.
    """
    for item in items:
        parameters = getattr(item, "callspec", None)
        protocol = parameters and parameters.params.get("group_protocol")
        if protocol and protocol != chosen_protocol(item.nodeid):
            item.add_marker(pytest.mark.long)


def chosen_protocol(nodeid: str) -> str:
    """The one under which `make test` runs it; the same for both of its variants."""
    function, _, variant = nodeid.partition("[")
    others = [word for word in variant.rstrip("]").split("-") if word not in PROTOCOLS]
    return PROTOCOLS[zlib.crc32("-".join([function, *others]).encode()) % 2]


@pytest.fixture
def group_protocol(request: pytest.FixtureRequest) -> str:
    protocol: str = getattr(request, "param", "classic")
    return protocol


MakeScene = Callable[..., Scene]


@pytest.fixture
def make_scene(kafka: KafkaBroker, topic: TopicFactory, tmp_path: Path, group_protocol: str) -> Iterator[MakeScene]:
    """`make_scene(partitions=4)`: a scene with a topic of its own. Its members' logs are shown when the test fails."""
    scenes: list[Scene] = []

    def make(*, partitions: int = 1) -> Scene:
        folder = tmp_path / f"scene-{len(scenes) + 1}"
        folder.mkdir()
        scene = Scene(kafka, folder, topic=topic(partitions=partitions), group_protocol=group_protocol)
        scenes.append(scene)
        return scene

    yield make
    for scene in scenes:
        scene.__exit__(None, None, None)
        sys.stdout.write(scene.logs())
