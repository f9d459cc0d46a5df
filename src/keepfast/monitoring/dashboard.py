"""A dashboard for Grafana: a row for the app, one for each consumer, one for each topic."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

from keepfast.monitoring.promql import TopicSeries, series
from keepfast.settings import ConsumerSettings, Settings
from keepfast.telemetry import catalogue as cat
from keepfast.telemetry.metrics import Metric

WIDTH: Final = 24
COLUMNS: Final = 3
HEIGHT: Final = 8
OVER: Final = "$__rate_interval"
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

Panel = dict[str, Any]
Target = tuple[str, str]
"""A query and the legend of its series."""


def dashboard_of(settings: Settings) -> dict[str, Any]:
    """The JSON model that Grafana imports."""
    rows: list[tuple[str, list[Panel]]] = [(f"{settings.app.name}: processes", list(_process(settings.app.name)))]
    for consumer in settings.consumers.values():
        rows.append((f"{consumer.name}: group {consumer.group}", list(_consumer(consumer))))
        rows += [(f"{consumer.name}: {one}", list(_topic(TopicSeries(consumer, one)))) for one in consumer.topics]
    return {
        "title": f"keepfast: {settings.app.name}",
        # The same app keeps its dashboard when it is imported again.
        "uid": "keepfast-" + hashlib.sha256(settings.app.name.encode()).hexdigest()[:16],
        "tags": ["keepfast", "kafka"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]
        },
        "panels": list(_placed(rows)),
    }


def queries_of(dashboard: dict[str, Any]) -> list[tuple[str, str]]:
    """Panel title and query of all panels."""
    return [(panel["title"], one["expr"]) for panel in dashboard["panels"] for one in panel.get("targets", ())]


def _placed(rows: Iterable[tuple[str, list[Panel]]]) -> Iterator[Panel]:
    number, y = 0, 0
    for title, panels in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": y},
        }
        y += 1
        for index, panel in enumerate(panels):
            number += 1
            column = index % COLUMNS
            width = WIDTH // COLUMNS
            place = {"h": HEIGHT, "w": width, "x": column * width, "y": y + index // COLUMNS * HEIGHT}
            yield {**panel, "id": number, "gridPos": place}
        y += -(-len(panels) // COLUMNS) * HEIGHT


def _panel(title: str, *targets: Target, unit: str = "short", help_of: Metric | None = None) -> Panel:
    return {
        "type": "timeseries",
        "title": title,
        "description": help_of.help if help_of else "",
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for index, (query, legend) in enumerate(targets)
        ],
    }


def _topic(of: TopicSeries) -> Iterator[Panel]:
    def rate(metric: Metric, by: str = "group, topic", part: str = "") -> str:
        return of.rate(metric, by=by, over=OVER, part=part)

    yield _panel("Processed per second", (rate(cat.PROCESSED, "status"), "{{status}}"), help_of=cat.PROCESSED)
    yield _panel(
        "Handler duration",
        *(
            (f"histogram_quantile({share}, {rate(cat.DURATION, 'le', 'bucket')})", f"p{share * 100:g}")
            for share in (0.5, 0.95, 0.99)
        ),
        unit="s",
        help_of=cat.DURATION,
    )
    yield _panel(
        "Lag per partition",
        (f"max by (partition) ({of.of(cat.BEHIND)})", "{{partition}}: behind"),
        (f"max by (partition) ({of.of(cat.FINISHED_ABOVE)})", "{{partition}}: finished above a gap"),
        help_of=cat.LAG,
    )
    yield _panel(
        "Age of the oldest record that is not finished",
        (f"max by (partition) ({of.of(cat.LAG_AGE)})", "{{partition}}"),
        unit="s",
        help_of=cat.LAG_AGE,
    )
    by_error = "error_type, error_classification"
    legend = "{{error_type}} ({{error_classification}})"
    yield _panel("Errors per second", (rate(cat.ERRORS, by_error), legend), help_of=cat.ERRORS)
    yield _panel("Retries per second", (rate(cat.RETRIES, "retry_attempt"), "{{retry_attempt}}"), help_of=cat.RETRIES)
    yield _panel(
        "Dead letters",
        (f"sum by (error_type) (increase({of.of(cat.DEAD_LETTERS)}[1h]))", "{{error_type}}, last hour"),
        (rate(cat.PUBLISH_FAILURES), "failures to publish per second"),
        help_of=cat.DEAD_LETTERS,
    )
    yield _panel(
        "Unresolved dead letters",
        (f"max by (topic) ({of.of(cat.UNRESOLVED)})", "{{topic}}"),
        help_of=cat.UNRESOLVED,
    )
    held = series(cat.DLQ_DEPTH, group=of.consumer.group, dead_letter_topic=of.dead_letter_topic)
    yield _panel(
        "Letters in the dead-letter topic",
        (f"max by (dead_letter_topic) ({held})", "{{dead_letter_topic}}"),
        help_of=cat.DLQ_DEPTH,
    )


def _consumer(consumer: ConsumerSettings) -> Iterator[Panel]:
    group = consumer.group

    def summed(*metrics: tuple[Metric, str]) -> list[Target]:
        return [(f"sum by (group) ({series(metric, group=group)})", legend) for metric, legend in metrics]

    def worst(metric: Metric) -> str:
        return f"max by (group) ({series(metric, group=group)})"

    yield _panel(
        "Records under way",
        *summed((cat.IN_FLIGHT, "in flight"), (cat.WAITING, "waiting"), (cat.SETTLING, "settling")),
        *summed((cat.REFUSED, "refused")),
    )
    yield _panel("Worst lag", (worst(cat.LAG_MAX), "records"), help_of=cat.LAG_MAX)
    yield _panel(
        "Members and partitions",
        *summed((cat.MEMBER, "members"), (cat.PAUSED, "paused partitions"), (cat.STUCK, "stuck partitions")),
        *summed((cat.NOT_FETCHED, "partitions not fetched")),
        (f"sum by (topic) ({series(cat.ASSIGNED, group=group)})", "{{topic}}"),
    )
    rebalances = series(cat.REBALANCES, group=group)
    yield _panel(
        "Rebalances in an hour", (f"max by (event) (increase({rebalances}[1h]))", "{{event}}"), help_of=cat.REBALANCES
    )
    yield _panel(
        "Commits per second",
        *(
            (f"sum by (group) (rate({series(metric, group=group)}[{OVER}]))", legend)
            for metric, legend in ((cat.COMMITS, "sent"), (cat.COMMIT_FAILURES, "failed"))
        ),
    )
    yield _panel(
        "Guards",
        (worst(cat.BREAKER_OPEN), "breaker open"),
        (worst(cat.STORM_HELD), "storm guard tripped"),
        *summed((cat.STUCK_HANDLERS, "handlers that do not end"), (cat.ABANDONED, "abandoned threads")),
        (f"sum by (group) (increase({series(cat.CLIENTS_REPLACED, group=group)}[1h]))", "clients replaced, last hour"),
        (f"max by (hold) ({series(cat.HOLD, group=group)})", "held: {{hold}}"),
    )


def _process(app: str) -> Iterator[Panel]:
    """These series have no label for the app: join them with keepfast_app_info of the same process."""

    def own(query: str) -> str:
        return f"{query} and on (job, instance) {series(cat.INFO, app=app)}"

    each = "{{instance}}"
    yield _panel("CPU", (own(f"rate({series(cat.CPU)}[{OVER}])"), each), unit="percentunit", help_of=cat.CPU)
    yield _panel("Memory", (own(series(cat.MEMORY)), each), unit="bytes", help_of=cat.MEMORY)
    yield _panel("Threads", (own(series(cat.OS_THREADS)), each), help_of=cat.OS_THREADS)
    yield _panel(
        "Network",
        (own(f"rate({series(cat.NETWORK_RECEIVED)}[{OVER}])"), f"{each} received"),
        (own(f"rate({series(cat.NETWORK_SENT)}[{OVER}])"), f"{each} sent"),
        unit="Bps",
    )
    yield _panel("Shutdown", (own(series(cat.SHUTDOWN)), each), unit="s", help_of=cat.SHUTDOWN)
    yield _panel(
        "Spool",
        (own(series(cat.SPOOL_LETTERS)), f"{each} letters"),
        (own(series(cat.SPOOL_STUCK)), f"{each} stuck"),
        help_of=cat.SPOOL_LETTERS,
    )
