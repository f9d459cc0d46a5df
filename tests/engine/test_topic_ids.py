"""Which topic a name stands for: asked again and again, and believed with care."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from keepfast.engine.events import Events
from keepfast.engine.plan import Plan
from keepfast.engine.topic_ids import (
    ASK_AGAIN_S,
    CHECK_INTERVAL_S,
    CONFIRM_S,
    FORMER_S,
    REPLY_TIMEOUT_S,
    Identities,
    TopicIdsAnswer,
)
from tests.support.fakes import ListMailbox


class Asked:
    """Keeps the questions; the test answers them."""

    def __init__(self) -> None:
        self.questions: list[tuple[Sequence[str], Callable[[Mapping[str, str | None]], None]]] = []

    def ask(self, topics: Sequence[str], reported: Callable[[Mapping[str, str | None]], None]) -> None:
        self.questions.append((topics, reported))


def known(asked: Asked | None, ids: Mapping[str, str]) -> tuple[Identities, ListMailbox]:
    box = ListMailbox()
    plan = Plan(name="c", group="g", topics=("t",), topic_ids=ids)
    return Identities(plan, asked, box, 0.0, Events(plan.name, plan.group, ())), box


def reported(identities: Identities, at: float, topic_id: str | None) -> list[str]:
    """An answer that was asked for and came at this time; None: the question failed."""
    return identities.answered(TopicIdsAnswer({} if topic_id is None else {"t": topic_id}, at), at)


def test_it_is_asked_every_minute_and_not_while_a_question_is_open() -> None:
    asked = Asked()
    identities, box = known(asked, {"t": "A"})
    identities.step(CHECK_INTERVAL_S - 1)
    assert asked.questions == []
    identities.step(CHECK_INTERVAL_S)
    identities.suspect(CHECK_INTERVAL_S + 1)
    identities.step(CHECK_INTERVAL_S + 1)
    assert [topics for topics, _ in asked.questions] == [("t",)]
    asked.questions[0][1]({"t": "A"})
    assert box.items == [TopicIdsAnswer({"t": "A"}, CHECK_INTERVAL_S)]
    assert identities.answered(box.items[0], CHECK_INTERVAL_S + 2) == []
    identities.step(CHECK_INTERVAL_S + 2)
    assert len(asked.questions) == 2, "the event of a second ago is younger than the question that was answered"
    identities.step(CHECK_INTERVAL_S + 2 + REPLY_TIMEOUT_S)
    assert len(asked.questions) == 2
    identities.step(2 * CHECK_INTERVAL_S + 2)
    assert len(asked.questions) == 3, "one that is not answered is asked again"
    assert REPLY_TIMEOUT_S < CHECK_INTERVAL_S


def test_many_events_at_once_are_one_question() -> None:
    asked = Asked()
    identities, box = known(asked, {"t": "A"})
    for number in range(50):
        identities.suspect(1.0 + number / 1000)
        identities.step(1.0 + number / 1000)
    identities.answered(TopicIdsAnswer({"t": "A"}, 1.0), 1.06)
    identities.step(1.07)
    assert len(asked.questions) == 1
    identities.step(1.0 + ASK_AGAIN_S)
    assert len(asked.questions) == 2
    assert box.items == []


def test_without_topic_ids_commits_are_trusted() -> None:
    identities, _ = known(None, {})
    identities.step(10 * CHECK_INTERVAL_S)
    assert identities.belongs("t", "A", 0.0) is True


def test_an_id_that_is_missing_at_the_start_is_asked_for_until_it_is_known() -> None:
    asked = Asked()
    identities, _ = known(asked, {})
    identities.step(0.0)
    assert len(asked.questions) == 1
    identities.answered(TopicIdsAnswer({}, 0.0), 1.0)
    assert identities.belongs("t", "A", 1.0) is None, "a topic of which nothing is known may be another one"
    identities.step(1.0)
    assert len(asked.questions) == 2
    identities.step(2.0)
    assert len(asked.questions) == 2
    identities.step(1.0 + REPLY_TIMEOUT_S)
    assert len(asked.questions) == 3, "no answer came: it is not given up"
    assert reported(identities, 1.0 + REPLY_TIMEOUT_S, "A") == []
    assert identities.belongs("t", "A", 1.0) is True
    identities.step(1.0 + REPLY_TIMEOUT_S + CONFIRM_S)
    assert len(asked.questions) == 4, "the last one that was due before the id was known"
    identities.answered(TopicIdsAnswer({}, 1.0 + REPLY_TIMEOUT_S + CONFIRM_S), 1.0 + REPLY_TIMEOUT_S + CONFIRM_S)
    identities.step(CHECK_INTERVAL_S)
    assert len(asked.questions) == 4


def test_the_first_answer_about_an_unknown_topic_does_not_yet_decide_about_a_commit() -> None:
    identities, _ = known(Asked(), {})
    assert identities.belongs("t", "A", 1.0) is None
    reported(identities, 2.0, "B")
    assert identities.belongs("t", "A", 1.0) is None, "the broker that answered may be behind the others"
    reported(identities, 3.0, "B")
    assert identities.belongs("t", "A", 1.0) is False
    assert identities.recreated == set()


def test_a_topic_that_was_unknown_at_the_start_is_noticed_when_it_is_recreated() -> None:
    identities, _ = known(Asked(), {})
    reported(identities, 1.0, "A")
    assert reported(identities, 60.0, "B") == []
    assert reported(identities, 60.0 + CONFIRM_S, "B") == ["t"]


def test_a_changed_id_counts_when_two_answers_agree_and_are_far_enough_apart() -> None:
    asked = Asked()
    identities, _ = known(asked, {"t": "A"})
    assert reported(identities, 1.0, "B") == []
    identities.step(1.0 + CONFIRM_S - 0.1)
    assert asked.questions == []
    identities.step(1.0 + CONFIRM_S)
    assert len(asked.questions) == 1, "the second one is asked for as soon as it can count"
    assert reported(identities, CONFIRM_S, "B") == [], "too soon after the first"
    assert reported(identities, CONFIRM_S + 0.5, None) == [], "no answer"
    assert identities.ids == {"t": "A"}
    assert reported(identities, CONFIRM_S + 1.0, "B") == ["t"]
    assert identities.ids == {"t": "B"}
    assert identities.recreated == {"t"}


@pytest.mark.parametrize("contrary", ["A", "C"])
def test_a_contrary_answer_in_between_counts_against_it(contrary: str) -> None:
    identities, _ = known(Asked(), {"t": "A"})
    assert reported(identities, 1.0, "B") == []
    assert reported(identities, 3.0, contrary) == []
    assert reported(identities, 1.0 + CONFIRM_S, "B") == []
    assert identities.ids == {"t": "A"}
    assert reported(identities, 1.0 + 2 * CONFIRM_S, "B") == ["t"]


def test_an_answer_that_a_later_one_has_overtaken_is_ignored() -> None:
    identities, _ = known(Asked(), {"t": "A"})
    assert reported(identities, 1.0, "B") == []
    identities.answered(TopicIdsAnswer({"t": "A"}, 0.5), 2.0)
    assert reported(identities, 1.0 + CONFIRM_S, "B") == ["t"], (
        "what was asked for before the first answer is not contrary"
    )


def test_an_id_that_was_given_up_does_not_come_back_within_a_minute_but_may_later() -> None:
    identities, _ = known(Asked(), {"t": "A"})
    reported(identities, 0.0, "B")
    assert reported(identities, CONFIRM_S, "B") == ["t"]
    for at in (CONFIRM_S + 1, 2 * CONFIRM_S + 2):
        assert reported(identities, at, "A") == [], "a broker is behind the others"
    assert identities.ids == {"t": "B"}
    late = CONFIRM_S + FORMER_S
    assert reported(identities, late, "A") == []
    assert reported(identities, late + CONFIRM_S, "A") == ["t"], "no id is banned forever"


def test_only_an_answer_that_was_asked_for_after_the_event_decides() -> None:
    asked = Asked()
    identities, _ = known(asked, {"t": "A"})
    reported(identities, 10.0, "A")
    assert identities.belongs("t", "B", 11.0) is None, "however fresh it is"
    identities.step(11.0)
    assert len(asked.questions) == 1
    identities.answered(TopicIdsAnswer({}, 11.0), 11.5)
    assert identities.belongs("t", "B", 11.0) is None, "a question that failed is no answer"
    identities.step(11.5)
    assert len(asked.questions) == 2, "so it is asked again"
    reported(identities, 12.0, "A")
    assert identities.belongs("t", "B", 11.0) is False


def test_a_commit_under_the_new_id_waits_until_that_is_confirmed() -> None:
    identities, _ = known(Asked(), {"t": "A"})
    assert identities.belongs("t", "B", 1.0) is None
    reported(identities, 1.1, "B")
    assert identities.belongs("t", "B", 1.0) is None
    reported(identities, 1.2 + CONFIRM_S, "B")
    assert identities.belongs("t", "B", 1.0) is True
    assert identities.belongs("t", "A", 1.0) is False


def test_a_commit_without_an_id_or_under_the_known_one_is_trusted_at_once() -> None:
    identities, _ = known(Asked(), {"t": "A"})
    assert identities.belongs("t", "A", 1000.0) is True
    assert identities.belongs("t", "", 1000.0) is True


def test_an_offset_that_was_brought_from_another_cluster_is_trusted() -> None:
    identities, _ = known(Asked(), {"t": "A@here"})
    assert identities.belongs("t", "B@there", 1000.0) is True
    assert identities.belongs("t", "B@here", 1.0) is None


def test_without_an_answer_the_facts_of_the_start_apply() -> None:
    identities, _ = known(None, {"t": "A"})
    assert identities.belongs("t", "B", 1000.0) is False


def test_a_topic_that_is_deleted_is_missing_when_two_answers_agree(caplog: pytest.LogCaptureFixture) -> None:
    asked = Asked()
    identities, _ = known(asked, {"t": "A"})

    def answered(at: float, ids: Mapping[str, str | None]) -> set[str]:
        assert identities.answered(TopicIdsAnswer(ids, at), at) == []
        return identities.missing

    with caplog.at_level("WARNING", "keepfast.topics"):
        assert answered(30.0, {"t": None}) == set(), "a broker may be behind"
        assert answered(30.0 + CONFIRM_S, {}) == set(), "a question that failed is no answer"
        identities.step(30.0 + CONFIRM_S)
        assert len(asked.questions) == 1, "it is asked again soon"
        assert answered(31.0 + CONFIRM_S, {"t": None}) == {"t"}
        assert answered(32.0 + CONFIRM_S, {"t": None}) == {"t"}
        assert len(caplog.records) == 1
        assert answered(33.0 + CONFIRM_S, {}) == {"t"}
        assert answered(34.0 + CONFIRM_S, {"t": "A"}) == set()
        assert answered(40.0, {"t": None}) == set(), "it is gone again"
        assert answered(39.0, {"t": "A"}) == set(), "overtaken"
        assert answered(40.0 + CONFIRM_S, {"t": None}) == {"t"}
        assert answered(50.0, {"t": ""}) == set(), "its id is not known yet, but it is there"
        assert answered(51.0, {"t": None}) == set()
        assert answered(51.0 + CONFIRM_S, {"t": None}) == {"t"}
    identities.follow(("u",), {})
    assert identities.missing == set()
    for at in (70.0, 70.0 + CONFIRM_S):
        assert answered(at, {"t": None}) == set(), "it is not read any more"


def test_once_a_topic_is_known_to_be_missing_it_is_not_asked_more_often() -> None:
    asked = Asked()
    identities, _ = known(asked, {"t": "A"})
    identities.suspect(0.0)
    answers: tuple[dict[str, str | None], ...] = ({"t": None}, {}, {"t": None})
    for at, answer in zip((0.0, CONFIRM_S, CONFIRM_S + ASK_AGAIN_S), answers, strict=True):
        identities.step(at)
        identities.answered(TopicIdsAnswer(answer, at), at)
    assert (identities.missing, len(asked.questions)) == ({"t"}, 3), "a question that failed is soon asked again"
    identities.step(3 * CONFIRM_S)
    assert len(asked.questions) == 3
    identities.step(CONFIRM_S + ASK_AGAIN_S + CHECK_INTERVAL_S)
    assert len(asked.questions) == 4


@pytest.mark.parametrize("first", ["B", None])
def test_while_questions_fail_what_is_to_be_confirmed_is_asked_for_less_and_less_often(first: str | None) -> None:
    asked = Asked()
    identities, _ = known(asked, {"t": "A"})
    identities.answered(TopicIdsAnswer({"t": first}, 0.0), 0.0)
    at = 0.0
    while at < 1000:
        before = len(asked.questions)
        identities.step(at)
        if len(asked.questions) > before:
            identities.answered(TopicIdsAnswer({}, at), at)
        at += ASK_AGAIN_S / 2
    assert len(asked.questions) < 30
    identities.step(1000 + CHECK_INTERVAL_S)
    assert len(asked.questions) > before, "but at least as often as always"


def test_a_topic_that_matched_a_pattern_is_not_missing_when_it_goes() -> None:
    plan = Plan(name="c", group="g", topics=("t",), matched=frozenset({"t"}), topic_ids={"t": "A"})
    identities = Identities(plan, Asked(), ListMailbox(), 0.0, Events(plan.name, plan.group, ()))
    for at in (30.0, 30.0 + CONFIRM_S):
        identities.answered(TopicIdsAnswer({"t": None}, at), at)
    assert identities.missing == set()


def test_nothing_is_asked_while_no_topic_is_read() -> None:
    asked = Asked()
    identities, _ = known(asked, {"t": "A"})
    identities.follow((), {})
    identities.step(CHECK_INTERVAL_S)
    assert asked.questions == []
