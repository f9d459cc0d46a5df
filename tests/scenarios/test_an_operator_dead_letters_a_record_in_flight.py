"""A record that waits for its next attempt, and one whose handler hangs: an operator dead-letters each, and what was
behind it continues. The control API shows what is in flight: error, stack, key and queue, and who paused what.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from keepfast import Context, RetryPolicy
from keepfast.engine.control import key_hash
from keepfast.http.server import HttpRequest
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import wait_until


def call(running: RunningApp, path: str, **body: Any) -> tuple[int, Any]:
    method = "POST" if body else "GET"
    answer = running.local.api(HttpRequest(method, f"/api/{path}", body=json.dumps(body).encode() if body else b""))
    return answer.status, json.loads(answer.body)


def test_an_operator_dead_letters_a_waiting_and_a_hanging_record(kafka: TopicAdmin, topic: TopicFactory) -> None:
    name, client, app = topic(), Client(kafka), app_for(kafka)
    seen: list[bytes] = []
    hang = threading.Event()

    @app.consumer(name, order="key", concurrency=4, retry=RetryPolicy(initial_delay_ms=600_000, max_delay_ms=600_000))
    def work(value: bytes, ctx: Context) -> None:
        if value == b"fails":
            raise ConnectionError("no route to the carrier")
        if value == b"hangs":
            hang.wait(120)
        seen.append(value)

    def lanes(state: str) -> list[Any]:
        _, detail = call(running, "consumers/work")
        return [one for one in detail["lanes"] if one["state"] == state]

    with RunningApp(app) as running:
        running.wait_assigned()
        client.produce(
            name,
            [
                NewRecord(value, key)
                for key, value in ((b"a", b"fails"), (b"a", b"behind a"), (b"b", b"hangs"), (b"b", b"behind b"))
            ],
        )
        wait_until(lambda: lanes("waiting") and lanes("running"), "both are in flight")
        [waiting], [running_lane] = lanes("waiting"), lanes("running")
        assert (waiting["error_type"], waiting["queued"]) == ("ConnectionError", 1)
        assert "no route to the carrier" in waiting["error"]
        assert waiting["key_hash"] == key_hash(b"a")
        assert any("work" in place for place in running_lane["stack"]), "where the handler is now"

        status, paused = call(running, "consumers/work/pause", topic=name, partition=0, by="ada")
        assert status == 200, paused
        _, detail = call(running, "consumers/work")
        assert detail["state"]["partitions"][0]["held_by"] == "ada"
        call(running, "consumers/work/resume", by="ada")

        def dead_letter(lane: Any, **more: Any) -> tuple[int, Any]:
            where = {"topic": name, "partition": lane["partition"], "offset": lane["offset"]}
            return call(running, "consumers/work/dead-letter", **where, **more, by="ada")

        status, refused = dead_letter(running_lane, unless_running=True)
        assert (status, "Look again" in refused["error"]) == (409, True), "it is not stuck"
        for lane, more in ((waiting, {"unless_running": True}), (running_lane, {})):
            status, done = dead_letter(lane, **more)
            assert status == 200, done
        wait_until(lambda: {b"behind a", b"behind b"} <= set(seen), "what was behind them continues")
        _, gone = call(running, "consumers/work/dead-letter", topic=name, partition=0, offset=99)
        assert "not in flight" in gone["error"]
        wait_until(lambda: running.loop.counts.total().dead_lettered == 2, "two letters")
        _, listed = call(running, "events")
        texts = [one["text"] for one in listed["events"]]
        assert any("is held by ada" in text for text in texts)
        assert any("dead-lettered by ada" in text for text in texts)
        hang.set()
