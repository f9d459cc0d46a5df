"""The page for Prometheus: formats, names, labels and collisions; users' metrics on it; several apps and processes."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client import REGISTRY, Counter, Gauge, generate_latest
from prometheus_client import parser as plain_parser
from prometheus_client.core import Metric as Exposed
from prometheus_client.core import Sample as ExposedSample
from prometheus_client.openmetrics import parser as open_metrics_parser

from keepfast import App
from keepfast.telemetry import catalogue
from keepfast.telemetry.metrics import Buckets, Collision, Exemplar, Metric, MetricFamily, Sample, merged, namesakes
from keepfast.telemetry.prometheus import (
    REGISTERED,
    all_process_families,
    by_process,
    exposed,
    packed,
    page,
    unpacked,
)
from keepfast.testing.harness import harness

read_open_metrics: Any = open_metrics_parser.text_string_to_metric_families
read_plain: Any = plain_parser.text_string_to_metric_families

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
OPEN_METRICS = "application/openmetrics-text;version=1.0.0"
ODD = 'a "quoted" \\ back\nslash, an ümlaut and a \ud800 surrogate'


def families() -> list[MetricFamily]:
    own = {"domain": "orders", "entity": "payment"}
    counts = [0] * 21
    counts[3], counts[20] = 5, 2
    return [
        MetricFamily.of(
            catalogue.ERRORS,
            [
                Sample(
                    (ODD, "retryable", "TIMEOUT", "g", "orders.payment.v1"),
                    3,
                    exemplar=Exemplar(TRACE, 1.0, 1_700_000_000.5),
                )
            ],
            **own,
        ),
        MetricFamily.of(
            catalogue.DURATION,
            [Sample(("g", "orders.payment.v1"), Buckets(counts, 130.5, {20: Exemplar(TRACE, 65.25, 1_700_000_000.5)}))],
            **own,
        ),
        MetricFamily.of(catalogue.LAG, [Sample(("g", "orders.payment.v1", "0"), 17)]),
        MetricFamily.of(catalogue.HOLD, []),
    ]


@dataclass
class Given:
    """A collector of these."""

    families: list[MetricFamily]

    def collect(self) -> list[Exposed]:
        return [exposed(family) for family in self.families if family.samples]


def text_of(families: list[MetricFamily], *, open_metrics: bool) -> str:
    body, content_type = page(Given(families), OPEN_METRICS if open_metrics else "")
    assert content_type.startswith("application/openmetrics-text" if open_metrics else "text/plain; version=0.0.4")
    return body.decode()


def test_open_metrics_is_read_back_by_the_strict_parser_with_exemplars() -> None:
    text = text_of(families(), open_metrics=True)
    assert text.endswith("# EOF\n")
    found = {family.name: family for family in read_open_metrics(text)}
    assert set(found) == {
        "orders_payment_error_count",
        "orders_payment_processing_duration_seconds",
        "kafka_consumer_lag",
    }
    [errors] = found["orders_payment_error_count"].samples
    assert (errors.name, errors.value, errors.exemplar.labels) == (
        "orders_payment_error_count_total",
        3,
        {"trace_id": TRACE},
    )
    assert errors.labels["error_type"] == ODD.replace("\ud800", "\\ud800")
    duration = found["orders_payment_processing_duration_seconds"]
    assert (duration.type, duration.unit) == ("histogram", "seconds")
    by_bound = {one.labels["le"]: one for one in duration.samples if one.name.endswith("_bucket")}
    assert by_bound["0.0001"].value == 0
    assert by_bound["0.00025"].value == 5
    assert by_bound["+Inf"].value == 7
    assert by_bound["+Inf"].exemplar.value == 65.25
    assert [one.value for one in duration.samples if one.name.endswith(("_count", "_sum"))] == [7, 130.5]


def test_the_older_format_has_the_same_samples_and_no_exemplars() -> None:
    text = text_of(families(), open_metrics=False)
    assert "# EOF" not in text
    assert TRACE not in text
    plain = {(s.name, tuple(sorted(s.labels.items()))): s.value for f in read_plain(text) for s in f.samples}
    strict = read_open_metrics(text_of(families(), open_metrics=True))
    assert {key[0] for key in plain} == {sample.name for family in strict for sample in family.samples}
    assert sum(value for (name, _), value in plain.items() if name.endswith("_error_count_total")) == 3


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
        ("text/plain", "text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        ("", "text/plain; version=0.0.4; charset=utf-8"),
    ],
)
def test_the_reader_chooses_the_format(accept: str, content_type: str) -> None:
    body, chosen = page(Given(families()), accept)
    assert chosen.startswith(content_type)
    assert body.endswith(b"# EOF\n") is chosen.startswith("application/openmetrics-text")


def test_a_counter_has_its_name_once_and_no_time_of_creation() -> None:
    text = text_of(families(), open_metrics=False)
    assert "# TYPE orders_payment_error_count_total counter" in text
    assert "_total_total" not in text
    assert "_created" not in text
    assert 'kafka_consumer_lag{group="g",partition="0",topic="orders.payment.v1"} 17.0' in text


def test_every_name_that_the_documents_ask_for_is_in_the_catalogue() -> None:
    dotted = {metric.name for metric in catalogue.CATALOGUE}
    assert {
        *(
            f"{{domain}}.{{entity}}.{name}"
            for name in ("processed", "processing.duration", "retry.count", "retry.delay")
        ),
        *(f"{{domain}}.{{entity}}.{name}" for name in ("dlq.count", "error.count", "dlq.publish.failure")),
        *("kafka.consumer.lag", "kafka.dlq.messages", "kafka.dlq.errors_by_type"),
        *("ingestion.events_processed", "ingestion.events_failed"),
    } <= dotted
    exposed = {metric.family(domain="d", entity="e") for metric in catalogue.CATALOGUE}
    assert {"kafka_consumer_records_lag_max", "kafka_consumer_records_consumed"} <= exposed
    labels = {metric.name.rpartition("}.")[2]: set(metric.labels) for metric in catalogue.TOPIC_METRICS}
    assert labels["processed"] == {"status", "group", "topic"}
    assert labels["retry.count"] == labels["retry.delay"] == {"retry_attempt", "group", "topic"}
    by_error = {"error_type", "error_classification", "error_code", "group", "topic"}
    assert labels["dlq.count"] == labels["error.count"] == by_error


def test_no_two_metrics_of_the_catalogue_have_one_name() -> None:
    all_of_them = [MetricFamily.of(metric, [], domain="a", entity="b") for metric in catalogue.CATALOGUE]
    assert len(merged(all_of_them)) == len(all_of_them)
    assert namesakes(all_of_them) == {}


def names_of(topics: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    return namesakes(
        MetricFamily.of(catalogue.PROCESSED, [], domain=domain, entity=entity) for domain, entity in topics
    )


def test_topics_whose_metrics_get_the_same_name_are_found() -> None:
    assert names_of([("a", "b_c"), ("a_b", "c"), ("x", "y"), ("x", "y")]) == {
        "a_b_c_processed": ["a.b_c.processed", "a_b.c.processed"]
    }


def test_two_kinds_of_metric_under_one_name_are_refused_with_both_names() -> None:
    gauge = Metric(name="a.b", kind="gauge", help="…")
    counter = Metric(name="a_b", kind="counter", help="…")
    with pytest.raises(Collision, match=r"a\.b \(gauge\) and a_b \(counter\) would both be named a_b"):
        merged([MetricFamily.of(gauge, []), MetricFamily.of(counter, [])])


def collected(text: bytes) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """By name and labels."""
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in read_plain(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def test_a_family_comes_whole_through_the_door_of_a_child() -> None:
    users = Exposed("mine", "Of a user.", "gauge")
    users.samples = [ExposedSample("mine", {"process": "billing"}, 1.5, 1_700_000_000.25)]
    sent = [*Given(families()).collect(), users]

    class Child:
        def collect(self) -> list[Exposed]:
            return sent

    assert unpacked(packed(Child())) == sent


def test_families_of_several_processes_become_one_with_a_label() -> None:
    users = Exposed("mine", "Of a user.", "gauge")
    users.samples = [ExposedSample("mine", {"process": "billing"}, 1)]
    own = [*Given(families()).collect(), users]
    found = {family.name: family for family in by_process({"0": own, "1": own, "supervisor": []})}
    assert len(found) == len(own)
    lags = found["kafka_consumer_lag"].samples
    assert [(one.labels["process"], one.value) for one in lags] == [("0", 17), ("1", 17)]
    assert [one.labels for one in found["mine"].samples] == [
        {"exported_process": "billing", "process": "0"},
        {"exported_process": "billing", "process": "1"},
    ]
    assert users.samples[0].labels == {"process": "billing"}, "what was given stays as it was"
    exemplar = found["orders_payment_error_count"].samples[0].exemplar
    assert exemplar is not None
    assert exemplar.labels == {"trace_id": TRACE}


@dataclass
class Running:
    """An app with these metrics."""

    app: str
    own: list[MetricFamily] = field(default_factory=families)

    def families(self) -> list[MetricFamily]:
        return self.own


@contextmanager
def registered(*apps: Running) -> Iterator[None]:
    for one in apps:
        REGISTERED.add(one)
    try:
        yield
    finally:
        for one in apps:
            REGISTERED.remove(one)


@pytest.fixture
def orders_seen() -> Iterator[Counter]:
    counter = Counter("shop_orders_seen", "Of the user's own.")
    yield counter
    REGISTRY.unregister(counter)


def test_what_users_count_is_on_the_page_and_ours_is_on_their_registry(orders_seen: Counter) -> None:
    orders_seen.inc(3)
    shop = Running("shop")
    with registered(shop):
        for text in (page(Collected(shop))[0], generate_latest(REGISTRY)):
            found = collected(text)
            assert found["shop_orders_seen_total"] == {frozenset(): 3}
            assert list(found["kafka_consumer_lag"].values()) == [17]
            assert found["process_resident_memory_bytes"][frozenset()] > 0
    assert "kafka_consumer_lag" not in collected(generate_latest(REGISTRY))


@dataclass
class Collected:
    of: Running

    def collect(self) -> list[Exposed]:
        return REGISTERED.collect_for(self.of)


def test_apps_of_one_process_are_distinguished_and_each_page_has_its_own() -> None:
    shop, second, desk = Running("shop"), Running("shop"), Running("desk")
    info = MetricFamily.of(catalogue.INFO, [Sample(("desk", "1", "2"), 1)])
    desk.own = [info, MetricFamily.of(catalogue.LAG, [Sample(("g", "t", "0"), 4)])]
    with registered(shop, second, desk):
        both = collected(generate_latest(REGISTRY))
        assert {dict(labels)["app"]: value for labels, value in both["kafka_consumer_lag"].items()} == {
            "shop": 17,
            "shop-2": 17,
            "desk": 4,
        }
        assert [dict(labels)["app"] for labels in both["keepfast_app_info"]] == ["desk"]
        assert list(both["process_threads"]) == [frozenset()], "what is the process's is there once"
        alone = collected(page(Collected(desk))[0])
        assert alone["kafka_consumer_lag"] == {frozenset({("group", "g"), ("topic", "t"), ("partition", "0")}): 4}
        assert "orders_payment_error_count_total" not in alone
        REGISTERED.remove(second)
        REGISTERED.remove(desk)
        left = collected(generate_latest(REGISTRY))
        assert [dict(labels).get("app") for labels in left["kafka_consumer_lag"]] == [None]


def test_a_users_metric_by_one_of_our_names_is_refused_in_either_order() -> None:
    shop = Running("shop")
    with registered(shop), pytest.raises(ValueError, match="kafka_consumer_lag"):
        Gauge("kafka_consumer_lag", "Of a user.")
    mine = Gauge("kafka_consumer_lag", "Of a user.")
    try:
        with pytest.raises(Collision, match=r"kafka_consumer_lag.*rename them"):
            REGISTERED.add(shop)
    finally:
        REGISTRY.unregister(mine)
    with registered(shop):
        assert "kafka_consumer_lag" in collected(generate_latest(REGISTRY))


def test_metrics_that_an_app_gets_later_are_its_names_too() -> None:
    shop = Running("shop", own=[])
    with registered(shop):
        shop.own = families()
        REGISTERED.renew()
        with pytest.raises(ValueError, match="orders_payment_error_count"):
            Counter("orders_payment_error_count", "Of a user.")


def test_a_run_in_the_harness_leaves_the_registry_as_it_was() -> None:
    app = App("shop")

    @app.consumer("orders.payment.v1")
    def charge(value: bytes) -> None: ...

    before = set(collected(generate_latest(REGISTRY)))

    async def run() -> None:
        async with harness(app) as running:
            await running.send("orders.payment.v1", b"1")
            await running.settle()

    asyncio.run(run())
    assert set(collected(generate_latest(REGISTRY))) == before


NOT_BEFORE_THE_FIRST_SCRAPE = """
import sys
from pathlib import Path
import keepfast
from keepfast import App, KafkaConsumerRunner
from keepfast.http.client import fetch
from keepfast.http.local_app import AppServer

app = App("shop")
app.consumer("orders.v1", name="work")(lambda value: None)
settings = app.settings(environ={"HEALTH_CHECK_PORT": "0"}, cwd=Path("/nonexistent"))
with AppServer(settings) as serving:
    fetch(serving.url, "/health")
    assert "prometheus_client" not in sys.modules
    page = fetch(serving.url, "/metrics").body
    assert b"keepfast_app_info" in page
    assert "prometheus_client" in sys.modules
"""


def test_the_library_is_imported_by_the_first_scrape_and_not_before() -> None:
    subprocess.run([sys.executable, "-c", NOT_BEFORE_THE_FIRST_SCRAPE], check=True, timeout=60)


def test_the_operating_system_tells_memory_processor_threads_files_and_network() -> None:
    text = text_of(all_process_families(), open_metrics=True)
    found = {sample.name: sample.value for family in read_open_metrics(text) for sample in family.samples}
    assert found["process_resident_memory_bytes"] > 1_000_000
    assert found["process_cpu_seconds_total"] > 0
    assert found["process_threads"] >= 1
    assert found["process_open_fds"] >= 3
    assert found["process_network_receive_bytes_total"] >= 0
    assert found["process_network_transmit_bytes_total"] >= 0
    assert abs(found["process_start_time_seconds"] - 1.7e9) < 1e9
    assert not any(math.isnan(value) for value in found.values())
