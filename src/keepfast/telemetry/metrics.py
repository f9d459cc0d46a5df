"""How metrics are counted and defined, and their values at one moment.

A counter is a plain integer that one thread owns; samples are made from it only for a scrape or an export.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

# -- counting

BOUNDS_S = (
    5e-6, 25e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0, 60.0,
)  # fmt: skip
"""Upper bounds of the buckets of handler durations, in seconds; one more bucket counts longer ones."""

DELAY_BOUNDS_S = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 21_600.0, 86_400.0)
"""Upper bounds of the buckets of retry delays, in seconds: from retries in place to the longest retry topic."""


class Tally:
    """A histogram of durations. Owner: the thread of a worker or a loop; other threads may read slightly old values."""

    __slots__ = ("counts", "total_s")

    def __init__(self, bounds_s: tuple[float, ...] = BOUNDS_S) -> None:
        self.counts = [0] * (len(bounds_s) + 1)
        self.total_s = 0.0

    def add(self, value_s: float, bounds_s: tuple[float, ...]) -> None:
        """Count one duration; `bounds_s` are the bounds of the constructor. The hot path writes `counts` directly."""
        self.counts[bisect_left(bounds_s, value_s)] += 1
        self.total_s += value_s


class Tallies(dict[str, Tally]):
    """The tallies of one worker, by topic. Another thread must copy the values first: the worker may add a topic."""

    __slots__ = ()

    def __missing__(self, topic: str) -> Tally:
        tally = self[topic] = Tally()
        return tally


# -- definitions and values

Kind = Literal["counter", "gauge", "histogram"]

_NOT_IN_A_NAME: Final = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """The definition of a metric. `name` is dotted; `{domain}` and `{entity}` in it stand for those of a topic."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    bounds: tuple[float, ...] = ()
    """Upper bounds of the buckets of a histogram, without the last, infinite one."""

    def dotted(self, *, domain: str = "", entity: str = "") -> str:
        return self.name.replace("{domain}", domain).replace("{entity}", entity)

    def family(self, *, domain: str = "", entity: str = "") -> str:
        """The family name in Prometheus: without `_total`, with the unit."""
        return exposed(self.dotted(domain=domain, entity=entity), unit=self.unit)


def exposed(dotted: str, *, unit: str = "") -> str:
    """A dotted name in the syntax of Prometheus: letters, digits and underscores, with the unit at the end."""
    name = _NOT_IN_A_NAME.sub("_", dotted)
    if name[:1].isdigit():
        name = f"_{name}"
    return name if not unit or name.endswith(f"_{unit}") else f"{name}_{unit}"


class Exemplar(msgspec.Struct, frozen=True):
    """An example of what was counted, by its trace. `at` is wall-clock time."""

    trace_id: str
    value: float
    at: float


class Buckets(msgspec.Struct, frozen=True):
    """The value of a histogram: the count of each bucket (not cumulative) and the sum of all values."""

    counts: Sequence[int]
    total: float
    exemplars: dict[int, Exemplar] = {}


class Sample(msgspec.Struct, frozen=True):
    """One series: its label values, in the order of the family's labels, and its value."""

    labels: tuple[str, ...]
    value: int | float | Buckets
    exemplar: Exemplar | None = None


class MetricFamily(msgspec.Struct):
    """All series of one name. `dotted` is the name that `name` was made from; it serves to detect collisions."""

    name: str
    dotted: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    unit: str
    bounds: tuple[float, ...]
    samples: list[Sample]

    @classmethod
    def of(cls, metric: Metric, samples: Iterable[Sample], *, domain: str = "", entity: str = "") -> MetricFamily:
        return cls(
            name=metric.family(domain=domain, entity=entity),
            dotted=metric.dotted(domain=domain, entity=entity),
            kind=metric.kind,
            help=metric.help,
            labels=metric.labels,
            unit=metric.unit,
            bounds=metric.bounds,
            samples=list(samples),
        )


class Collision(Exception):
    """Two different metrics would have the same name."""


def merged(families: Iterable[MetricFamily]) -> list[MetricFamily]:
    """One family per name, in order of first appearance. Raises Collision if two families of a name differ in kind."""
    found: dict[str, MetricFamily] = {}
    for family in families:
        known = found.get(family.name)
        if known is None:
            found[family.name] = msgspec.structs.replace(family, samples=list(family.samples))
            continue
        if (known.kind, known.labels, known.bounds) != (family.kind, family.labels, family.bounds):
            raise Collision(
                f"the metrics {known.dotted} ({known.kind}) and {family.dotted} ({family.kind}) would both be named"
                f" {family.name}; give one of the topics another domain or entity"
            )
        known.samples.extend(family.samples)
    return list(found.values())


def namesakes(families: Iterable[MetricFamily]) -> dict[str, list[str]]:
    """Names that several dotted names result in, such as `a.b_c.processed` and `a_b.c.processed`."""
    origins: dict[str, list[str]] = {}
    for family in families:
        known = origins.setdefault(family.name, [])
        if family.dotted not in known:
            known.append(family.dotted)
    return {name: dotted for name, dotted in origins.items() if len(dotted) > 1}
