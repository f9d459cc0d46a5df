"""A task or a callback that an async handler started raises SystemExit or KeyboardInterrupt: that is Halt. The app
drains with exit code 4, what is in flight is finished and committed, and health says why.
"""

from __future__ import annotations

import asyncio
import sys

import pytest

from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until

GROUP = "scenario.work"


async def leave(how: str) -> None:
    if how == "interrupt":
        raise KeyboardInterrupt
    sys.exit(3)


@pytest.mark.parametrize("how", ["awaited", "interrupt", "on its own", "callback"])
def test_an_exit_in_a_task_that_a_handler_started_halts_the_app(
    kafka: TopicAdmin, topic: TopicFactory, how: str
) -> None:
    name, client, app = topic(partitions=2), Client(kafka), app_for(kafka)
    seen: list[bytes] = []
    tasks: list[asyncio.Task[None]] = []
    go = asyncio.Event()

    @app.consumer(name, name="work")
    async def work(value: bytes) -> None:
        seen.append(value)
        if value == b"in flight":
            await go.wait()
        elif how == "callback":
            asyncio.get_running_loop().call_soon(sys.exit, 3)
            await asyncio.sleep(1)
        elif how == "on its own":
            tasks.append(asyncio.create_task(leave(how)))
            await asyncio.sleep(1)
        else:
            await asyncio.gather(leave(how), asyncio.sleep(1))

    client.produce(name, [NewRecord(b"in flight", partition=1)])
    with RunningApp(app, code=4) as running:
        wait_until(lambda: seen == [b"in flight"], "a record is in flight")
        client.produce(name, [NewRecord(b"exits", partition=0), NewRecord(b"behind", partition=0)])
        wait_until(lambda: any(one.code == "halted" for one in running.health.reasons), "health says so")
        [reason] = [one for one in running.health.reasons if one.code == "halted"]
        assert ("KeyboardInterrupt" if how == "interrupt" else "SystemExit") in reason.text
        assert reason.level == "failing"
        running.in_event_loop(go.set)
        wait_until(lambda: running.ended, "it has drained")
    assert client.committed(GROUP, name, 1)[0] == 1, "what was in flight is finished"
    assert client.committed(GROUP, name, 0)[0] in (None, 0, 1)
    assert seen.count(b"exits") == 1
    assert b"behind" not in seen, "nothing new has started"
