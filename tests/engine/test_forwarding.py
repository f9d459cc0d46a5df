"""Records on their way to another topic: sent until acknowledged, and what becomes of those that do not fit."""

from __future__ import annotations

import pytest

from keepfast.core.errors import Fault, SinkError, SpoolError
from keepfast.core.ports import Kept, OnKept
from keepfast.core.records import Outgoing, Receipt, TopicPartition
from keepfast.core.retry_topics import ATTEMPTS, Tier, Tiers, moved
from keepfast.core.runs import Attempt, FailedRecord, Partition
from keepfast.core.verdicts import Classification, DeadLetter
from keepfast.deadletters.publisher import Publisher
from keepfast.engine.events import Events
from keepfast.engine.forwarding import (
    TOPIC_UNAVAILABLE_S,
    BackOff,
    ForwardedRecord,
    Forwarder,
    Kind,
    NextStep,
    SendInstead,
    Settled,
    StayInPlace,
    ToSpool,
    after_failure,
)
from keepfast.telemetry.event_log import EventLog
from keepfast.testing.fakes.log import FakeMessage
from tests.support.fakes import FakeSink, ListMailbox, acknowledge, refuse

PLACE = TopicPartition("orders", 0)
RETRY_TOPIC = "orders.g.retry.5s"
TIERS = Tiers(group="g", delays_s=(5,), topics={RETRY_TOPIC: Tier(RETRY_TOPIC, "orders", 5, 1)})


class Spool:
    def __init__(self) -> None:
        self.kept: list[Outgoing] = []
        self.refuses = False
        self.knows = False

    def keep(self, outgoing: Outgoing, answer: OnKept) -> None:
        if self.refuses:
            answer(SpoolError("full", full=True))
        else:
            self.kept.append(outgoing)
            answer(Kept())

    def has(self, outgoing: Outgoing) -> bool:
        return self.knows


def failed(offset: int, value: bytes) -> FailedRecord:
    message = FakeMessage(PLACE, offset, key=b"k", value=value, headers=(), timestamp_ms=5)
    failed_record = FailedRecord(Partition(PLACE, epoch=1, start=0), offset, message, (), 0.0)
    failed_record.note(Attempt(1.0, "ValueError"))
    failed_record.found = Classification(kind="non-retryable", code="VALUE_INVALID", rule="value")
    return failed_record


class Scene:
    def __init__(self, *, spool: bool) -> None:
        self.mailbox, self.sink, self.now = ListMailbox(), FakeSink(), 100.0
        self.spool = Spool() if spool else None
        self.finished: list[tuple[ForwardedRecord, str]] = []
        self.stayed: list[FailedRecord] = []
        self.publisher = Publisher(
            self.sink,
            topics={"orders": "orders.dlq"},
            partitions={"orders.dlq": 1},
            group="g",
            handler="h",
            app_version="",
            spool=self.spool,
        )
        self.forwarder = Forwarder(
            self.publisher,
            self.mailbox,
            finished=lambda record, where, _: self.finished.append((record, where)),
            stays=lambda failed_record, _: self.stayed.append(failed_record),
            events=Events("c", "g", (EventLog(),)),
        )

    def dead_letter(self, offset: int = 0, *, size: int = 10) -> FailedRecord:
        failed_record = failed(offset, b"\xff" * size)
        letter = self.publisher.letter(failed_record, ValueError("x" * 2_000), DeadLetter("why", "CODE"))
        self.forwarder.begin(failed_record, "dead-letter", letter, self.now)
        self.turn()
        return failed_record

    def move(self) -> FailedRecord:
        """The sink has answered, and the loop has not read it yet."""
        failed_record = failed(7, b"v")
        attempts = [(attempt.at, attempt.error_type) for attempt in failed_record.attempts]
        copy = moved(failed_record.message, tiers=TIERS, step=1, wall_s=1.0, failures=1, attempts=attempts)
        self.forwarder.begin(failed_record, "move", copy, self.now)
        return failed_record

    def turn(self, passed_s: float = 0.0) -> None:
        self.now += passed_s
        self.forwarder.step(self.now)
        while items := self.mailbox.collect(0):
            for item in items:
                assert isinstance(item, Settled)
                self.forwarder.settled(item, self.now)

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
    plain.dead_letter()
    assert plain.places == ["topic"]
    assert len(plain.forwarder.settling) == 0
    assert not plain.forwarder.status("dead-letter").red


@pytest.mark.parametrize("fault", [Fault.RETRY, Fault.MISSING, Fault.REFUSED, Fault.FATAL, Fault.TOO_LARGE])
def test_without_a_spool_it_stays_red_and_is_tried_for_ever(plain: Scene, fault: Fault) -> None:
    plain.sink.decide = refuse(fault)
    plain.dead_letter()
    for _ in range(20):
        plain.turn(30.0)
    assert plain.finished == []
    assert len(plain.forwarder.settling) == 1
    status = plain.forwarder.status("dead-letter")
    assert (status.red, status.settling, status.refused, status.since) == (True, 1, 1, 100.0)
    assert status.why == "refused"
    assert len(plain.sink.sent) >= 20
    plain.sink.decide = acknowledge
    plain.turn(30.0)
    assert plain.places == ["topic"]
    assert not plain.forwarder.status("dead-letter").red


def test_each_wait_before_it_is_tried_again_is_longer_up_to_half_a_minute(plain: Scene) -> None:
    plain.sink.decide = refuse(Fault.RETRY)
    plain.dead_letter()
    waits_s = []
    for _ in range(8):
        waits_s.append(plain.forwarder.next_in(plain.now))
        plain.turn(waits_s[-1])
    assert waits_s == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert len(plain.sink.sent) == 9


def test_a_passing_fault_is_tried_twice_before_the_spool_gets_the_letter(spooled: Scene) -> None:
    spooled.sink.decide = refuse(Fault.RETRY)
    spooled.dead_letter()
    assert (len(spooled.sink.sent), spooled.places) == (1, [])
    spooled.turn(1.0)
    assert (len(spooled.sink.sent), spooled.places) == (2, ["spool"])


@pytest.mark.parametrize("fault", [Fault.MISSING, Fault.REFUSED, Fault.FATAL])
def test_what_does_not_pass_by_itself_goes_to_the_spool_at_once(spooled: Scene, fault: Fault) -> None:
    spooled.sink.decide = refuse(fault)
    spooled.dead_letter()
    assert (len(spooled.sink.sent), spooled.places) == (1, ["spool"])


def test_while_a_topic_takes_nothing_further_letters_go_to_the_spool_at_once(spooled: Scene) -> None:
    spooled.sink.decide = refuse(Fault.MISSING)
    spooled.dead_letter(0)
    spooled.dead_letter(1)
    assert (len(spooled.sink.sent), spooled.places) == (1, ["spool", "spool"])
    spooled.sink.decide = acknowledge
    spooled.now += TOPIC_UNAVAILABLE_S
    spooled.dead_letter(2)
    spooled.dead_letter(3)
    assert (len(spooled.sink.sent), spooled.places[2:]) == (3, ["topic", "topic"])


def test_a_letter_that_is_too_large_is_cut_first_and_the_spool_gets_it_whole(spooled: Scene) -> None:
    spooled.sink.decide = refuse(Fault.TOO_LARGE)
    spooled.dead_letter(0, size=3_000)
    sizes = [len(one.value or b"") for one in spooled.sink.sent]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) >= 3
    assert spooled.places == ["spool"]
    (kept,) = spool_of(spooled).kept
    assert kept == spooled.sink.sent[0]
    spooled.sink.decide = acknowledge
    spooled.dead_letter(1)
    assert spooled.places == ["spool", "topic"], "one that is too large says nothing about others"


def test_a_letter_that_fits_when_it_is_cut_is_published_at_once(spooled: Scene) -> None:
    too_large = refuse(Fault.TOO_LARGE)
    spooled.sink.decide = lambda one: (too_large if len(one.value or b"") > 2_000 else acknowledge)(one)
    spooled.dead_letter(0, size=100)
    assert spooled.places == ["topic"]
    assert spool_of(spooled).kept == []


def test_a_topic_made_again_with_fewer_partitions_gets_the_letter_by_its_key(plain: Scene) -> None:
    missing = refuse(Fault.MISSING, "_UNKNOWN_PARTITION")
    plain.sink.decide = lambda one: (acknowledge if one.partition is None else missing)(one)
    plain.dead_letter()
    assert plain.places == ["topic"]


def test_when_the_spool_refuses_too_both_are_tried_until_one_takes_it(spooled: Scene) -> None:
    spooled.sink.decide, spool_of(spooled).refuses = refuse(Fault.REFUSED), True
    spooled.dead_letter()
    for _ in range(5):
        spooled.turn(30.0)
    assert spooled.finished == []
    assert spooled.forwarder.status("dead-letter").red
    assert len(spooled.sink.sent) == 6
    spool_of(spooled).refuses = False
    spooled.turn(30.0)
    assert spooled.places == ["spool"]
    assert not spooled.forwarder.status("dead-letter").red


def test_kafka_wins_if_it_answers_first(spooled: Scene) -> None:
    spooled.sink.decide, spool_of(spooled).refuses = refuse(Fault.REFUSED), True
    spooled.dead_letter()
    spooled.sink.decide = acknowledge
    spooled.turn(30.0)
    assert spooled.places == ["topic"]


def test_a_letter_that_the_spool_has_from_before_needs_no_sending(spooled: Scene) -> None:
    spool_of(spooled).knows = True
    spooled.dead_letter()
    assert (spooled.sink.sent, spooled.places) == ([], ["spool"])


def test_an_answer_about_a_record_that_was_dropped_has_no_effect(spooled: Scene) -> None:
    spooled.sink.decide = refuse(Fault.RETRY)
    failed_record = spooled.dead_letter()
    [record] = spooled.forwarder
    spooled.forwarder.drop(failed_record)
    for outcome in (Receipt("orders.dlq", 0, 0), Kept(), SinkError("no", fault=Fault.RETRY), SpoolError("no")):
        spooled.forwarder.settled(Settled(record, outcome), spooled.now)
    spooled.turn(60.0)
    assert (spooled.finished, len(spooled.sink.sent)) == ([], 1)
    assert not spooled.forwarder.status("dead-letter").red


def test_an_answer_about_an_earlier_send_of_the_same_record_has_no_effect(plain: Scene) -> None:
    failed_record = plain.move()
    [before] = plain.forwarder
    plain.forwarder.drop(failed_record)
    plain.mailbox.collect(0)
    plain.forwarder.begin(failed_record, "dead-letter", before.whole, plain.now)
    plain.forwarder.settled(Settled(before, Receipt(RETRY_TOPIC, 0, 0)), plain.now)
    assert (plain.finished, list(plain.forwarder.settling)) == ([], [failed_record])


# -- moves


def test_a_record_is_finished_when_its_copy_is_acknowledged_and_not_before(plain: Scene) -> None:
    failed_record = plain.move()
    assert (len(plain.sink.sent), list(plain.forwarder.settling), plain.finished) == (1, [failed_record], [])
    plain.turn()
    assert (list(plain.forwarder.settling), [record.failed_record for record, _ in plain.finished]) == (
        [],
        [failed_record],
    )
    assert plain.places == ["topic"]


def test_a_copy_that_is_not_acknowledged_is_sent_again_the_same_and_later_each_time(spooled: Scene) -> None:
    spooled.sink.decide = refuse(Fault.RETRY)
    spooled.move()
    spooled.turn()
    waits_s = []
    for _ in range(8):
        waits_s.append(spooled.forwarder.next_in(spooled.now))
        assert spooled.forwarder.status("move").red
        spooled.turn(waits_s[-1] - 0.01)
        assert len(spooled.sink.sent) == len(waits_s)
        spooled.turn(0.01)
    assert waits_s == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert all(outgoing is spooled.sink.sent[0] for outgoing in spooled.sink.sent), "built once"
    status = spooled.forwarder.status("move")
    assert (status.settling, status.refused, status.since, status.why) == (1, 1, 100.0, "refused")
    assert (spooled.forwarder.failures, spool_of(spooled).kept) == ({"dead-letter": 0, "move": 9}, [])
    assert not spooled.forwarder.status("dead-letter").red
    spooled.sink.decide = acknowledge
    spooled.turn(30.0)
    assert spooled.places == ["topic"]
    assert not spooled.forwarder.status("move").red


def test_a_copy_that_is_too_large_first_loses_its_attempts_and_then_its_record_stays(plain: Scene) -> None:
    plain.sink.decide = refuse(Fault.TOO_LARGE)
    failed_record = plain.move()
    plain.turn()
    whole, shorter = plain.sink.sent
    assert ATTEMPTS in dict(whole.headers)
    assert ATTEMPTS not in dict(shorter.headers)
    assert (shorter.value, shorter.key) == (b"v", b"k")
    assert (plain.stayed, plain.finished, list(plain.forwarder.settling)) == ([failed_record], [], [])
    assert plain.forwarder.next_in(plain.now) == float("inf")


# -- what comes after a failed send

LETTER = Outgoing("orders.dlq", b"v", partition=3)


@pytest.mark.parametrize(
    ("kind", "fault", "failures", "has_spool", "step"),
    [
        ("dead-letter", Fault.RETRY, 1, False, BackOff(0.5)),
        ("dead-letter", Fault.RETRY, 1, True, BackOff(0.5)),
        ("dead-letter", Fault.RETRY, 2, True, ToSpool()),
        ("dead-letter", Fault.REFUSED, 1, True, ToSpool()),
        ("dead-letter", Fault.TOO_LARGE, 1, True, ToSpool()),
        ("dead-letter", Fault.TOO_LARGE, 3, False, BackOff(2.0)),
        ("move", Fault.RETRY, 3, True, BackOff(2.0)),
        ("move", Fault.REFUSED, 100, True, BackOff(30.0)),
        ("move", Fault.TOO_LARGE, 1, True, StayInPlace()),
    ],
)
def test_the_next_step_depends_on_the_kind_the_fault_and_the_spool(
    kind: Kind, fault: Fault, failures: int, has_spool: bool, step: NextStep
) -> None:
    error = SinkError("no", fault=fault)
    assert after_failure(kind, LETTER, error, failures=failures, has_spool=has_spool) == step


def test_a_letter_whose_partition_is_gone_is_sent_by_its_key() -> None:
    error = SinkError("no", fault=Fault.MISSING, code="_UNKNOWN_PARTITION")
    assert after_failure("dead-letter", LETTER, error, failures=1) == SendInstead(Outgoing("orders.dlq", b"v"))
