"""`--processes 2`: one endpoint, in the supervisor, with the series of both children, their health and controls."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

from click.testing import CliRunner

from keepfast.cli import main
from keepfast.engine.flight_recorder import default_directory
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.command import running
from tests.support.waiting import wait_until
from tests.support.web import Web

APP = """
from keepfast import App
from prometheus_client import Counter

app = App("shop")
seen = Counter("shop_orders_seen", "Of the user's own.")

@app.consumer("{topic}", domain="orders", entity="payment", group="{topic}.group")
def charge(value: bytes) -> None:
    seen.inc()
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def series(web: Web, name: str, label: str) -> dict[str, float]:
    return {one.labels[label]: one.value for one in web.samples().get(name, {}).values()}


def is_up(web: Web) -> bool:
    try:
        return web.get("/health/ready").status == 200
    except OSError:
        return False


def test_metrics_health_and_commands_of_all_children_come_through_the_supervisor(
    kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path
) -> None:
    name, port = topic(partitions=2), free_port()
    (tmp_path / "app.py").write_text(APP.format(topic=name))
    variables = {
        "KAFKA_BROKERS": kafka.bootstrap,
        "HEALTH_CHECK_ENABLED": "true",
        "HEALTH_CHECK_PORT": str(port),
        "KEEPFAST_CONTROL_TOKEN": "t",
        "TMPDIR": str(tmp_path),
    }
    web, printed = Web(f"http://127.0.0.1:{port}", "t"), tmp_path / "printed"
    with running("run", "app:app", "--processes", "2", cwd=tmp_path, printed=printed, **variables) as parent:
        wait_until(lambda: is_up(web), "both children are ready")
        Client(kafka).produce(name, [NewRecord(b"v", partition=number % 2) for number in range(10)])
        wait_until(lambda: sum(_success(web).values()) == 10, "all ten are counted")
        assert series(web, "keepfast_process_up", "process") == {"0": 1, "1": 1}
        assert series(web, "shop_orders_seen_total", "process") == _success(web), "metrics of the user's own"
        assert set(series(web, "process_resident_memory_bytes", "process")) == {"0", "1", "supervisor"}
        assert set(web.get("/health").json["consumers"]) == {"charge@0", "charge@1"}
        state = web.get("/api/state").json
        assert {key: one["phase"] for key, one in state["consumers"].items()} == {
            "charge@0": "running",
            "charge@1": "running",
        }

        several = web.get("/api/consumers/charge")
        assert (several.status, "charge@0, charge@1" in several.json["error"]) == (409, True)
        assert len(web.get("/api/consumers/charge@1").json["state"]["partitions"]) == 1
        shown = CliRunner().invoke(main, ["ctl", "state", "charge", "--json", "--url", web.url])
        assert sorted(
            json.loads(line)["state"]["partitions"][0]["partition"] for line in shown.stdout.splitlines()
        ) == [
            0,
            1,
        ]

        target = {"topic": name, "partition": 1, "to": 2}
        assert Web(web.url).post("/api/consumers/charge/seek", target).status == 401
        sought = web.post("/api/consumers/charge/seek", target).json
        assert (sought["partition"], sought["position"], sought["to"], sought["repeats"]) == (1, 5, 2, 3), sought
        wait_until(lambda: sum(_success(web).values()) == 13, "three are processed again, by the process that has them")
        nobody = web.post("/api/consumers/charge/seek", target | {"partition": 7})
        assert (nobody.status, "No member of the group" in nobody.json["error"]) == (409, True), nobody.json
        positions = web.get("/api/consumers/charge/position").json
        assert [(one["partition"], one["position"]) for one in positions["partitions"]] == [(0, 5), (1, 5)]

        assert Web(web.url).post("/api/consumers/charge/pause").status == 401, "the children look at the token"
        assert web.post("/api/consumers/charge/pause").json["changed"] == 2
        assert web.post("/api/consumers/charge@1/resume").json["changed"] == 1
        wait_until(lambda: _paused(web) == ["charge@0"], "one of them continues")

        victim = next(iter(_children(parent.pid)))
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: web.get("/health").codes() >= {"process_away"}, "the dead one is missed")
        assert web.get("/health/live").status == 200
        parent.send_signal(signal.SIGTERM)
        assert parent.wait() == 0
    left = {path.name for path in tmp_path.glob("keepfast-*")}
    assert left <= {default_directory().name}, "only the state directory outlives the processes"


def _success(web: Web) -> dict[str, float]:
    found = web.samples().get("orders_payment_processed_total", {}).values()
    return {one.labels["process"]: one.value for one in found if one.labels["status"] == "success"}


def _paused(web: Web) -> list[str]:
    return [reason["consumer"] for reason in web.get("/health").json["reasons"] if reason["code"] == "paused"]


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
