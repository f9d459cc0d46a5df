"""The metrics, from their catalogue."""

from __future__ import annotations

from collections.abc import Iterable

from keepfast.telemetry.catalogue import CATALOGUE, TOPIC_METRICS
from keepfast.telemetry.metrics import Metric
from tools.reference.markdown import MADE, code, codes, table

INTRODUCTION = """# Metrics

`/metrics` on the port of [`health`](settings.md#health), in the text format of Prometheus, or in OpenMetrics if it is
asked for. A dotted name is written with underscores there, counters end in `_total`, and a unit stands at the end.
Metrics that you register with prometheus-client are on the same page. With `--processes` there is one page for all
processes; each series has the label `process`.

Labels are bounded: topics, partitions and groups are configured, `error_type` has a limit (then `other`),
`retry_attempt` goes from 1 to 9 (then `10+`). No label ever holds an offset, a key or the text of an error.
"""
_DOMAIN, _ENTITY = "orders", "payment"


def page() -> str:
    others = [metric for metric in CATALOGUE if metric not in TOPIC_METRICS]
    return "\n".join(
        [
            MADE + INTRODUCTION,
            "## Of each topic\n",
            "`{domain}` and `{entity}` are those of the topic: of `orders.payment.v1`, `orders` and `payment`.\n",
            _table(TOPIC_METRICS),
            "## Of lag and letters, under names that other dashboards have\n",
            _table(metric for metric in others if not metric.name.startswith(("keepfast.", "process.", "python."))),
            "## Of the engine\n",
            _table(metric for metric in others if metric.name.startswith("keepfast.")),
            "## Of the process\n",
            _table(metric for metric in others if metric.name.startswith(("process.", "python."))),
        ]
    )


def _table(metrics: Iterable[Metric]) -> str:
    rows = [(code(one.name), code(in_prometheus(one)), one.kind, codes(one.labels), one.help) for one in metrics]
    return table(("name", "in Prometheus", "kind", "labels", "says"), rows)


def in_prometheus(metric: Metric) -> str:
    name = metric.family(domain=_DOMAIN, entity=_ENTITY)
    return f"{name}_total" if metric.kind == "counter" else name
