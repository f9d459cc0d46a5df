"""A queue in the harness: in memory, and on a real broker as a share group."""

from __future__ import annotations

import asyncio

import pytest

from keepfast import App, Context
from keepfast.core.errors import StartError
from keepfast.testing.harness import harness
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin


def app_of(name: str) -> App:
    app = App("shop")

    @app.consumer(name, order="queue", concurrency=2, lock_s=6)
    async def work(value: dict[str, int], ctx: Context) -> None:
        if value["n"] == 1:
            raise ValueError("never")
        ctx.send("out", value, key=str(value["n"]))

    return app


async def play(name: str, broker: str | None = None) -> None:
    async with harness(app_of(name), kafka=broker, topics=["out"]) as h:
        for number in range(4):
            await h.send(name, {"n": number})
        assert [letter.error_type for letter in h.dead] == ["ValueError"]
        assert len(h.processed) == 3
        assert len(await h.topic("out")) == 3


def test_a_queue_runs_in_memory() -> None:
    asyncio.run(play("work.v1"))


def test_a_queue_runs_on_a_real_broker_with_topics_of_its_own(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name = topic()
    asyncio.run(play(name, kafka.bootstrap))
    with pytest.raises(StartError, match="test it with a topic of its own"):
        asyncio.run(play(name, kafka.bootstrap))
