"""The two formats, read by the library that others read them with; names, labels and collisions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest
from prometheus_client import parser as plain_parser
from prometheus_client.openmetrics import parser as open_metrics_parser

from keepfast.telemetry import catalogue
from keepfast.telemetry.exposition import exposition, wants_open_metrics
from keepfast.telemetry.families import (
    Buckets,
    Collision,
    Exemplar,
    Metric,
    MetricFamily,
    Sample,
    labelled,
    merged,
    namesakes,
)
from keepfast.telemetry.process import process_families

read_open_metrics: Any = open_metrics_parser.text_string_to_metric_families
read_plain: Any = plain_parser.text_string_to_metric_families

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
ODD = 'a "quoted" \\ back\nslash, an ümlaut and a \ud800 surrogate'


def families() -> list[MetricFamily]:
    own = {"domain": "orders", "entity": "payment"}
    counts = [0] * 21
    counts[3], counts[20] = 5, 2
    return [
        MetricFamily.of(
            catalogue.ERRORS,
            [Sample((ODD, "retryable", "g", "orders.payment.v1"), 3, exemplar=Exemplar(TRACE, 1.0, 1_700_000_000.5))],
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


def test_open_metrics_is_read_back_by_the_strict_parser_with_exemplars() -> None:
    text = exposition(families(), open_metrics=True)
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
    text = exposition(families(), open_metrics=False)
    assert "# EOF" not in text
    assert TRACE not in text
    plain = {(s.name, tuple(sorted(s.labels.items()))): s.value for f in read_plain(text) for s in f.samples}
    strict = read_open_metrics(exposition(families(), open_metrics=True))
    assert {key[0] for key in plain} == {sample.name for family in strict for sample in family.samples}
    assert sum(value for (name, _), value in plain.items() if name.endswith("_error_count_total")) == 3


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("application/openmetrics-text; version=1.0.0; q=0.4, text/plain; q=0.6", False),
        ("text/plain", False),
        ("*/*", False),
        ("", False),
        ("application/openmetrics-text;q=nonsense", False),
    ],
)
def test_the_format_is_what_the_reader_likes_best(accept: str, wanted: bool) -> None:
    assert wants_open_metrics(accept) is wanted


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
    assert labels["dlq.count"] == labels["error.count"] == {"error_type", "error_classification", "group", "topic"}


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


def test_families_of_several_processes_become_one_with_a_label() -> None:
    children = [labelled(families(), "process", str(number)) for number in range(2)]
    text = exposition([family for child in children for family in child], open_metrics=True)
    [lag] = [family for family in read_open_metrics(text) if family.name == "kafka_consumer_lag"]
    assert [(one.labels["process"], one.value) for one in lag.samples] == [("0", 17), ("1", 17)]


def test_the_operating_system_tells_memory_processor_threads_files_and_network() -> None:
    text = exposition(process_families(), open_metrics=True)
    found = {sample.name: sample.value for family in read_open_metrics(text) for sample in family.samples}
    assert found["process_resident_memory_bytes"] > 1_000_000
    assert found["process_cpu_seconds_total"] > 0
    assert found["process_threads"] >= 1
    assert found["process_open_fds"] >= 3
    assert found["process_network_receive_bytes_total"] >= 0
    assert found["process_network_transmit_bytes_total"] >= 0
    assert abs(found["process_start_time_seconds"] - 1.7e9) < 1e9
    assert not any(math.isnan(value) for value in found.values())
