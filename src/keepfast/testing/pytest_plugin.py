"""Fixtures for tests against a real broker, in keepfast's own tests and in users' projects.

    def test_a_payment_is_charged(kafka, topic):
        payments = topic(partitions=4)
        ...                                    # clients use kafka.bootstrap

kafka   one broker for the whole session, started when the first test asks for it. With KEEPFAST_TEST_BOOTSTRAP set it
        is the broker at that address instead, on which topics can be created, but which cannot be killed or paused.
topic   creates topics with unique names, derived from the test's name; they exist until the broker ends, or are
        deleted after the test on a broker that is not ours.

`pytest --keepfast-kafka` lets every `keepfast.testing.harness` run on that broker instead of in memory.

Nothing is imported until a fixture is used: the plugin costs other tests nothing.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from keepfast.testing.broker import KafkaBroker
    from keepfast.testing.topics import ExistingBroker, TopicAdmin

BOOTSTRAP_VARIABLE = "KEEPFAST_TEST_BOOTSTRAP"
_NAME_LENGTH = 80  # Kafka takes 249 characters; what is derived from a topic's name (`.dlq`, `.retry.30s`) must fit too


HARNESS_VARIABLE = "KEEPFAST_TEST_KAFKA"  # what `harness` looks at


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("keepfast")
    group.addoption("--keepfast-kafka", action="store_true", help="Run harnesses on a real broker, not in memory.")


@pytest.fixture(scope="session", autouse=True)
def _harness_broker(request: pytest.FixtureRequest) -> Iterator[None]:
    """With --keepfast-kafka: gives harnesses the address of the session's broker."""
    if not request.config.getoption("--keepfast-kafka"):
        yield
        return
    os.environ[HARNESS_VARIABLE] = request.getfixturevalue("kafka").bootstrap
    yield
    del os.environ[HARNESS_VARIABLE]


class TopicFactory:
    """Creates topics for one test: `topic(partitions=4, config={…})` returns the name of a new one."""

    def __init__(self, broker: TopicAdmin, test_name: str) -> None:
        self._broker = broker
        self._stem = re.sub(r"[^a-zA-Z0-9_-]+", "-", test_name).strip("-")[:_NAME_LENGTH]
        self.made: list[str] = []

    def __call__(self, *, partitions: int = 1, config: Mapping[str, str] | None = None, suffix: str = "") -> str:
        """Blocks until the topic is ready. `suffix` ends the name, as in `suffix=".dlq"`."""
        name = self._broker.create_topic(
            f"{self._stem}.{uuid.uuid4().hex[:8]}{suffix}", partitions=partitions, config=config
        )
        self.made.append(name)
        return name


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker | ExistingBroker]:
    """A started broker with one node; `kafka.bootstrap` is its address."""
    address = os.environ.get(BOOTSTRAP_VARIABLE)
    if address:
        from keepfast.testing.topics import ExistingBroker

        yield ExistingBroker(address)
        return
    from keepfast.testing.broker import KafkaBroker

    with KafkaBroker() as broker:
        yield broker


@pytest.fixture
def topic(kafka: KafkaBroker | ExistingBroker, request: pytest.FixtureRequest) -> Iterator[TopicFactory]:
    """Creates topics: `topic(partitions=4)` returns the name of a new one."""
    factory = TopicFactory(kafka, request.node.name)
    yield factory
    if os.environ.get(BOOTSTRAP_VARIABLE):
        for name in factory.made:
            kafka.delete_topic(name)
