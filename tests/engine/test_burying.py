"""Letters between Kafka and the spool: which is tried when, and when a record is finished."""

from __future__ import annotations

import pytest

from keepfast.core.errors import Fault, SinkError, SpoolError
from keepfast.core.ports import Keeping, Kept
from keepfast.core.records import Outgoing, Receipt, TopicPartition
from keepfast.core.runs import Attempt, FailedRecord, Partition
from keepfast.core.verdicts import DeadLetter
from keepfast.deadletters.publisher import Publisher
from keepfast.engine.forwarding import SHUT_S, DeadLetterForwarder, Settled
from keepfast.testing.fakes.log import FakeMessage
from tests.support.fakes import FakeSink, ListMailbox, acknowledge, refuse

PLACE = TopicPartition("orders", 0)


class Spool:
    def __init__(self) -> None:
        self.kept: list[Outgoing] = []
        self.refuses = False
        self.knows = False

    def keep(self, outgoing: Outgoing, told: Keeping) -> None:
        if self.refuses:
            told(SpoolError("full", full=True))
        else:
            self.kept.append(outgoing)
            told(Kept())

    def has(self, outgoing: Outgoing) -> bool:
        return self.knows


class Scene:
    def __init__(self, *, spool: bool) -> None:
        self.mailbox, self.sink, self.now = ListMailbox(), FakeSink(), 100.0
        self.spool = Spool() if spool else None
        self.finished: list[tuple[FailedRecord, str]] = []
        self.publisher = Publisher(
            self.sink,
            topics={"orders": "orders.dlq"},
            partitions={"orders.dlq": 1},
            group="g",
            handler="h",
            app_version="",
            spool=self.spool,
        )
        self.burying = DeadLetterForwarder(
            self.publisher, self.mailbox, group="g", finished=lambda case, where, _: self.finished.append((case, where))
        )

    def bury(self, offset: int = 0, *, size: int = 10) -> FailedRecord:
        message = FakeMessage(PLACE, offset, key=b"k", value=b"\xff" * size, headers=(), timestamp_ms=5)
        case = FailedRecord(Partition(PLACE, epoch=1, start=0), offset, message, (), 0.0)
        case.note(Attempt(1.0, "ValueError"))
        case.verdict = verdict = DeadLetter("why", "CODE")
        case.outgoing = self.publisher.letter(case, ValueError("x" * 2_000), verdict)
        self.burying.begin(case, self.now)
        self.turn()
        return case

    def turn(self, passed_s: float = 0.0) -> None:
        self.now += passed_s
        self.burying.step(self.now)
        while items := self.mailbox.collect(0):
            for item in items:
                assert isinstance(item, Settled)
                self.burying.settled(item, self.now)

    @property
    def places(self) -> list[str]:
        return [where for _, where in self.finished]


@pytest.fixture
def plain() -> Scene:
    return Scene(spool=False)


@pytest.fixture
def spooled() -> Scene:
    return Scene(spool=True)


def spool_of(scene: Scene) -> Spool:
    assert scene.spool is not None
    return scene.spool


def test_a_letter_that_is_acknowledged_finishes_its_record(plain: Scene) -> None:
    plain.bury()
    assert plain.places == ["topic"]
    assert len(plain.burying.settling) == 0
    assert not plain.burying.status().red


@pytest.mark.parametrize("fault", [Fault.RETRY, Fault.MISSING, Fault.REFUSED, Fault.FATAL, Fault.TOO_LARGE])
def test_without_a_spool_it_stays_red_and_is_tried_for_ever(plain: Scene, fault: Fault) -> None:
    plain.sink.decide = refuse(fault)
    plain.bury()
    for _ in range(20):
        plain.turn(30.0)
    assert plain.finished == []
    assert len(plain.burying.settling) == 1
    status = plain.burying.status()
    assert (status.red, status.settling, status.refused, status.since) == (True, 1, 1, 100.0)
    assert status.why == "refused"
    assert len(plain.sink.sent) >= 20
    plain.sink.decide = acknowledge
    plain.turn(30.0)
    assert plain.places == ["topic"]
    assert not plain.burying.status().red


def test_each_wait_before_it_is_tried_again_is_longer_up_to_half_a_minute(plain: Scene) -> None:
    plain.sink.decide = refuse(Fault.RETRY)
    plain.bury()
    waits_s = []
    for _ in range(8):
        waits_s.append(plain.burying.next_in(plain.now))
        plain.turn(waits_s[-1])
    assert waits_s == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert len(plain.sink.sent) == 9


def test_a_passing_fault_is_tried_twice_before_the_spool_gets_the_letter(spooled: Scene) -> None:
    spooled.sink.decide = refuse(Fault.RETRY)
    spooled.bury()
    assert (len(spooled.sink.sent), spooled.places) == (1, [])
    spooled.turn(1.0)
    assert (len(spooled.sink.sent), spooled.places) == (2, ["spool"])


@pytest.mark.parametrize("fault", [Fault.MISSING, Fault.REFUSED, Fault.FATAL])
def test_what_does_not_pass_by_itself_goes_to_the_spool_at_once(spooled: Scene, fault: Fault) -> None:
    spooled.sink.decide = refuse(fault)
    spooled.bury()
    assert (len(spooled.sink.sent), spooled.places) == (1, ["spool"])


def test_while_a_topic_takes_nothing_further_letters_go_to_the_spool_at_once(spooled: Scene) -> None:
    spooled.sink.decide = refuse(Fault.MISSING)
    spooled.bury(0)
    spooled.bury(1)
    assert (len(spooled.sink.sent), spooled.places) == (1, ["spool", "spool"])
    spooled.sink.decide = acknowledge
    spooled.now += SHUT_S
    spooled.bury(2)
    spooled.bury(3)
    assert (len(spooled.sink.sent), spooled.places[2:]) == (3, ["topic", "topic"])


def test_a_letter_that_is_too_large_is_cut_first_and_the_spool_gets_it_whole(spooled: Scene) -> None:
    spooled.sink.decide = refuse(Fault.TOO_LARGE)
    spooled.bury(0, size=3_000)
    sizes = [len(one.value or b"") for one in spooled.sink.sent]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) >= 3
    assert spooled.places == ["spool"]
    (kept,) = spool_of(spooled).kept
    assert kept == spooled.sink.sent[0]
    spooled.sink.decide = acknowledge
    spooled.bury(1)
    assert spooled.places == ["spool", "topic"], "one that is too large says nothing about others"


def test_a_letter_that_fits_when_it_is_cut_is_published_at_once(spooled: Scene) -> None:
    too_large = refuse(Fault.TOO_LARGE)
    spooled.sink.decide = lambda one: (too_large if len(one.value or b"") > 2_000 else acknowledge)(one)
    spooled.bury(0, size=100)
    assert spooled.places == ["topic"]
    assert spool_of(spooled).kept == []


def test_a_topic_made_again_with_fewer_partitions_gets_the_letter_by_its_key(plain: Scene) -> None:
    missing = refuse(Fault.MISSING, "_UNKNOWN_PARTITION")
    plain.sink.decide = lambda one: (acknowledge if one.partition is None else missing)(one)
    plain.bury()
    assert plain.places == ["topic"]


def test_when_the_spool_refuses_too_both_are_tried_until_one_takes_it(spooled: Scene) -> None:
    spooled.sink.decide, spool_of(spooled).refuses = refuse(Fault.REFUSED), True
    spooled.bury()
    for _ in range(5):
        spooled.turn(30.0)
    assert spooled.finished == []
    assert spooled.burying.status().red
    assert len(spooled.sink.sent) == 6
    spool_of(spooled).refuses = False
    spooled.turn(30.0)
    assert spooled.places == ["spool"]
    assert not spooled.burying.status().red


def test_kafka_wins_if_it_answers_first(spooled: Scene) -> None:
    spooled.sink.decide, spool_of(spooled).refuses = refuse(Fault.REFUSED), True
    spooled.bury()
    spooled.sink.decide = acknowledge
    spooled.turn(30.0)
    assert spooled.places == ["topic"]


def test_a_letter_that_the_spool_has_from_before_needs_no_sending(spooled: Scene) -> None:
    spool_of(spooled).knows = True
    spooled.bury()
    assert (spooled.sink.sent, spooled.places) == ([], ["spool"])


def test_word_about_a_case_that_was_let_go_counts_for_nothing(spooled: Scene) -> None:
    spooled.sink.decide = refuse(Fault.RETRY)
    case = spooled.bury()
    case.dropped = True
    spooled.burying.drop(case)
    for outcome in (Receipt("orders.dlq", 0, 0), Kept(), SinkError("no", fault=Fault.RETRY), SpoolError("no")):
        spooled.burying.settled(Settled(case, outcome), spooled.now)
    spooled.turn(60.0)
    assert spooled.finished == []
    assert not spooled.burying.status().red
