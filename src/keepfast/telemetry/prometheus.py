"""keepfast's metrics on the default registry of prometheus-client, beside the user's own, and the page `/metrics`.

The library takes 0.1 s to import: the first scrape imports it, not `import keepfast` or the start of an app. If the
user's code has imported it, the app is registered when it starts.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from keepfast.telemetry import catalogue
from keepfast.telemetry.metrics import Buckets, Collision, Exemplar, Metric, MetricFamily, Sample, merged

if TYPE_CHECKING:
    from prometheus_client.core import Exemplar as ExposedExemplar
    from prometheus_client.core import Metric as Exposed
    from prometheus_client.core import Sample as ExposedSample
    from prometheus_client.registry import CollectorRegistry

LIBRARY: Final = "prometheus_client"
MAX_EXEMPLAR_CHARACTERS: Final = 128
"""Of the names and values of an exemplar's labels together, by the OpenMetrics standard."""


class Collector(Protocol):
    """The library's protocol for collectors."""

    def collect(self) -> Iterable[Exposed]: ...


class MeasuredApp(Protocol):
    """An app that runs in this process. `families` may be called by any thread."""

    app: str

    def families(self) -> list[MetricFamily]: ...


_ONLY: ContextVar[MeasuredApp | None] = ContextVar("keepfast_only", default=None)


class RegisteredApps:
    """The one collector of this process on the default registry. Any thread.

    If several apps run, their series on the registry have the label `app`. The page of one app (`collect_for`) has only
    its own series, without that label, because each app is scraped at its own port.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._apps: list[MeasuredApp] = []
        self._in_registry = False

    def add(self, app: MeasuredApp) -> None:
        """Raises Collision, as `renew` does; then it is not added."""
        with self._lock:
            self._apps = [*self._apps, app]
        try:
            self.renew()
        except Collision:
            self.remove(app)
            raise

    def remove(self, app: MeasuredApp) -> None:
        with self._lock:
            self._apps = [one for one in self._apps if one is not app]
        with suppress(Collision):  # those that are left were registered before
            self.renew()

    def renew(self) -> None:
        """Call it when the metrics of an app have changed. Raises Collision if the name of one is taken."""
        merged(self._families())
        with self._lock:
            if not self._apps:
                self._unregister()
            elif LIBRARY in sys.modules:
                self._register()

    def registry(self) -> CollectorRegistry:
        """The default registry with this collector on it. Raises Collision if another metric has one of our names."""
        from prometheus_client import REGISTRY

        with self._lock:
            if not self._in_registry:
                self._register()
        return REGISTRY

    def collect_for(self, app: MeasuredApp) -> list[Exposed]:
        """Everything on the default registry except other apps of this process. Raises Collision (see `registry`)."""
        registry, token = self.registry(), _ONLY.set(app)
        try:
            return list(registry.collect())
        finally:
            _ONLY.reset(token)

    def describe(self) -> list[Exposed]:
        """The families, from which the library takes the names that it reserves."""
        return [exposed(family) for family in merged(self._families())]

    def collect(self) -> list[Exposed]:
        return [exposed(family) for family in merged(self._families()) if family.samples]

    def _register(self) -> None:
        from prometheus_client import REGISTRY

        self._unregister()
        try:
            REGISTRY.register(self)
        except ValueError as error:
            raise Collision(
                f"{error}: the app has registered metrics with names that keepfast uses; rename them"
            ) from error
        self._in_registry = True

    def _unregister(self) -> None:
        if self._in_registry:
            from prometheus_client import REGISTRY

            REGISTRY.unregister(self)
            self._in_registry = False

    def _families(self) -> list[MetricFamily]:
        only, apps = _ONLY.get(), self._apps
        if only is not None or len(apps) == 1:
            return [*(only or apps[0]).families(), *process_families()]
        names: Counter[str] = Counter()
        found: list[MetricFamily] = []
        for one in apps:
            names[one.app] += 1
            name = one.app if names[one.app] == 1 else f"{one.app}-{names[one.app]}"
            found += [_labelled(family, name) for family in one.families()]
        return found + process_families()


REGISTERED: Final = RegisteredApps()


def _labelled(family: MetricFamily, app: str) -> MetricFamily:
    if "app" in family.labels:
        return family
    samples = [Sample((*one.labels, app), one.value, exemplar=one.exemplar) for one in family.samples]
    return msgspec.structs.replace(family, labels=(*family.labels, "app"), samples=samples)


def page(collector: Collector, accept: str = "") -> tuple[bytes, str]:
    """The response to a scrape and its content type. The library chooses the format by the Accept header."""
    from prometheus_client.exposition import choose_encoder

    encode, content_type = choose_encoder(accept)
    return encode(collector), content_type


def exposed(family: MetricFamily) -> Exposed:
    """The family as the library represents it."""
    from prometheus_client.core import Metric as Exposed

    found = Exposed(family.name, family.help, family.kind, family.unit)
    for sample in family.samples:
        labels = {name: _encodable(value) for name, value in zip(family.labels, sample.labels, strict=True)}
        found.samples += _samples(family, labels, sample)
    return found


def _samples(family: MetricFamily, labels: dict[str, str], sample: Sample) -> Iterator[ExposedSample]:
    from prometheus_client.core import Sample as ExposedSample

    if not isinstance(sample.value, Buckets):
        counter = family.kind == "counter"
        name = f"{family.name}_total" if counter else family.name
        yield ExposedSample(name, labels, sample.value, exemplar=_exemplar(sample.exemplar) if counter else None)
        return
    below = 0
    counts = list(sample.value.counts)  # a copy: its owner keeps counting
    for index, (count, bound) in enumerate(zip(counts, (*map(float, family.bounds), "+Inf"), strict=True)):
        below += count
        exemplar = _exemplar(sample.value.exemplars.get(index))
        yield ExposedSample(f"{family.name}_bucket", {**labels, "le": str(bound)}, below, exemplar=exemplar)
    yield ExposedSample(f"{family.name}_count", labels, below)
    yield ExposedSample(f"{family.name}_sum", labels, sample.value.total)


def _exemplar(exemplar: Exemplar | None) -> ExposedExemplar | None:
    if exemplar is None or len("trace_id") + len(exemplar.trace_id) > MAX_EXEMPLAR_CHARACTERS:
        return None
    from prometheus_client.core import Exemplar as ExposedExemplar

    return ExposedExemplar({"trace_id": exemplar.trace_id}, exemplar.value, round(exemplar.at, 3))


def _encodable(value: str) -> str:
    """Escapes lone surrogates, which a class name may contain and which cannot be encoded."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


# -- from a child process to its supervisor


class _PackedSample(msgspec.Struct, array_like=True):
    name: str
    labels: dict[str, str]
    value: float
    timestamp: float | None
    exemplar: tuple[dict[str, str], float, float | None] | None


class _PackedFamily(msgspec.Struct, array_like=True):
    name: str
    help: str
    kind: str
    unit: str
    samples: list[_PackedSample]


def packed(collector: Collector) -> bytes:
    """All families as bytes for `unpacked`, in a tenth of the time of rendering and parsing text."""

    def of(sample: ExposedSample) -> _PackedSample:
        at, example = sample.timestamp, sample.exemplar
        return _PackedSample(
            sample.name,
            sample.labels,
            float(sample.value),
            None if at is None else float(at),
            example
            and (example.labels, example.value, None if example.timestamp is None else float(example.timestamp)),
        )

    return msgspec.msgpack.encode(
        [
            _PackedFamily(one.name, one.documentation, one.type, one.unit, [of(sample) for sample in one.samples])
            for one in collector.collect()
        ]
    )


def unpacked(body: bytes) -> list[Exposed]:
    """Raises msgspec.MsgspecError."""
    from prometheus_client.core import Exemplar as ExposedExemplar
    from prometheus_client.core import Metric as Exposed
    from prometheus_client.core import Sample as ExposedSample

    found = []
    for family in msgspec.msgpack.decode(body, type=list[_PackedFamily]):
        one = Exposed(family.name, family.help, family.kind, family.unit)
        one.samples = [
            ExposedSample(
                sample.name,
                sample.labels,
                sample.value,
                sample.timestamp,
                ExposedExemplar(*sample.exemplar) if sample.exemplar else None,
            )
            for sample in family.samples
        ]
        found.append(one)
    return found


def by_process(families: Mapping[str, Iterable[Exposed]]) -> list[Exposed]:
    """The metrics of several processes together: each series gets the label `process`. A label of that name that it has
    already is renamed to `exported_process`, as Prometheus does.
    """
    from prometheus_client.core import Metric as Exposed

    def of(sample: ExposedSample, process: str) -> ExposedSample:
        labels = {"exported_process" if name == "process" else name: value for name, value in sample.labels.items()}
        return sample._replace(labels={**labels, "process": process})

    found: dict[tuple[str, str], Exposed] = {}
    for process, own in families.items():
        for family in own:
            key = family.name, family.type
            if key not in found:
                found[key] = Exposed(family.name, family.documentation, family.type, family.unit)
            found[key].samples += [of(sample, process) for sample in family.samples]
    return list(found.values())


# -- process metrics that the library does not have

_PROC = Path("/proc/self")


def process_families() -> list[MetricFamily]:
    """Metrics that cannot be read are left out. Any thread; reads two files of /proc."""
    readers: list[Callable[[], Iterator[tuple[Metric, float]]]] = [_threads, _network]
    families: list[MetricFamily] = []
    for read in readers:
        try:
            families += [MetricFamily.of(metric, [Sample((), value)]) for metric, value in read()]
        except (OSError, ValueError, IndexError):
            continue
    return families


def all_process_families() -> list[MetricFamily]:
    """All process metrics, with those of the library: for exporters that do not read its registry."""
    from prometheus_client import PROCESS_COLLECTOR

    own = {metric.family(): metric for metric in catalogue.CATALOGUE}
    known = [(own.get(family.name), family.samples) for family in PROCESS_COLLECTOR.collect()]
    return process_families() + [
        MetricFamily.of(metric, [Sample((), sample.value) for sample in samples]) for metric, samples in known if metric
    ]


def _threads() -> Iterator[tuple[Metric, float]]:
    yield catalogue.THREADS_ALIVE, threading.active_count()
    # The command name is in brackets and may contain anything: count the fields after it.
    yield catalogue.OS_THREADS, int((_PROC / "stat").read_text().rpartition(")")[2].split()[17])


def _network() -> Iterator[tuple[Metric, float]]:
    """All visible interfaces except loopback: in a container, its own."""
    received = sent = 0
    for line in (_PROC / "net" / "dev").read_text().splitlines()[2:]:
        name, _, rest = line.partition(":")
        numbers = rest.split()
        if name.strip() != "lo":
            received, sent = received + int(numbers[0]), sent + int(numbers[8])
    yield catalogue.NETWORK_RECEIVED, received
    yield catalogue.NETWORK_SENT, sent
