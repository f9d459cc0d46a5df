"""Metrics as text: OpenMetrics 1.0, and the older format of Prometheus for whoever does not ask for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

from keepfast.telemetry.families import Buckets, Exemplar, MetricFamily, Sample, merged

OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"

MAX_EXEMPLAR_CHARACTERS: Final = 128
"""Of the names and values of an exemplar's labels together, by the standard."""


def wants_open_metrics(accept: str) -> bool:
    """By the request's Accept header: whether OpenMetrics is liked at least as well as plain text."""
    best: dict[str, float] = {}
    for part in accept.split(","):
        kind, *parameters = (word.strip() for word in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
        best[kind.lower()] = max(best.get(kind.lower(), 0.0), quality)
    wanted = best.get("application/openmetrics-text", 0.0)
    return wanted > 0 and wanted >= best.get("text/plain", 0.0)


def exposition(families: Iterable[MetricFamily], *, open_metrics: bool) -> str:
    """The whole page. Raises Collision."""
    lines: list[str] = []
    for family in merged(families):
        if family.samples:
            lines.extend(_family(family, open_metrics=open_metrics))
    if open_metrics:
        lines.append("# EOF")
    return "\n".join(lines) + "\n" if lines else ""


def _family(family: MetricFamily, *, open_metrics: bool) -> Iterator[str]:
    counter = family.kind == "counter"
    head = f"{family.name}_total" if counter and not open_metrics else family.name
    yield f"# TYPE {head} {family.kind}"
    if open_metrics and family.unit:
        yield f"# UNIT {head} {family.unit}"
    yield f"# HELP {head} {_escaped_help(family.help, open_metrics=open_metrics)}"
    for sample in family.samples:
        if isinstance(sample.value, Buckets):
            yield from _histogram(family, sample, sample.value, open_metrics=open_metrics)
        else:
            name = f"{family.name}_total" if counter else family.name
            exemplar = _exemplar(sample.exemplar) if open_metrics and counter else ""
            yield f"{name}{_labels(family.labels, sample.labels)} {number(sample.value)}{exemplar}"


def _histogram(family: MetricFamily, sample: Sample, buckets: Buckets, *, open_metrics: bool) -> Iterator[str]:
    below = 0
    counts = list(buckets.counts)  # one copy: its owner goes on counting
    for index, count in enumerate(counts):
        below += count
        bound = number(float(family.bounds[index])) if index < len(family.bounds) else "+Inf"
        labels = _labels((*family.labels, "le"), (*sample.labels, bound))
        exemplar = _exemplar(buckets.exemplars.get(index)) if open_metrics else ""
        yield f"{family.name}_bucket{labels} {below}{exemplar}"
    yield f"{family.name}_count{_labels(family.labels, sample.labels)} {below}"
    yield f"{family.name}_sum{_labels(family.labels, sample.labels)} {number(float(buckets.total))}"


def _exemplar(exemplar: Exemplar | None) -> str:
    if exemplar is None or len("trace_id") + len(exemplar.trace_id) > MAX_EXEMPLAR_CHARACTERS:
        return ""
    return f" # {_labels(('trace_id',), (exemplar.trace_id,))} {number(exemplar.value)} {exemplar.at:.3f}"


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    # A lone surrogate, as a name of a class may have one, could not be encoded.
    value = value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _escaped_help(text: str, *, open_metrics: bool) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if open_metrics else text


def number(value: float) -> str:
    """As both formats write it."""
    if isinstance(value, int):
        return str(value)
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)
