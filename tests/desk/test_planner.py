"""What a replay would send, and why it leaves the rest out; without a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from keepfast.core.errors import ConfigError
from keepfast.core.records import RecordPlace
from keepfast.deadletters.letter import Letter
from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.cases import Case
from keepfast.desk.database import Database
from keepfast.desk.index import Index
from keepfast.desk.index_writer import IndexWriter
from keepfast.desk.letters import StoredLetter
from keepfast.desk.plan import MAX_REASONS, OTHER, Planner, ReplayPolicy
from tests.support.letters import letter

DLQ, TOPIC = "orders.payment.dlq", "orders.payment.v1"


def cases(letters: Iterable[Letter]) -> list[Case]:
    """Each letter as a case, as the index makes it."""
    database = Database()
    stored = [StoredLetter(one, RecordPlace(DLQ, 0, number), 1) for number, one in enumerate(letters)]
    IndexWriter(database).add_letters(stored, topic=DLQ, topic_id="x", ends={0: len(stored)})
    found = list(Index(database).selected(CaseFilter()))
    database.close()
    return found


def planned(letters: Iterable[Letter], policy: ReplayPolicy, topics: dict[str, int]) -> Planner:
    planner = Planner(DLQ, policy, topics.get)
    for case in cases(letters):
        planner.add(case)
    return planner


def test_the_plan_counts_destinations_and_says_why_others_are_left_out() -> None:
    letters = [
        letter(offset=1),
        letter(offset=2),
        letter(topic="gone", offset=3),
        letter(topic=DLQ, offset=4),
        letter(topic="__consumer_offsets", offset=5),
        letter(partition=9, offset=6),
        letter(topic=None, partition=None, offset=None),
        letter(offset=7, exact=False),
    ]
    planner = planned(letters, ReplayPolicy(), {TOPIC: 4, DLQ: 1, "__consumer_offsets": 50})
    items = list(planner.items())
    assert [item.offset for item in items] == [0, 1]
    assert planner.destinations == {TOPIC: 2}
    reasons = sorted(planner.excluded)
    assert sum(planner.excluded.values()) == 6
    for part in (
        "does not exist",
        "among the letters",
        "Kafka's own",
        "no partition 9",
        "not known (--topic",
        "exactly",
    ):
        assert any(part in reason for reason in reasons), (part, reasons)


def test_another_topic_takes_what_its_own_cannot() -> None:
    letters = [letter(topic="gone", offset=1), letter(partition=9, offset=2)]
    planner = planned(letters, ReplayPolicy(topic="repaired"), {TOPIC: 4, "repaired": 1})
    assert len(list(planner.items())) == 2
    assert planner.destinations == {"repaired": 2}


def test_records_are_planned_in_the_order_of_the_originals_not_of_the_letters() -> None:
    planner = planned([letter(offset=n) for n in (30, 10, 20)], ReplayPolicy(), {TOPIC: 4})
    assert [item.offset for item in planner.items()] == [1, 2, 0]


def test_a_record_of_two_groups_is_sent_once_or_to_each_of_them() -> None:
    both = [letter(offset=1, group="a"), letter(offset=1, group="b")]
    together = planned(both, ReplayPolicy(to="topic"), {TOPIC: 4})
    assert [len(item.cases) for item in together.items()] == [2]
    apart = planned(both, ReplayPolicy(to="group"), {TOPIC: 4})
    assert [len(item.cases) for item in apart.items()] == [1, 1]
    assert apart.destinations == {f"{TOPIC}.a.replay": 1, f"{TOPIC}.b.replay": 1}


def test_to_a_group_needs_a_group_and_a_record() -> None:
    planner = planned([letter(offset=1, group="")], ReplayPolicy(to="group"), {TOPIC: 4})
    assert list(planner.items()) == []
    [reason] = planner.excluded
    assert "does not name its group" in reason


def test_to_a_group_of_another_program_nothing_is_sent() -> None:
    planner = planned([letter(offset=1, group="a", format="connect")], ReplayPolicy(to="group"), {TOPIC: 4})
    assert list(planner.items()) == []
    [reason] = planner.excluded
    assert "another program wrote the letter" in reason


def test_forged_topics_do_not_make_the_plan_grow_without_bound() -> None:
    planner = planned([letter(topic=f"forged-{n}", offset=n) for n in range(300)], ReplayPolicy(), {})
    assert len(planner.excluded) <= MAX_REASONS + 1
    assert (sum(planner.excluded.values()), planner.excluded[OTHER]) == (300, 300 - MAX_REASONS)


@pytest.mark.parametrize(
    "bad",
    [
        {"limit": 0},
        {"canary": -1},
        {"rate_per_s": 0},
        {"rate_per_s": float("nan")},
        {"stop_if_failing": 101},
        {"to": "group", "topic": "other"},
    ],
    ids=str,
)
def test_a_policy_that_makes_no_sense_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ReplayPolicy(**bad)


def test_a_policy_survives_the_fact_of_its_run() -> None:
    policy = ReplayPolicy(to="topic", rate_per_s=5, canary=3, stop_if_failing=2.5, again=True, keep_timestamp=True)
    assert ReplayPolicy.of(policy.fields()) == policy
    assert ReplayPolicy.of({"unknown": 1}) == ReplayPolicy()
