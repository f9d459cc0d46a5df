from __future__ import annotations

import pytest

from keepfast.core.retry_topics import RetryTopics
from tests.settings.loader import Loader

POLICY = RetryTopics(delays=("5s", "1m", "10m"), allow_reorder=True)


def test_there_are_none_by_default(loader: Loader) -> None:
    assert loader.charge().retry_topics == RetryTopics()


def test_every_way_to_say_it(loader: Loader) -> None:
    table = {"delays": ["5s", "60s", "10m"], "allow_reorder": True}
    environ = {
        "KEEPFAST_CONSUMERS_CHARGE_RETRY_TOPICS_DELAYS": "5s, 1m,10m",
        "KEEPFAST_RETRY_TOPICS_ALLOW_REORDER": "yes",
    }
    assert loader.charge(retry_topics=POLICY).retry_topics == POLICY
    assert loader.charge(retry_topics=table).retry_topics == POLICY
    assert loader.charge(environ).retry_topics == POLICY
    assert loader.charge(retry_topics="5s,1m,10m", order="none").retry_topics.delays == POLICY.delays
    toml = '[consumers.charge.retry_topics]\ndelays = ["5s", "1m", "10m"]\nallow_reorder = true'
    assert loader.charge(toml=toml).retry_topics == POLICY


def test_what_the_code_says_can_be_switched_off(loader: Loader) -> None:
    assert (
        loader.charge({"KEEPFAST_CONSUMERS_CHARGE_RETRY_TOPICS_DELAYS": "off"}, retry_topics=POLICY).retry_topics.delays
        == ()
    )


@pytest.mark.parametrize("reported", ["soon", "5", "5s,", "0s", "2d", "off,5s"])
def test_a_delay_that_is_none_is_refused_with_what_would_do(loader: Loader, reported: str) -> None:
    problem = loader.problem({"KEEPFAST_RETRY_TOPICS_DELAYS": reported})
    assert problem.startswith("environment variable KEEPFAST_RETRY_TOPICS_DELAYS: must be delays from 1s to 1d")


@pytest.mark.parametrize("order", ["partition", "key"])
def test_order_must_be_given_up_by_name(loader: Loader, order: str) -> None:
    problem = loader.problem(order=order, retry_topics="5s")
    assert "allow_reorder" in problem
    assert f"order is {order}" in problem
    assert loader.charge(order=order, retry_topics=POLICY).retry_topics
    assert loader.charge(order="none", retry_topics="5s").retry_topics


def test_retries_that_never_end_in_place_never_reach_them(loader: Loader) -> None:
    for_ever = {"max_retries": "forever"}
    assert "would never be used" in loader.problem(retry=for_ever, retry_topics=POLICY)
    assert loader.charge(retry=for_ever | {"max_elapsed_s": 60}, retry_topics=POLICY).retry_topics


def test_names_that_kafka_would_refuse_are_a_problem(loader: Loader) -> None:
    problem = loader.problem(group="our group", retry_topics=POLICY)
    assert problem.startswith("consumer charge: retry_topics.delays is 'orders.payment.v1.our group.retry.5s'")


def test_a_retry_topic_is_not_consumed_by_its_own_name(loader: Loader) -> None:
    topics = ["orders.v1", "orders.v1.g.retry.5s"]
    assert "is a retry topic" in loader.problem(topics=topics, group="g", retry_topics=POLICY)


def test_two_consumers_do_not_share_a_retry_topic(loader: Loader) -> None:
    consumers = {
        "one": {"topics": "a", "group": "b.c", "retry_topics": POLICY},
        "two": {"topics": "a.b", "group": "c", "retry_topics": RetryTopics(delays=("5s",), allow_reorder=True)},
    }
    problem = loader.problem(consumers=consumers)
    assert problem.startswith("consumers one, two: all use the retry topic 'a.b.c.retry.5s'")
