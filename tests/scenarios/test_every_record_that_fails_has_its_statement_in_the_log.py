"""300 records, a third fails once and a third for good, in two processes whose log is throttled: each dead letter has
its line, with the message, the place and the time it took, and of retries lines and numbers of suppressed ones add up.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.command import running
from tests.support.waiting import wait_until

APP = """
from keepfast import App, Context, RetryPolicy

app = App("shop")

@app.consumer(
    "{topic}", group="{topic}.group", storm_guard=False, retry=RetryPolicy(max_retries=1, initial_delay_ms=100)
)
def charge(value: bytes, ctx: Context) -> None:
    if ctx.offset % 3 == 1 and ctx.attempt == 1:
        raise TimeoutError("the gateway is slow")
    if ctx.offset % 3 == 2:
        raise ValueError("no stock of item 17, password=hunter2")
"""
COUNT, PARTITIONS = 300, 2


def test_each_dead_letter_has_its_line_and_counts_of_retries_add_up(
    kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path
) -> None:
    name, printed = topic(partitions=PARTITIONS), tmp_path / "printed"
    (tmp_path / "app.py").write_text(APP.format(topic=name))
    variables = {
        "KAFKA_BROKERS": kafka.bootstrap,
        "TMPDIR": str(tmp_path),
        "HEALTH_CHECK_ENABLED": "false",
        "KEEPFAST_LOG_MAX_LINES": "5",
    }
    client = Client(kafka)
    each = COUNT // PARTITIONS

    def finished() -> bool:
        return all(client.is_committed(f"{name}.group", name, each, partition) for partition in range(PARTITIONS))

    with running("run", "app:app", "--processes", "2", "--debug", cwd=tmp_path, printed=printed, **variables) as parent:
        wait_until(lambda: owners(logged(printed)) == {0, 1}, "no member is still joining: no retry begins again")
        client.produce(name, [NewRecord(b"v", partition=number % PARTITIONS) for number in range(COUNT)])
        wait_until(finished, "all are finished")
        parent.send_signal(signal.SIGTERM)
        assert parent.wait() == 0

    lines = logged(printed)
    places = {(partition, offset) for partition in range(PARTITIONS) for offset in range(each)}
    letters = of(lines, "dead_lettered")
    assert sorted((one["partition"], one["offset"]) for one in letters) == sorted(
        place for place in places if place[1] % 3 == 2
    )
    for line in letters:
        assert line["error_message"] == "no stock of item 17, password=[masked]"
        assert line["at"].startswith("app.py:")
        assert line["processing_ms"] >= 0
    retries, recovered = of(lines, "retry_scheduled"), of(lines, "retry_succeeded")
    assert 0 < len(retries) < COUNT // 3
    flaky = sum(place[1] % 3 == 1 for place in places)
    assert len(retries) + suppressed(lines, "retry_scheduled") == flaky
    assert len(recovered) + suppressed(lines, "retry_succeeded") == flaky
    ours = [line for line in lines if line["logger"] not in ("keepfast.supervisor", "keepfast.http")]
    assert {line["process"] for line in ours} == {0, 1}
    assert of(lines, "dead_lettering")[0]["traceback"][-1] == "ValueError: no stock of item 17, password=[masked]"
    assert "hunter2" not in printed.read_text()


def logged(printed: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.read_text().splitlines(keepends=True) if line.endswith("}\n")]


def owners(lines: list[dict[str, Any]]) -> set[int]:
    """The processes that have got a partition."""
    return {line["process"] for line in of(lines, "partitions_assigned") if line["partitions"]}


def of(lines: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["event"] == event]


def suppressed(lines: list[dict[str, Any]], event: str) -> int:
    return sum(line.get("suppressed", 0) for line in lines if event in (line["event"], line.get("of")))
