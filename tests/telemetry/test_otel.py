"""What an exporter of OpenTelemetry is handed: the counts that there are, under our names and the conventions'."""

from __future__ import annotations

import threading
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import Histogram, MetricsData, Sum

from keepfast.core.errors import ConfigError
from keepfast.telemetry import catalogue, otel
from keepfast.telemetry.metrics import Buckets, MetricFamily, Sample
from keepfast.telemetry.otel import MetricsExport, exporter_from
from tests.support.waiting import DEADLINE_S


class Collecting:
    """An exporter that keeps what it gets; the first time it fails."""

    def __init__(self) -> None:
        self.got: list[MetricsData] = []
        self.calls = 0
        self.enough = threading.Event()
        self.closed = False

    def export(self, metrics_data: Any, timeout_millis: float = 0) -> None:
        self.calls += 1
        if self.calls == 1:
            raise ConnectionError
        self.got.append(metrics_data)
        self.enough.set()

    def shutdown(self, timeout_millis: float = 0) -> None:
        self.closed = True


def families() -> list[MetricFamily]:
    counts = [0] * 21
    counts[2] = 3
    return [
        MetricFamily.of(
            catalogue.DURATION,
            [Sample(("g", "orders.payment.v1"), Buckets(counts, 0.25))],
            domain="orders",
            entity="payment",
        ),
        MetricFamily.of(catalogue.CONSUMED, [Sample(("g", "orders.payment.v1"), 7)]),
        MetricFamily.of(catalogue.LAG, [Sample(("g", "orders.payment.v1", "0"), 17)]),
        MetricFamily.of(catalogue.HOLD, []),
    ]


def test_an_exporter_gets_all_of_it_again_and_again_and_once_more_at_the_end() -> None:
    exporter = Collecting()
    exporting = MetricsExport(families, app="shop", version="1.2", interval_s=0.05, exporter=exporter)
    exporting.start()
    assert exporter.enough.wait(DEADLINE_S)
    exporting.stop()
    assert exporter.closed
    [of_resource] = exporter.got[-1].resource_metrics
    assert of_resource.resource.attributes["service.name"] == "shop"
    assert of_resource.resource.attributes["service.version"] == "1.2"
    found = {metric.name: metric for metric in of_resource.scope_metrics[0].metrics}
    assert set(found) == {
        "orders.payment.processing.duration",
        "messaging.process.duration",
        "kafka.consumer.records.consumed",
        "messaging.client.consumed.messages",
        "kafka.consumer.lag",
    }
    own = {
        "messaging.system": "kafka",
        "messaging.consumer.group.name": "g",
        "messaging.destination.name": "orders.payment.v1",
    }
    duration = found["messaging.process.duration"]
    assert isinstance(duration.data, Histogram)
    [point] = duration.data.data_points
    assert point.attributes == own | {"messaging.operation.name": "process"}
    assert (point.count, point.sum, point.bucket_counts[2], duration.unit) == (3, 0.25, 3, "s")
    consumed = found["messaging.client.consumed.messages"]
    assert isinstance(consumed.data, Sum)
    assert (consumed.data.is_monotonic, consumed.data.data_points[0].value, consumed.unit) == (True, 7, "{message}")
    assert found["kafka.consumer.lag"].data.data_points[0].attributes == {
        "group": "g",
        "topic": "orders.payment.v1",
        "partition": "0",
    }


def test_the_exporter_is_the_one_that_the_variable_names(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = EntryPoint("mine", f"{Collecting.__module__}:Collecting", otel.METRICS.group)
    monkeypatch.setattr(otel, "entry_points", lambda group: [mine])
    monkeypatch.setattr(EntryPoint, "load", lambda _: Collecting)
    assert isinstance(exporter_from({"OTEL_METRICS_EXPORTER": "mine"}), Collecting)
    with pytest.raises(ConfigError, match=r"no exporter 'otlp' .*installed: mine.*opentelemetry-exporter-otlp"):
        exporter_from({})
