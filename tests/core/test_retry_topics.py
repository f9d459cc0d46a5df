"""Retry topics: delays, names, what is left over, and which step comes next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.core.errors import ConfigError
from keepfast.core.retry_topics import (
    MAX_S,
    MAX_STEPS,
    RetryTopics,
    Tier,
    Tiers,
    delay_s,
    delay_text,
    left_over,
    next_step,
    topic_name,
)


@given(st.integers(1, MAX_S))
def test_a_delay_is_written_in_one_way_and_read_back(seconds: int) -> None:
    assert delay_s(delay_text(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5s", 5), ("1m", 60), ("60s", 60), ("10m", 600), ("2h", 7200), ("1d", 86_400), ("24h", 86_400), (" 5s ", 5)],
)
def test_delays_that_are_understood(text: str, seconds: int) -> None:
    assert delay_s(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "5",
        "0s",
        "05s",
        "-5s",
        "1.5m",
        "5 s",
        "2d",
        "86401s",
        "5S",
        "1w",
        "٣s",
        "999999s",
        "1m30s",
        None,
        5,
        b"5s",
    ],
)
def test_delays_that_are_not(text: object) -> None:
    assert delay_s(text) is None


@given(st.text())
def test_no_text_upsets_the_reading_of_delays(text: str) -> None:
    seconds = delay_s(text)
    assert seconds is None or 1 <= seconds <= MAX_S


def test_the_same_delay_is_the_same_topic_however_it_is_written() -> None:
    policy = RetryTopics(delays=("60s", "1m", "24h"))
    assert policy.delays == ("1m", "1m", "1d")
    assert policy.topics("orders", "g") == {"orders.g.retry.1m": 60, "orders.g.retry.1d": 86_400}
    assert RetryTopics(delays=["60s"]) == RetryTopics(delays=("1m",))  # type: ignore[arg-type]


def test_no_delays_are_no_retry_topics() -> None:
    assert not RetryTopics()
    assert RetryTopics(delays=("1s",))


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        RetryTopics(delays=("5s", "soon"), allow_reorder="yes", create_topics=1)  # type: ignore[arg-type]
    assert [problem.split()[1] for problem in caught.value.problems] == ["delays", "allow_reorder", "create_topics"]
    assert "'soon'" in caught.value.problems[0]


@pytest.mark.parametrize("delays", ["5s", 5, ("1s",) * (MAX_STEPS + 1), (5,)])
def test_delays_that_are_no_list_of_delays_are_refused(delays: object) -> None:
    with pytest.raises(ConfigError):
        RetryTopics(delays=delays)  # type: ignore[arg-type]


def test_names_that_kafka_would_refuse_are_found() -> None:
    policy = RetryTopics(delays=("5s",))
    assert policy.name_problem("orders", "my.group") is None
    assert policy.name_problem("orders", "my group") is not None
    assert policy.name_problem("o" * 200, "g" * 60) is not None


def test_topics_of_earlier_delays_are_found_and_nothing_else() -> None:
    existing = [
        "orders.g.retry.5s",  # configured
        "orders.g.retry.10m",  # left over
        "orders.g.retry.60s",  # nobody writes it like that
        "orders.g.retry.soon",
        "orders.g.retry.5s.dlq",
        "orders.h.retry.5s",  # another group's
        "orders.g.h.retry.5s",
        "payments.g.retry.5s",
        "orders",
    ]
    assert left_over(existing, "orders", "g", ["orders.g.retry.5s"]) == {"orders.g.retry.10m": 600}


steps = st.lists(st.integers(1, 1000), max_size=6).map(tuple)


@given(delays=steps, behind=st.integers(0, 7), asked_s=st.floats(0, 2000))
def test_a_record_goes_forward_and_comes_to_an_end(delays: tuple[int, ...], behind: int, asked_s: float) -> None:
    step = next_step(delays, behind, asked_s)
    if behind >= len(delays):
        assert step is None
        return
    assert step is not None
    assert behind < step <= len(delays)
    left = delays[behind:]
    assert delays[step - 1] >= asked_s or delays[step - 1] == max(left)


def test_without_a_wish_the_next_step_comes_next() -> None:
    assert [next_step((5, 60, 600), behind, 0.0) for behind in range(4)] == [1, 2, 3, None]
    assert next_step((5, 60, 600), 0, 30.0) == 2
    assert next_step((5, 60, 600), 0, 6000.0) == 3


def test_a_topic_knows_its_steps() -> None:
    names = {seconds: topic_name("orders", "g", seconds) for seconds in (5, 60, 600)}
    topics = {name: Tier(name, "orders", seconds, 1) for seconds, name in names.items()}
    tiers = Tiers(group="g", delays_s=(5, 60, 5), topics=topics)
    assert tiers.at("orders", 3) is topics[names[5]]
    assert tiers.steps_at(topics[names[5]]) == [1, 3]
    assert tiers.steps_at(topics[names[600]]) == []
