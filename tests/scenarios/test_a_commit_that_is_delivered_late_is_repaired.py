"""P2: a connection breaks with a commit on its way, the client sends it again on another one and continues, and then
the network delivers the first copy: the broker stores it, and the position has moved backwards. It is committed again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from keepfast.testing import ExistingBroker, KafkaBroker
from keepfast.testing.pytest_plugin import TopicFactory
from tests.support.broker_client import Client, numbered
from tests.support.broker_proxy import OFFSET_COMMIT, BrokerProxy
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

GROUP = "scenario.work"


@pytest.fixture
def proxy(kafka: KafkaBroker) -> Iterator[BrokerProxy]:
    with BrokerProxy(kafka.bootstrap) as proxy:
        yield proxy


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_position_moves_back_and_is_restored_while_nothing_happens(
    kafka: KafkaBroker, topic: TopicFactory, proxy: BrokerProxy, protocol: str
) -> None:
    name, client = topic(), Client(kafka)
    app = app_for(ExistingBroker(proxy.bootstrap))

    @app.consumer(name, group_protocol=protocol)  # type: ignore[arg-type]
    def work(value: bytes) -> None: ...

    def is_at(offset: int) -> bool:
        return client.committed(GROUP, name)[0] == offset

    with RunningApp(app) as running:
        client.produce(name, numbered(5))
        wait_until(lambda: is_at(5), "the first are committed")
        [partition], renewals = running.loop.ownership, running.loop.committer.renewals
        assert renewals is not None
        wait_until(
            lambda: renewals.next_at(partition) > time.monotonic() + 60,
            "the start is committed, and nothing else is due",
        )
        proxy.keep_back(OFFSET_COMMIT)
        client.produce(name, numbered(1))
        wait_until(lambda: proxy.kept and is_at(6), "a commit is kept back, and its copy was taken")
        client.produce(name, numbered(10))
        wait_until(lambda: is_at(16), "the others are committed, too")
        proxy.deliver()
        wait_until(lambda: is_at(6), "the position has moved back")
        wait_until(lambda: is_at(16), "and is where it was")
