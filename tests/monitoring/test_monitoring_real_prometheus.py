"""Prometheus scrapes an app on a broker; every query of its dashboard finds data, and its rules are evaluated."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from keepfast import App, RetryPolicy
from keepfast.desk import Desk, DeskOptions
from keepfast.engine import counts
from keepfast.monitoring import alerts_of, dashboard_of, rules_file
from keepfast.monitoring.dashboard import OVER, queries_of
from keepfast.testing import KafkaBroker
from keepfast.testing.pytest_plugin import TopicFactory
from tests.monitoring.prometheus import prometheus
from tests.support.broker_client import Client
from tests.support.members import connection
from tests.support.running_app import RunningApp
from tests.support.waiting import happens, wait_until
from tests.support.web import web_of

pytestmark = pytest.mark.prometheus


def test_every_query_of_the_dashboard_finds_data_and_a_letter_raises_its_alert(
    kafka: KafkaBroker, topic: TopicFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "ASK_S", 1.0)
    name, desk_topic = topic(), topic(suffix=".desk")
    app = App(
        "watched",
        kafka={"brokers": kafka.bootstrap},
        spool=f"file://{tmp_path / 'spool'}",
        desk={"topic": desk_topic, "count_every_s": 1},
        state={"dir": str(tmp_path)},
    )
    tried: set[str] = set()

    @app.consumer(
        name,
        domain="orders",
        entity="payment",
        retry=RetryPolicy(max_retries=1, initial_delay_ms=10, jitter=False),
        dead_letter=f"{name}.dlq",
        alerts="financial",
    )
    def charge(payment: dict[str, Any]) -> None:
        if payment["fate"] == "bad":
            raise ValueError("known")
        if payment["fate"] not in tried and payment["fate"].startswith("flaky"):
            tried.add(payment["fate"])
            raise TimeoutError

    client = Client(kafka)
    with RunningApp(app) as running, web_of(running, token="t", counts=True) as web:
        running.wait_assigned(1)
        settings = app.settings(environ={}, cwd=Path("/nonexistent"))
        rules = tmp_path / "rules.yml"
        rules.write_text(rules_file(alerts_of(settings), target="app:app"))
        queries = [(title, query.replace(OVER, "30s")) for title, query in queries_of(dashboard_of(settings))]
        with prometheus(tmp_path, target=urlsplit(web.url).netloc, rules=rules) as found:
            # Twice, a scrape apart: a rate needs two values of a series, and that of an error begins with the error.
            for turn in range(2):
                fates = ["good", "bad", f"flaky-{turn}"]
                client.produce(name, [json.dumps({"fate": fate}).encode() for fate in fates])
                seen = f'sum(orders_payment_processed_total{{topic="{name}"}}) == {3 * (turn + 1)}'
                assert happens(partial(found.query, seen), within_s=30), "Prometheus has seen these records"
            web.post("/api/consumers/charge/pause")

            def missing() -> list[str]:
                return [title for title, query in queries if not found.query(query)]

            def health() -> dict[str, str]:
                return {one["name"]: one["health"] for group in found.ask("rules")["groups"] for one in group["rules"]}

            happens(lambda: not missing(), within_s=60)
            assert missing() == []
            wait_until(lambda: set(health().values()) == {"ok"}, "all rules were evaluated without an error")
            assert set(health()) == {one.name for alerts in alerts_of(settings).values() for one in alerts}
            firing = 'ALERTS{alertname="KeepfastDeadLetters",alertstate="firing",severity="warning"}'
            wait_until(lambda: found.query(firing), "the alert of dead letters fires")
            options = DeskOptions(topics=(f"{name}.dlq",), by="ada", desk_topic=desk_topic)
            desk = Desk(connection(kafka.bootstrap), options)
            desk.refresh()
            assert desk.mark([case.id for case in desk.cases().cases], "discarded") == 2
            desk.close()
            wait_until(lambda: not found.query(firing), "the alert clears when all are resolved")
