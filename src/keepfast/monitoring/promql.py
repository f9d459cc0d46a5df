"""PromQL selectors for the metrics of the catalogue, under the names that they have in Prometheus."""

from __future__ import annotations

from dataclasses import dataclass

from keepfast.settings import ConsumerSettings
from keepfast.telemetry.metrics import Metric


def quoted(text: str) -> str:
    """A PromQL string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def series(metric: Metric, *, domain: str = "", entity: str = "", part: str = "", **labels: str) -> str:
    """A selector of series. `part`: `bucket`, `count` or `sum` of a histogram."""
    name = metric.family(domain=domain, entity=entity)
    if metric.kind == "counter":
        name += "_total"
    elif part:
        name += f"_{part}"
    unknown = set(labels) - set(metric.labels)
    if unknown:
        raise ValueError(f"{metric.name} has no label {', '.join(sorted(unknown))}")
    return name + ("{" + ",".join(f"{key}={quoted(value)}" for key, value in labels.items()) + "}" if labels else "")


@dataclass(frozen=True, slots=True)
class TopicSeries:
    """The series of one topic of one consumer."""

    consumer: ConsumerSettings
    topic: str

    @property
    def dead_letter_topic(self) -> str:
        return self.consumer.names[self.topic].dead_letter_topic

    def of(self, metric: Metric, *, part: str = "", **labels: str) -> str:
        names = self.consumer.names[self.topic]
        return series(
            metric,
            domain=names.domain,
            entity=names.entity,
            part=part,
            **labels,
            group=self.consumer.group,
            topic=self.topic,
        )

    def rate(self, metric: Metric, *, by: str = "group, topic", over: str = "5m", part: str = "") -> str:
        """The rate per second, summed over all processes."""
        return f"sum by ({by}) (rate({self.of(metric, part=part)}[{over}]))"
