from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.core.names import default_group, expand, segment_problem, topic_parts, topic_problem

legal = st.text("abcXYZ019._-", min_size=1, max_size=60)


@pytest.mark.parametrize(
    ("topic", "domain", "entity"),
    [
        ("orders.payment.v1", "orders", "payment"),
        ("a.b.c.v1", "a", "b_c"),
        ("fraud.card.decisions.v12", "fraud", "card_decisions"),
        ("deal.events", "deal", "events"),
        ("orders", "shop", "orders"),
        ("orders.v2", "shop", "orders"),
        ("v1", "shop", "v1"),
        ("a.v1.b", "a", "v1_b"),
        ("orders.vip", "orders", "vip"),
        ("a..b", "a", "b"),
    ],
)
def test_domain_and_entity_come_from_the_topic(topic: str, domain: str, entity: str) -> None:
    assert topic_parts(topic, app="shop") == (domain, entity)


@given(legal)
def test_every_legal_topic_has_a_domain_and_an_entity(topic: str) -> None:
    parts = topic_parts(topic, app="shop")
    assert parts.domain
    assert parts.entity
    assert topic_problem(f"{parts.domain}.{parts.entity}.dlq") is None


def test_the_default_group_names_app_and_function() -> None:
    assert default_group("payments", "charge") == "payments.charge"


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("{domain}.{entity}.dlq", "fraud.card.dlq"),
        ("{topic}.dlq.{env}", "fraud.card.v1.dlq.prod"),
        ("{topic}.DLT", "fraud.card.v1.DLT"),
        ("dead.{group}", "dead.cg"),
        ("plain", "plain"),
    ],
)
def test_the_patterns_of_the_texts_can_be_written(pattern: str, name: str) -> None:
    fields = {"domain": "fraud", "entity": "card", "topic": "fraud.card.v1", "env": "prod", "group": "cg"}
    assert expand(pattern, fields) == name


@pytest.mark.parametrize(
    "pattern", ["{nope}", "{}", "{0}", "{env.x}", "{env!r}", "{env:>9}", "{env", "env}", "{env[0]}"]
)
def test_a_pattern_can_do_nothing_but_name_fields(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"it may use \{env\}"):
        expand(pattern, {"env": "prod"})


@given(st.text(max_size=40))
def test_any_text_is_filled_or_refused_with_a_sentence(pattern: str) -> None:
    try:
        expand(pattern, {"env": "prod"})
    except ValueError as error:
        assert "it may use {env}" in str(error)  # noqa: PT017 - most texts are fine


@given(legal)
def test_legal_topic_names_are_taken(topic: str) -> None:
    assert topic_problem(f"t{topic}") is None


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "ä", "a/b", "a" * 250, "a\n", "²"])
def test_what_kafka_refuses_is_refused(topic: str) -> None:
    assert topic_problem(topic)


def test_249_characters_are_allowed() -> None:
    assert topic_problem("a" * 249) is None


def test_a_part_of_a_name_must_be_legal_too() -> None:
    assert segment_problem("prod-eu_1.x") is None
    assert segment_problem("pay ments")
    assert segment_problem("")
