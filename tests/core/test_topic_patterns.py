from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast import ConfigError, Pattern
from keepfast.core.retry_topics import RetryTopics
from keepfast.core.topic_patterns import INTERNAL, letter_pattern, matching, with_env

TOPICS = ["audit.a", "audit.b.v1", "audits", "x.audit.a", "audit.a.dlq", "__consumer_offsets"]
NAMES = st.from_regex(r"[a-zA-Z0-9._-]{1,40}", fullmatch=True)


def test_the_whole_name_must_match() -> None:
    assert matching(r"audit\..*", TOPICS, [], []) == ["audit.a", "audit.b.v1"]
    assert matching("audit", TOPICS, [], []) == []


@pytest.mark.parametrize(
    "name",
    [
        "__consumer_offsets",
        "keepfast.desk",
        "keepfast.desk.audit",
        "orders.dlq",
        "orders.DLT",
        "orders-dlt",
        "orders.shop.charge.retry.5s",
        "orders.shop.charge.replay",
        "orders.group.parked",
    ],
)
def test_what_keepfast_and_kafka_write_is_left_out_by_its_name(name: str) -> None:
    assert matching(".*", [name, "orders"], [], []) == ["orders"]


@pytest.mark.parametrize("name", ["orders.retry.v1", "orders.replay", "dlq", "orders.parked", "_schemas", "retry.5s"])
def test_names_that_only_look_alike_are_read(name: str) -> None:
    assert matching(".*", [name], [], []) == [name]


@given(topic=NAMES, group=NAMES, delay=st.sampled_from(["1s", "59s", "10m", "2h", "1d"]))
def test_no_retry_topic_of_whatever_group_is_read(topic: str, group: str, delay: str) -> None:
    for name in RetryTopics(delays=(delay,)).topics(topic, group):
        assert INTERNAL.fullmatch(name)


@given(
    topic=NAMES,
    template=st.sampled_from(["{topic}.failed", "errors.{domain}.{entity}", "{env}-{topic}-{group}-dead", "dead"]),
)
def test_no_dead_letter_topic_of_whatever_topic_is_read(topic: str, template: str) -> None:
    values = {"topic": topic, "domain": "some.domain", "entity": topic, "env": "prod+1", "group": "a.b"}
    name = template.format(**values)
    assert matching(".*", [name], [letter_pattern(template, env="prod+1", group="a.b")], []) == []


def test_topics_that_are_read_by_name_are_not_found_again() -> None:
    assert matching(r"audit\..*", TOPICS, [], ["audit.a"]) == ["audit.b.v1"]


@pytest.mark.parametrize(
    ("regex", "problem"),
    [
        ("*.audit", "nothing to repeat at position 0; any text is .*, not *"),
        ("audit(", "is no regular expression"),
        ("audit orders", "matches no name that a topic can have"),
        ("(a/|b ).*", "matches no name that a topic can have"),
        ("[ /]+", "matches no name that a topic can have"),
        ("x{250}", "matches no name that a topic can have"),
        ("__.*", "matches only topics that patterns leave out"),
        (r".*\.dlq", "matches only topics that patterns leave out"),
        (r"^orders\.DLT$", "matches only topics that patterns leave out"),
        ("", "must be a regular expression"),
    ],
)
def test_a_pattern_that_cannot_match_is_an_error_with_the_reason(regex: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Pattern(regex)
    assert problem in str(raised.value)


@pytest.mark.parametrize("regex", [r"audit\..*", "(a|b/)+", "[^.]+", "a{2,3}", "{env}.*", "(?i)audit.*", r"\w+(?<!x)"])
def test_what_may_match_is_taken(regex: str) -> None:
    assert Pattern(regex).regex == regex


def test_the_environment_is_filled_in_as_it_is() -> None:
    assert matching(with_env(r"{env}\.a{2}", "p.d"), ["p.d.aa", "pxd.aa"], [], []) == ["p.d.aa"]
