"""What the scenarios share: a scene on the broker of the session. See scene.py, member.py and reconcile.py."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.testing.broker import KafkaBroker
from holdfast.testing.pytest_plugin import TopicFactory
from tests.classification.postgres import running
from tests.scenarios.scene import Scene
from tests.spool.places import S3, moto


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    with running() as url:
        yield url


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    with moto() as found, found.in_the_environment():
        yield found


MakeScene = Callable[..., Scene]


@pytest.fixture
def make_scene(kafka: KafkaBroker, topic: TopicFactory, tmp_path: Path) -> Iterator[MakeScene]:
    """`make_scene(partitions=4)`: a scene with a topic of its own. Its members' logs are shown when the test fails."""
    scenes: list[Scene] = []

    def make(*, partitions: int = 1) -> Scene:
        folder = tmp_path / f"scene-{len(scenes) + 1}"
        folder.mkdir()
        scene = Scene(kafka, folder, topic=topic(partitions=partitions))
        scenes.append(scene)
        return scene

    yield make
    for scene in scenes:
        scene.__exit__(None, None, None)
        sys.stdout.write(scene.logs())
