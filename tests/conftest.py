"""What all tests share: how hypothesis searches, what is begun first, and servers that are not Kafka."""

from __future__ import annotations

import gc
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.schedule import FULL_ONLY, LONG_FIRST
from tests.support import repetition
from tests.support.thorough import examples

if TYPE_CHECKING:
    from keepfast.testing.broker import KafkaBroker
    from tests.support.s3 import S3

# Apps under test run side by side, and none of them is to have the port that users' apps have. What tests health and
# metrics says so itself.
os.environ["HEALTH_CHECK_ENABLED"] = "false"

# Hundreds of processes are started by the tests; none of them compiles everything again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Thousands of tests are collected, and all of them stay: nothing of it is garbage. See pytest_collection_finish.
gc.disable()

# Deadlines per example measure how busy the machine is, not the code.
settings.register_profile(
    "default", max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# In CI a failure must be the change's fault: the same examples every time.
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(repetition)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; the rest stays as it is. Those of FULL_ONLY are marked."""
    full_only = defaultdict[str, list[str]](list)
    for pattern in FULL_ONLY:
        full_only[pattern.partition("::")[0]].append(pattern)
    for item in items:
        if any(fnmatchcase(item.nodeid, pattern) for pattern in full_only.get(item.nodeid.partition("::")[0], ())):
            item.add_marker(pytest.mark.long)
    timed = {item.path for item in items if item.get_closest_marker("timing")}
    for path in timed:
        if "mark.timing" not in path.read_text():
            raise pytest.UsageError(f"{path}: make test finds files of timing tests by the text mark.timing")
    root = Path(__file__).parents[1]
    rank = {root / name: number for number, name in enumerate(LONG_FIRST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


def pytest_collection_finish() -> None:
    """A full collection of garbage that looks through thousands of collected tests takes half a second."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL of our own."""
    from tests.support.postgres import running

    with running() as url:
        yield url


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaBroker]:
    """Three nodes, with three replicas of everything, two of them in sync at least. The module's tests may kill,
    freeze and restart them, and start them again afterwards.
    """
    from keepfast.testing.broker import KafkaBroker

    with KafkaBroker(nodes=3) as running:
        yield running


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """An S3 of our own, which fsspec finds by the environment."""
    from tests.support.s3 import moto

    with moto() as found, found.in_the_environment():
        yield found
