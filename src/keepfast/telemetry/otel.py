"""Export of the metrics through OpenTelemetry: extra `tracing`, and an exporter.

The SDK's instruments would count a second time, with locks, on the hot path. Instead, at each interval all metric
families are converted to one `MetricsData` for the exporter, under their dotted names; metrics that are part of the
messaging conventions are exported under those names as well.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from keepfast.core.errors import ConfigError
from keepfast.telemetry import catalogue
from keepfast.telemetry.logs import get_logger
from keepfast.telemetry.metrics import Buckets, MetricFamily, Sample

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric, MetricsData

log = get_logger("keepfast.otel")

LAST_EXPORT_S: Final = 2.0
UNITS: Final = {"seconds": "s", "bytes": "By"}
CONSUMED: Final = catalogue.CONSUMED.dotted()
DURATION_ENDS: Final = catalogue.DURATION.name.rpartition("}")[2]


class Exporter(Protocol):
    """The methods of an exporter that are used."""

    def export(self, metrics_data: Any, timeout_millis: float = ...) -> Any: ...
    def shutdown(self, timeout_millis: float = ...) -> Any: ...


class MetricsExport:
    """Exports `families()` every `interval_s`, and a last time at `stop`, on its own thread. A failed export is logged;
    the next one follows at the usual interval.
    """

    def __init__(
        self,
        families: Callable[[], list[MetricFamily]],
        *,
        app: str,
        version: str,
        interval_s: float,
        exporter: Exporter,
    ) -> None:
        self._families = families
        self._service = {"service.name": app, "service.instance.id": f"{os.uname().nodename}-{os.getpid()}"}
        if version:
            self._service["service.version"] = version
        self._interval_s = interval_s
        self._exporter = exporter
        self._started_ns = time.time_ns()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keepfast-otel", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Export a last time, with a short timeout."""
        self._ended.set()
        self._thread.join(LAST_EXPORT_S)

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            self._export(self._interval_s)
        self._export(LAST_EXPORT_S)
        self._exporter.shutdown()

    def _export(self, timeout_s: float) -> None:
        from opentelemetry.sdk.resources import Resource

        try:
            data = metrics_data(
                self._families(),
                resource=Resource.create(self._service),
                started_ns=self._started_ns,
                now_ns=time.time_ns(),
            )
            self._exporter.export(data, timeout_millis=timeout_s * 1000)
        except Exception as error:  # noqa: BLE001 - the thread's edge: what an exporter raises must not end it
            log.sampled(40, "metrics_not_exported", now=time.monotonic(), every_s=60.0, exc=error)


class ExporterKind(NamedTuple):
    """The environment variable that selects an exporter, and the entry point group in which exporters register."""

    variable: str
    group: str


METRICS: Final = ExporterKind("OTEL_METRICS_EXPORTER", "opentelemetry_metrics_exporter")


def exporter_from(environ: Mapping[str, str]) -> Exporter:
    """The exporter of metrics that OTEL_METRICS_EXPORTER selects. Raises ConfigError if it is not installed."""
    try:
        import opentelemetry.sdk.metrics.export as _sdk  # noqa: F401 - whether it is installed
    except ImportError as error:
        raise ConfigError(
            "metrics: otel needs OpenTelemetry: install opentelemetry-sdk, and an exporter such as"
            " opentelemetry-exporter-otlp-proto-http."
        ) from error
    exporter: Exporter = load_exporter("metrics: otel", environ, METRICS)
    return exporter


def load_exporter(feature: str, environ: Mapping[str, str], kind: ExporterKind) -> Any:
    """Raises ConfigError if the selected exporter is not installed."""
    name = environ.get(kind.variable, "otlp").split(",")[0].strip() or "otlp"
    listed = entry_points(group=kind.group)
    found = [one for one in listed if one.name in (name, f"{name}_proto_http", f"{name}_proto_grpc")]
    if not found:
        known = ", ".join(sorted(one.name for one in listed)) or "none"
        raise ConfigError(
            f"{feature} has no exporter {name!r} ({kind.variable}); installed: {known}. Install one, such as"
            " opentelemetry-exporter-otlp-proto-http."
        )
    return found[0].load()()


def metrics_data(families: Sequence[MetricFamily], *, resource: Any, started_ns: int, now_ns: int) -> MetricsData:
    """All families as one export, cumulative since `started_ns`."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    metrics = [metric for family in families if family.samples for metric in _metrics(family, started_ns, now_ns)]
    scope = ScopeMetrics(InstrumentationScope("keepfast"), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metrics(family: MetricFamily, started_ns: int, now_ns: int) -> Iterator[Metric]:
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Gauge,
        Histogram,
        HistogramDataPoint,
        Metric,
        NumberDataPoint,
        Sum,
    )

    def of(name: str, unit: str, attributes: Callable[[Sample], dict[str, str]]) -> Metric:
        data: Gauge | Histogram | Sum
        cumulative = AggregationTemporality.CUMULATIVE
        if family.kind == "histogram":
            points = [
                HistogramDataPoint(
                    attributes=attributes(sample),
                    start_time_unix_nano=started_ns,
                    time_unix_nano=now_ns,
                    count=sum(sample.value.counts),
                    sum=sample.value.total,
                    bucket_counts=list(sample.value.counts),
                    explicit_bounds=family.bounds,
                    min=float("inf"),  # not recorded: as the SDK writes it then
                    max=float("-inf"),
                )
                for sample in family.samples
                if isinstance(sample.value, Buckets)
            ]
            data = Histogram(points, cumulative)
        else:
            numbers = [
                NumberDataPoint(attributes(sample), started_ns, now_ns, sample.value)
                for sample in family.samples
                if not isinstance(sample.value, Buckets)
            ]
            data = Gauge(numbers) if family.kind == "gauge" else Sum(numbers, cumulative, is_monotonic=True)
        return Metric(name, family.help, unit, data)

    yield of(family.dotted, UNITS.get(family.unit, "1"), lambda one: _labels(family, one))
    if family.dotted.endswith(DURATION_ENDS):
        yield of("messaging.process.duration", "s", lambda one: _messaging(family, one, "process"))
    elif family.dotted == CONSUMED:
        yield of("messaging.client.consumed.messages", "{message}", lambda one: _messaging(family, one, "poll"))


def _labels(family: MetricFamily, sample: Sample) -> dict[str, str]:
    return dict(zip(family.labels, sample.labels, strict=True))


def _messaging(family: MetricFamily, sample: Sample, operation: str) -> dict[str, str]:
    labels = _labels(family, sample)
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": operation,
        "messaging.consumer.group.name": labels["group"],
        "messaging.destination.name": labels["topic"],
    }
