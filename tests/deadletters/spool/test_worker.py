"""Taking letters in and sending them on: order, identity, pauses, letters that Kafka never takes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from keepfast.core.errors import Fault, SpoolError
from keepfast.core.ports import Kept
from keepfast.core.records import Outgoing
from keepfast.deadletters.spool.letters import SpooledLetter
from keepfast.deadletters.spool.memory import MemoryStore
from keepfast.deadletters.spool.store import Head
from keepfast.deadletters.spool.worker import MAX_PAUSE_S, WINDOW, Keep, RetryNow, SpoolAnswer, SpoolWorker
from tests.deadletters.spool.letters import letter, numbers, outgoing
from tests.support.fakes import FakeSink, ManualClock, acknowledge, hold, refuse

Outcome = Kept | SpoolError


class Desk:
    """A worker with everything around it."""

    def __init__(self, *, max_bytes: int = 10**7) -> None:
        self.clock, self.sink = ManualClock(), FakeSink(hold)
        self.store = MemoryStore(max_bytes=max_bytes)
        self.answers: list[SpoolAnswer] = []
        self.worker = SpoolWorker(self.store, self.sink, self.clock, self.answers.append)
        self.worker.open()

    def keep(self, *letters: Outgoing) -> list[Outcome]:
        on_kept: list[Outcome] = []
        self.worker.take([Keep(one, on_kept.append) for one in letters], self.clock.now)
        return on_kept

    def go_on(self, passed_s: float = 0.0) -> list[int]:
        """Time passes, answers are heard, letters go out; tells which."""
        self.clock.now += passed_s
        before = len(self.sink.sent)
        answers, self.answers[:] = list(self.answers), []
        self.worker.take(answers, self.clock.now)
        self.worker.step(self.clock.now)
        return numbers(self.sink.sent[before:])

    @property
    def left(self) -> list[int]:
        return numbers([self.store.read(head).outgoing for head in self.store.heads(10_000, _every)])


def _every(head: Head) -> bool:
    return True


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_letters_are_sent_on_oldest_first_and_removed_when_acknowledged(desk: Desk) -> None:
    assert desk.keep(outgoing(1), outgoing(2)) == [Kept(), Kept()]
    assert desk.keep(outgoing(3)) == [Kept()]
    assert desk.go_on() == [1, 2, 3]
    assert desk.left == [1, 2, 3]
    assert desk.go_on(100) == [], "they are on their way"
    desk.sink.answer()
    assert desk.go_on() == []
    assert desk.left == []
    assert desk.worker.status.sent_on == 3
    assert [one.value for one in desk.sink.sent] == [outgoing(number).value for number in (1, 2, 3)]


def test_what_cannot_be_removed_keeps_no_other_letter_back(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    removed = desk.store.remove

    def refused(heads: Sequence[Head]) -> None:
        raise SpoolError("no room to note it")

    desk.keep(*(outgoing(number) for number in range(3 * WINDOW)))
    monkeypatch.setattr(desk.store, "remove", refused)
    sent = desk.go_on()
    for _ in range(10):
        desk.sink.answer()
        sent += desk.go_on(1.0)
    assert sent == list(range(3 * WINDOW))
    assert desk.left == sent
    monkeypatch.setattr(desk.store, "remove", removed)
    assert desk.go_on(MAX_PAUSE_S) == []
    assert desk.left == []


def test_only_so_many_are_on_their_way_at_a_time(desk: Desk) -> None:
    desk.keep(*(outgoing(number) for number in range(WINDOW + 10)))
    assert desk.go_on() == list(range(WINDOW))
    desk.sink.answer()
    assert desk.go_on() == list(range(WINDOW, WINDOW + 10))


def test_a_large_letter_goes_alone(desk: Desk) -> None:
    desk.keep(*(outgoing(number, size=2_500_000) for number in range(2)))
    assert desk.go_on() == [0]
    desk.sink.answer()
    assert desk.go_on() == [1]


def test_who_says_try_again_gets_the_oldest_tried_at_once_and_the_others_behind_it(desk: Desk) -> None:
    desk.keep(*(outgoing(number) for number in range(5)))
    desk.go_on()
    desk.sink.answer(refuse(Fault.RETRY))
    assert desk.go_on() == []
    desk.worker.take([RetryNow()], desk.clock.now)
    assert desk.go_on() == [0]
    desk.sink.answer()
    assert desk.go_on() == [1, 2, 3, 4]


def test_while_kafka_does_not_answer_one_letter_at_a_time_finds_out(desk: Desk) -> None:
    desk.keep(*(outgoing(number) for number in range(5)))
    assert len(desk.go_on()) == 5
    desk.sink.answer(refuse(Fault.RETRY))
    assert desk.go_on() == []
    assert desk.go_on(0.5) == []
    assert desk.go_on(0.6) == [0]
    desk.sink.answer(refuse(Fault.RETRY))
    assert desk.go_on() == []
    assert desk.go_on(1.1) == [], "pauses get longer"
    assert desk.go_on(1.0) == [0]
    desk.sink.answer()
    assert desk.go_on() == [1, 2, 3, 4]
    assert desk.left == [1, 2, 3, 4]


def test_pauses_are_bounded(desk: Desk) -> None:
    desk.keep(outgoing(1))
    desk.go_on()
    for _ in range(20):
        desk.sink.answer(refuse(Fault.MISSING))
        desk.go_on()
        assert desk.go_on(30.1) == [1]


def test_a_topic_that_takes_nothing_does_not_hold_up_others(desk: Desk) -> None:
    desk.keep(outgoing(1, topic="a.dlq"), outgoing(2, topic="b.dlq"), outgoing(3, topic="a.dlq"))
    desk.go_on()
    desk.sink.answer(lambda one: (refuse(Fault.MISSING) if one.topic == "a.dlq" else acknowledge)(one))
    desk.go_on()
    assert desk.left == [1, 3]
    desk.keep(outgoing(4, topic="b.dlq"))
    assert desk.go_on() == [4]


def test_a_letter_that_is_too_large_is_made_smaller_and_then_stays_without_blocking(desk: Desk) -> None:
    desk.keep(outgoing(1, stack="x" * 5_000), outgoing(2))
    assert desk.go_on() == [1, 2]
    for _ in range(6):
        desk.sink.answer(lambda one: (refuse(Fault.TOO_LARGE) if numbers([one]) == [1] else acknowledge)(one))
        desk.go_on()
    assert desk.left == [1]
    (stuck,) = desk.worker.status.stuck
    assert stuck.letter == "g/orders/0/1"
    assert not desk.worker.left(), "nothing that could be sent on"
    desk.keep(outgoing(3))
    assert desk.go_on() == [3]
    desk.sink.answer()
    assert desk.go_on() == []
    assert desk.go_on(601) == [1], "the topic's limit may have been raised: the whole letter, once in a while"
    desk.sink.answer()
    desk.go_on()
    assert desk.left == []
    assert desk.worker.status.stuck == ()


def test_letters_that_were_too_large_are_tried_when_the_smallest_of_them_goes_through(desk: Desk) -> None:
    desk.keep(*(outgoing(number, size=1_000 * number) for number in (3, 1, 2)))
    desk.go_on()
    for _ in range(6):
        desk.sink.answer(refuse(Fault.TOO_LARGE))
        desk.go_on()
    assert [one.letter for one in desk.worker.status.stuck] == [f"g/orders/0/{number}" for number in (3, 1, 2)]
    tried: list[int] = []
    for _ in range(4):  # two minutes
        tried += desk.go_on(31)
        while desk.sink.held:
            desk.sink.answer(refuse(Fault.TOO_LARGE))
            desk.go_on()
    assert 1 in tried, "the smallest is tried again and again"
    assert tried.count(3) <= 1, "the others are not"
    assert desk.go_on(31) == [1]
    desk.sink.answer()  # the limit was raised
    assert sorted(desk.go_on()) == [2, 3], "at once"
    desk.sink.answer()
    desk.go_on()
    assert (desk.left, desk.worker.status.stuck) == ([], ())


def test_a_letter_that_could_not_be_read_for_a_moment_is_tried_soon(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(head: Head) -> SpooledLetter:
        raise SpoolError("The spool: could not read it: it does not answer.")

    desk.keep(outgoing(1))
    with monkeypatch.context() as patch:
        patch.setattr(desk.store, "read", away)
        assert desk.go_on() == []
    assert desk.go_on(31) == [1]


def test_a_spool_that_was_full_says_so_only_until_it_has_room() -> None:
    small = Desk(max_bytes=6_000)
    assert small.keep(outgoing(1, size=3_000)) == [Kept()]
    small.go_on()
    (refused,) = small.keep(outgoing(2, size=3_000))
    assert isinstance(refused, SpoolError)
    small.go_on(6)
    assert "full" in small.worker.status.refusing, "it still is"
    small.sink.answer()
    small.go_on(1)
    assert small.worker.step(small.clock.now) <= 5, "it looks again soon, whether or not a letter comes"
    small.go_on(6)
    assert small.worker.status.refusing == ""


def test_a_stuck_letter_that_others_have_removed_is_forgotten(desk: Desk) -> None:
    desk.keep(outgoing(1))
    desk.go_on()
    for _ in range(6):
        desk.sink.answer(refuse(Fault.TOO_LARGE))
        desk.go_on()
    assert len(desk.worker.status.stuck) == 1
    desk.store.remove(desk.store.heads(1, lambda _: True))
    desk.go_on(6)
    assert not desk.worker.status.stuck


def test_a_topic_made_again_with_fewer_partitions_gets_its_letters_by_key(desk: Desk) -> None:
    desk.keep(outgoing(1))
    desk.go_on()
    desk.sink.answer(refuse(Fault.MISSING, "_UNKNOWN_PARTITION"))
    assert desk.go_on() == [1]
    assert [one.partition for one in desk.sink.sent] == [0, None]


def test_copies_of_a_letter_are_kept_and_sent_once(desk: Desk) -> None:
    assert desk.keep(outgoing(1), outgoing(1)) == [Kept(), Kept()]
    assert desk.keep(outgoing(1)) == [Kept()]
    assert desk.go_on() == [1]
    assert desk.keep(outgoing(1)) == [Kept()], "while it is on its way"
    desk.sink.answer()
    assert desk.go_on() == []
    assert desk.keep(outgoing(1)) == [Kept()], "and after it was sent on"
    assert desk.go_on() == []
    assert desk.left == []
    assert desk.worker.knows(letter(1).identity)


class Careless(MemoryStore):
    """Keeps copies, as a store does that two processes wrote to; and gives nothing away when told so."""

    fails = False

    def add(self, letters: object) -> list[Head]:
        found: list[Head] = []
        for one in letters:  # type: ignore[attr-defined]
            self._identities.pop(one.identity, None)
            found += super().add([one])
        return found

    def remove(self, heads: object) -> None:
        if self.fails:
            raise SpoolError("no")
        super().remove(heads)  # type: ignore[arg-type]


def test_copies_in_the_store_are_sent_once_and_both_removed(desk: Desk) -> None:
    store = desk.store = desk.worker._store = Careless(max_bytes=10**6)
    store.add([letter(1), letter(1), letter(2)])
    assert desk.go_on() == [1, 2]
    assert desk.go_on(1) == [], "while its copy is on its way"
    desk.sink.answer()
    assert desk.go_on() == []
    assert desk.left == []


def test_what_kafka_has_and_the_store_does_not_let_go_is_not_sent_again(desk: Desk) -> None:
    store = desk.store = desk.worker._store = Careless(max_bytes=10**6)
    store.add([letter(1)])
    store.fails = True
    assert desk.go_on() == [1]
    desk.sink.answer()
    for _ in range(5):
        assert desk.go_on(40) == []
    store.fails = False
    desk.go_on(40)
    assert desk.left == []


def test_a_letter_that_does_not_fit_is_refused_and_those_beside_it_are_not() -> None:
    desk = Desk(max_bytes=5_000)
    on_kept = desk.keep(outgoing(1), outgoing(2, size=50_000), outgoing(3))
    assert [type(one) for one in on_kept] == [Kept, SpoolError, Kept]
    assert desk.left == [1, 3]
    assert desk.worker.status.refusing == ""
    desk.keep(outgoing(2, size=50_000))
    assert "full" in desk.worker.status.refusing


def test_nothing_is_sent_after_stop_draining_but_answers_are_processed(desk: Desk) -> None:
    desk.keep(outgoing(1))
    assert desk.go_on() == [1]
    desk.worker.stop_draining()
    desk.keep(outgoing(2))
    desk.sink.answer()
    assert desk.go_on(100) == []
    assert desk.left == [2]


def test_the_status_says_why_kafka_does_not_take_the_letters_until_it_does(desk: Desk) -> None:
    desk.keep(outgoing(1))
    desk.sink.decide = refuse(Fault.MISSING)
    desk.go_on()
    desk.go_on()
    assert desk.worker.status.waits == "refused"
    desk.sink.decide = acknowledge
    desk.go_on(60.0)
    desk.go_on()
    assert (desk.worker.status.waits, desk.left) == ("", [])
