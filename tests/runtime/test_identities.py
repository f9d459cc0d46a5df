"""Which topic a name stands for: asked again and again, and believed with care."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from holdfast.runtime.identities import FRESH_S, LOOK_EVERY_S, PATIENCE_S, Identities, TopicsTold
from holdfast.runtime.plan import Plan


class Asked:
    """Keeps the questions; the test answers them."""

    def __init__(self) -> None:
        self.questions: list[tuple[Sequence[str], Callable[[Mapping[str, str]], None]]] = []

    def ask(self, topics: Sequence[str], told: Callable[[Mapping[str, str]], None]) -> None:
        self.questions.append((topics, told))


class Box:
    def __init__(self) -> None:
        self.items: list[Any] = []

    def post(self, item: Any) -> None:
        self.items.append(item)

    def collect(self, timeout_s: float) -> list[Any]:
        return self.items


def known(asked: Asked | None, ids: Mapping[str, str]) -> tuple[Identities, Box]:
    box = Box()
    plan = Plan(name="c", group="g", topics=("t",), topic_ids=ids)
    return Identities(plan, asked, box, 0.0), box


def test_it_is_asked_every_minute_and_not_while_a_question_is_open() -> None:
    asked = Asked()
    identities, box = known(asked, {"t": "A"})
    identities.step(LOOK_EVERY_S - 1)
    assert asked.questions == []
    identities.step(LOOK_EVERY_S)
    identities.suspect(LOOK_EVERY_S + 1)
    identities.step(LOOK_EVERY_S + 1)
    assert [topics for topics, _ in asked.questions] == [("t",)]
    asked.questions[0][1]({"t": "A"})
    assert box.items == [TopicsTold({"t": "A"})]
    assert identities.told(box.items[0], LOOK_EVERY_S + 2) == []
    identities.step(2 * LOOK_EVERY_S)
    assert len(asked.questions) == 2
    identities.step(3 * LOOK_EVERY_S)
    assert len(asked.questions) == 3, "one that is not answered is asked again"
    assert PATIENCE_S < LOOK_EVERY_S


def test_a_suspicion_asks_at_once_unless_the_answer_is_fresh() -> None:
    asked = Asked()
    identities, _ = known(asked, {"t": "A"})
    identities.suspect(FRESH_S - 1)
    identities.step(FRESH_S - 1)
    assert asked.questions == []
    identities.suspect(FRESH_S)
    identities.step(FRESH_S)
    assert len(asked.questions) == 1


def test_where_the_broker_tells_no_ids_nobody_is_asked() -> None:
    asked = Asked()
    identities, _ = known(asked, {})
    identities.step(10 * LOOK_EVERY_S)
    assert asked.questions == []
    assert identities.belongs("t", "A", 0.0) is True


def test_an_id_that_was_given_up_does_not_come_back() -> None:
    identities, _ = known(Asked(), {"t": "A"})
    assert identities.told(TopicsTold({"t": "B"}), 1.0) == ["t"]
    assert identities.told(TopicsTold({"t": "A"}), 2.0) == [], "a broker is behind the others"
    assert identities.ids == {"t": "B"}
    assert identities.told(TopicsTold({}), 3.0) == [], "deleted, or not to be seen right now"
    assert identities.ids == {"t": "B"}


@pytest.mark.parametrize(
    ("written", "now", "belongs"),
    [
        ("A", 1000.0, True),
        ("", 1000.0, True),
        ("B", FRESH_S - 1, False),
        ("B", FRESH_S + 1, None),
        ("old", 1000.0, False),
    ],
)
def test_a_commit_under_another_id_is_looked_into_before_it_is_distrusted(
    written: str, now: float, belongs: bool | None
) -> None:
    asked = Asked()
    identities, _ = known(asked, {"t": "old"})
    identities.told(TopicsTold({"t": "A"}), 0.0)
    assert identities.belongs("t", written, now) is belongs
    identities.step(now)
    assert (len(asked.questions) == 1) == (belongs is None or now >= LOOK_EVERY_S)


def test_an_offset_that_was_brought_from_another_cluster_is_trusted() -> None:
    identities, _ = known(Asked(), {"t": "A@here"})
    assert identities.belongs("t", "B@there", 1000.0) is True
    assert identities.belongs("t", "B@here", 1.0) is False


def test_where_nobody_can_be_asked_what_was_known_at_the_start_decides() -> None:
    identities, _ = known(None, {"t": "A"})
    assert identities.belongs("t", "B", 1000.0) is False
