"""Moves: finished when they are acknowledged, sent again until then, and what becomes of those that do not fit."""

from __future__ import annotations

from keepfast.core.errors import Fault, SinkError
from keepfast.core.records import Outgoing, Receipt, TopicPartition
from keepfast.core.retry_topics import ATTEMPTS, Tier, Tiers
from keepfast.core.runs import Attempt, FailedRecord, OrderedSet, Partition
from keepfast.core.verdicts import Move
from keepfast.deadletters.publisher import Publisher
from keepfast.engine.forwarding import RetryForwarder, Settled
from keepfast.testing.fakes.log import FakeMessage
from tests.support.fakes import FakeSink, ListMailbox, Outcome, hold

TOPIC = "orders.g.retry.5s"
TIERS = Tiers(group="g", delays_s=(5,), topics={TOPIC: Tier(TOPIC, "orders", 5, 1)})
VERDICT = Move(1, 5.0, "failed 4 times")
AWAY = SinkError("no answer", fault=Fault.RETRY)
TOO_LARGE = SinkError("too large", fault=Fault.TOO_LARGE)


class Stage:
    """A forwarder to retry topics, and what became of its records."""

    def __init__(self) -> None:
        self.sink, self.mailbox = FakeSink(hold), ListMailbox()
        self.finished: list[FailedRecord] = []
        self.stayed: list[FailedRecord] = []
        self.settling: OrderedSet[FailedRecord] = OrderedSet()
        publisher = Publisher(self.sink, topics={}, partitions={}, group="g", handler="h", app_version="")
        self.moving = RetryForwarder(
            TIERS,
            publisher,
            self.mailbox,
            self.settling,
            finished=self.finished.append,
            stay=lambda case, _: self.stayed.append(case),
        )

    @property
    def sent(self) -> list[Outgoing]:
        return self.sink.sent

    def begin(self) -> FailedRecord:
        message = FakeMessage(TopicPartition("orders", 0), 7, key=b"k", value=b"v")
        case = FailedRecord(Partition(TopicPartition("orders", 0), epoch=1, start=0), 0, message, (), 0.0)
        case.note(Attempt(1.0, "OSError"))
        case.verdict = VERDICT
        self.moving.begin(case, VERDICT, 1.0)
        return case

    def answer(self, outcome: Outcome, now: float) -> None:
        """The sink says what became of the last send, and the loop hears of it."""
        self.sink.held[-1][1](outcome)
        word = self.mailbox.items.pop()
        assert isinstance(word, Settled)
        self.moving.settled(word, now)


def test_a_record_is_finished_when_its_copy_is_acknowledged_and_not_before() -> None:
    stage = Stage()
    case = stage.begin()
    assert (len(stage.sent), list(stage.settling), stage.finished) == (1, [case], [])
    stage.answer(Receipt(TOPIC, 0, 0), 1.0)
    assert (list(stage.settling), stage.finished) == ([], [case])


def test_what_was_not_acknowledged_is_sent_again_the_same_and_later_each_time() -> None:
    stage = Stage()
    case = stage.begin()
    now = 0.0
    for delay_s in (0.5, 1.0, 2.0):
        stage.answer(AWAY, now)
        assert stage.moving.next_in(now) == delay_s
        assert stage.moving.status().red
        stage.moving.step(now + delay_s - 0.01)
        sent = len(stage.sent)
        now += delay_s
        stage.moving.step(now)
        assert len(stage.sent) == sent + 1
    assert all(outgoing is stage.sent[0] for outgoing in stage.sent), "built once"
    assert (stage.moving.status().since, stage.moving.status().why) == (0.0, "no answer")
    stage.answer(Receipt(TOPIC, 0, 0), now)
    assert stage.finished == [case]
    assert not stage.moving.status().red


def test_a_record_that_is_too_large_first_loses_its_attempts_and_then_stays() -> None:
    stage = Stage()
    case = stage.begin()
    assert ATTEMPTS in dict(stage.sent[0].headers)
    stage.answer(TOO_LARGE, 1.0)
    stage.moving.step(1.0)
    assert len(stage.sent) == 2
    assert ATTEMPTS not in dict(stage.sent[1].headers)
    assert (stage.sent[1].value, stage.sent[1].key) == (b"v", b"k")
    stage.answer(TOO_LARGE, 1.0)
    assert (stage.stayed, stage.finished, list(stage.settling)) == ([case], [], [])
    assert stage.moving.way(case) == (), "from now on there are no retry topics for it"


def test_word_about_a_partition_that_is_gone_counts_for_nothing() -> None:
    stage = Stage()
    case = stage.begin()
    stage.answer(AWAY, 0.0)
    case.dropped = True
    stage.moving.drop(case)
    stage.moving.step(10.0)
    assert (len(stage.sent), list(stage.settling)) == (1, [])
    stage.answer(Receipt(TOPIC, 0, 0), 10.0)
    assert stage.finished == []
    assert not stage.moving.status().red
