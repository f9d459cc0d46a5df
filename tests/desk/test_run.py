"""A replay run against a sink in memory: bytes, refusals, ends, rates and signals. Kafka's part is in tests/cli."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from keepfast.core.errors import Fault, SinkError
from keepfast.core.records import Outgoing, Receipt, Record
from keepfast.core.replays import ReplayMark
from keepfast.deadletters.letter import Letter
from keepfast.deadletters.writing import write
from keepfast.desk import run as run_module
from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.cases import CaseState
from keepfast.desk.database import Database
from keepfast.desk.facts import Fact, Mark, Outcome, RunFact, Sent, chunks_of, fact_of, fact_record
from keepfast.desk.index import Index
from keepfast.desk.index_writer import IndexWriter
from keepfast.desk.letters import StoredLetter
from keepfast.desk.plan import Planner, ReplayPolicy
from keepfast.desk.run import ReplayRun
from tests.support.letters import letter

DLQ, DESK, TOPIC = "orders.payment.dlq", "keepfast.desk", "orders.payment.v1"


class Bench:
    """Letters, an index of them in memory, and a sink that keeps what is committed. Implements `RunDesk`, `RunSink`."""

    def __init__(self, letters: Sequence[Letter], policy: ReplayPolicy | None = None, *, resolved_by: str = "") -> None:
        """`resolved_by`: a run that has got all of them through before this one is planned."""
        self.policy = policy or ReplayPolicy()
        database = Database()
        self.index, self._writer = Index(database), IndexWriter(database)
        self._records = [
            Record(DLQ, 0, number, one.key, *_written(one), timestamp_ms=1) for number, one in enumerate(letters)
        ]
        stored = [StoredLetter.of(one) for one in self._records]
        self._writer.add_letters(stored, topic=DLQ, topic_id="x", ends={})
        if resolved_by:
            self.settle(resolved_by, self.cases())
        planner = Planner(DLQ, self.policy, lambda _: 8)
        for case in self.index.selected(CaseFilter()):
            planner.add(case)
        items = tuple(planner.items())
        chunks = list(chunks_of("r1", items))
        self.fact = RunFact(
            run="r1",
            topic=DLQ,
            by="ada",
            at_ms=1,
            status="running",
            updated_ms=1,
            total=len(items),
            chunks=len(chunks),
            policy=self.policy.fields(),
        )
        self._learn([*(fact_record(DESK, one) for one in chunks), fact_record(DESK, self.fact)])
        self.sent: list[Outgoing] = []
        self.transactions: list[int] = []
        self.refuses: Callable[[Outgoing], SinkError | None] = lambda _: None
        self._open: list[Outgoing] = []
        self.closed = False
        self.late = 0
        """So many looks after their commit facts are not seen yet."""
        self._unseen: list[Outgoing] = []
        self._looks = 0
        self.consume: Callable[[], None] = lambda: None
        """What a consumer does with the records that are sent."""

    def cases(self) -> list[str]:
        return [case.id for case in self.index.selected(CaseFilter())]

    def learn(self, *facts: Fact) -> None:
        """As if another process had written them."""
        self._learn([fact_record(DESK, fact) for fact in facts])

    def settle(self, run: str, cases: Sequence[str], *, outcome: bool = True) -> None:
        """Another run has sent these cases, and their records were processed."""
        for case in cases:
            n = self.index.standings([case])[case][1] + 1
            self.learn(Sent(case=case, run=run, n=n, at_ms=self.now_ms(), topic=TOPIC))
            if outcome:
                self.learn(Outcome(case=case, run=run, kind="succeeded", at_ms=self.now_ms()))

    def process(self, *, failing: bool) -> None:
        """The records that this run has sent, and that are undecided."""
        sent = self.index.sent_by("r1")
        for case, state in self.index.states(sent).items():
            if state is not CaseState.REPLAYING:
                continue
            if failing:
                number = len(self._records)
                again = letter(offset=number, replay=ReplayMark(case, "r1", sent[case].n))
                self._records.append(Record(DLQ, 0, number, again.key, *_written(again), timestamp_ms=3))
                stored = [StoredLetter.of(self._records[-1])]
                self._writer.add_letters(stored, topic=DLQ, topic_id="x", ends={})
            else:
                self.learn(Outcome(case=case, run="r1", kind="succeeded", at_ms=self.now_ms()))

    # -- RunDesk

    def now_ms(self) -> int:
        return 1_800_000_000_000

    def refresh(self) -> None:
        """What is committed is known at once, unless `late`."""
        self._looks += 1
        if self._looks > self.late:
            unseen, self._unseen = self._unseen, []
            self._learn(unseen)
        self.consume()

    def refresh_facts(self) -> None:
        """What is committed is known at once."""

    def infer_outcomes(self) -> int:
        return 0

    def letters_at(self, dlq: str, places: Mapping[int, Sequence[int]]) -> dict[tuple[int, int], Record]:
        assert dlq == DLQ
        return {(0, offset): self._records[offset] for offset in places.get(0, ())}

    # -- RunSink

    def open(self) -> None: ...

    def begin(self) -> None:
        assert self._open == []

    def send(self, records: Sequence[Outgoing]) -> list[Receipt | SinkError]:
        answers: list[Receipt | SinkError] = []
        for one in records:
            refusal = self.refuses(one)
            answers.append(refusal or Receipt(one.topic, one.partition or 0, len(self._open)))
            self._open.append(one)
        return answers

    def commit(self) -> None:
        records, self._open = self._open, []
        own = [one for one in records if one.topic != DESK]
        self.sent += own
        if own:
            self.transactions.append(len(own))
        facts = [one for one in records if one.topic == DESK]
        if self.late:
            self._unseen += facts
            self._looks = 0
        else:
            self._learn(facts)

    def abort(self) -> None:
        self._open = []

    def close(self) -> None:
        self.closed = True

    # -- the run

    def run(self, **more: Any) -> ReplayRun:
        return ReplayRun(self, self.fact, self, desk_topic=DESK, partitions_of=lambda _: 8, **more)

    def _learn(self, records: Sequence[Outgoing]) -> None:
        facts = [fact_of(Record(DESK, 0, 0, one.key, one.value, (), 1)) for one in records]
        self._writer.add_facts([one for one in facts if one is not None], topic=DESK, topic_id="x", ends={})


def _written(one: Letter) -> tuple[bytes | None, tuple[tuple[str, bytes | None], ...]]:
    value, headers = write(one, "envelope")
    return value, tuple(headers)


HEADERS = (("trace", b"\x00\xff"), ("trace", b"again"), ("empty", b""), ("null", None))
RECORDS = [
    (None, b""),
    (b"", None),
    (b"\xff\x00", b"\x00\xff" * 500),
    (b"plain", b'{"a": 1}'),
    (b"plain", b"null"),
]


def test_a_replay_sends_exactly_the_original_bytes() -> None:
    letters = [letter(offset=n, key=key, value=value, headers=HEADERS) for n, (key, value) in enumerate(RECORDS)]
    bench = Bench(letters)
    fact = bench.run().execute()
    assert (fact.status, fact.sent, fact.skipped, bench.closed) == ("done", len(RECORDS), 0, True)
    assert [(one.key, one.value) for one in bench.sent] == RECORDS
    for one in bench.sent:
        assert (one.topic, one.partition, one.timestamp_ms) == (TOPIC, 3, None)
        assert tuple(one.headers)[: len(HEADERS)] == HEADERS
        assert [name for name, _ in one.headers[len(HEADERS) :]] == ["keepfast-replay"]


def test_timestamps_are_kept_only_if_asked_for() -> None:
    bench = Bench([letter(timestamp_ms=1_600_000_000_000)], ReplayPolicy(keep_timestamp=True))
    bench.run().execute()
    assert [one.timestamp_ms for one in bench.sent] == [1_600_000_000_000]


def test_a_record_that_is_too_large_does_not_hold_up_the_others_and_is_no_success() -> None:
    bench = Bench([letter(offset=n, value=b"%d" % n) for n in range(6)])
    large = SinkError("too large", fault=Fault.TOO_LARGE, code="MSG_SIZE_TOO_LARGE")
    bench.refuses = lambda one: large if one.value in (b"2", b"4") else None
    run = bench.run()
    fact = run.execute()
    assert (fact.status, fact.sent, fact.skipped) == ("done", 4, 2)
    assert [one.value for one in bench.sent] == [b"0", b"1", b"3", b"5"]
    assert [text.split(": ")[0] for text in run.errors] == ["0:2", "0:4"]
    assert bench.index.summary(CaseFilter()).counts == {CaseState.OPEN: 2, CaseState.REPLAYING: 4}


def test_any_other_failure_ends_it_and_it_goes_on_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "BATCH", 2)
    bench = Bench([letter(offset=n, value=b"%d" % n) for n in range(6)])
    refused = SinkError("not allowed", fault=Fault.REFUSED, code="TOPIC_AUTHORIZATION_FAILED")
    bench.refuses = lambda one: refused if one.value == b"3" else None
    fact = bench.run().execute()
    assert (fact.status, fact.sent, "not allowed" in fact.why) == ("stopped", 2, True)
    assert [one.value for one in bench.sent] == [b"0", b"1"]  # nothing of the aborted transaction
    bench.refuses = lambda _: None
    bench.fact = replace(fact, status="running")
    assert bench.run().execute().sent == 6
    assert [one.value for one in bench.sent] == [b"%d" % n for n in range(6)]


def test_a_process_that_was_fenced_says_so_and_writes_nothing() -> None:
    bench = Bench([letter()])

    def fenced() -> None:
        raise SinkError("fenced", fault=Fault.FENCED, code="FENCED")

    bench.commit = fenced  # type: ignore[method-assign]
    fact = bench.run().execute()
    assert (fact.status, "taken this run over" in fact.why, bench.sent, bench.closed) == ("stopped", True, [], True)


def test_stopping_waits_for_what_is_under_way_and_it_can_be_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "BATCH", 2)
    bench = Bench([letter(offset=n, value=b"%d" % n) for n in range(6)])
    run: ReplayRun = bench.run(progress=lambda progress: run.stop() if progress.run.sent == 4 else None)
    fact = run.execute()
    assert (fact.status, fact.sent, len(bench.sent)) == ("stopped", 4, 4)
    bench.fact = replace(fact, status="running")
    bench.run().execute()
    assert [one.value for one in bench.sent] == [b"%d" % n for n in range(6)]


def test_what_is_marked_meanwhile_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "BATCH", 2)
    bench = Bench([letter(offset=n, value=b"%d" % n) for n in range(6)])
    last = list(bench.index.selected(CaseFilter()))[-1]

    def discard(_: object) -> None:
        mark = Mark(case=last.id, kind="discarded", by="bob", at_ms=2)
        bench._learn([fact_record(DESK, mark)])  # as if another process had written it

    fact = bench.run(progress=discard).execute()
    assert (fact.sent, fact.skipped) == (5, 1)


def stopped(bench: Bench, sent: int) -> None:
    """A run that is stopped after so many records, and can be resumed."""
    run: ReplayRun = bench.run(progress=lambda progress: run.stop() if progress.run.sent >= sent else None)
    fact = run.execute()
    assert (fact.status, fact.sent) == ("stopped", sent)
    bench.fact = fact


def test_a_resumed_run_leaves_out_what_another_run_has_sent_since(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "BATCH", 2)
    bench = Bench([letter(offset=n, value=b"%d" % n) for n in range(6)])
    stopped(bench, 2)
    _, _, *others = bench.cases()
    bench.settle("r2", others[:2])
    bench.settle("r2", others[2:3], outcome=False)
    run = bench.run()
    fact = run.execute()
    assert (fact.status, fact.sent, fact.skipped) == ("done", 3, 3)
    assert [one.value for one in bench.sent] == [b"0", b"1", b"5"]
    resolved, replaying = "resolved since the run was planned", "replaying since the run was planned"
    assert run.errors == [f"0:2: {resolved}", f"0:3: {resolved}", f"0:4: {replaying}"]


def test_a_run_that_is_resumed_twice_counts_once_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "BATCH", 1)
    bench = Bench([letter(offset=n) for n in range(4)])
    stopped(bench, 1)
    bench.settle("r2", bench.cases()[1:2])
    stopped(bench, 2)
    assert bench.fact.skipped == 1
    fact = bench.run().execute()
    assert (fact.status, fact.sent, fact.skipped) == ("done", 3, 1)


def test_with_again_a_resumed_run_sends_what_was_resolved_when_it_was_planned_and_nothing_that_was_sent_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_module, "BATCH", 2)
    letters = [letter(offset=n, value=b"%d" % n) for n in range(4)]
    bench = Bench(letters, ReplayPolicy(again=True), resolved_by="r0")
    stopped(bench, 2)
    bench.settle("r2", bench.cases()[2:3])
    fact = bench.run().execute()
    assert (fact.status, fact.sent, fact.skipped) == ("done", 3, 1)
    assert [one.value for one in bench.sent] == [b"0", b"1", b"3"]


def test_a_record_of_two_groups_that_was_sent_for_one_of_them_is_not_sent_again() -> None:
    bench = Bench([letter(group="a"), letter(group="b")])
    case = bench.cases()[0]
    bench.learn(Mark(case=case, kind="discarded", by="bob", at_ms=2))
    assert bench.run().execute().sent == 1
    bench.learn(Mark(case=case, kind="restored", by="bob", at_ms=3))
    assert bench.run().execute().status == "done"
    assert len(bench.sent) == 1


def test_a_canary_that_failed_is_repeated_with_the_next_records_when_the_run_is_resumed() -> None:
    bench = Bench([letter(offset=n, value=b"%d" % n) for n in range(6)], ReplayPolicy(canary=2))
    for times in (1, 2):
        bench.consume = lambda: bench.process(failing=True)
        fact = bench.run().execute()
        assert (fact.status, fact.sent) == ("stopped", 2 * times)
        assert f"2 of the {'first' if times == 1 else 'next'} 2 records failed again" in fact.why
        bench.fact = fact
    bench.consume = lambda: bench.process(failing=False)
    assert bench.run().execute().status == "done"
    assert [one.value for one in bench.sent] == [b"%d" % n for n in range(6)]
    assert bench.index.failed_again("r1") == 4


def test_a_canary_is_waited_for_also_while_its_facts_cannot_be_read_yet() -> None:
    bench = Bench([letter(offset=n) for n in range(6)], ReplayPolicy(canary=2))
    bench.late = 3
    bench.consume = lambda: bench.process(failing=True)
    fact = bench.run().execute()
    assert (fact.status, fact.sent, len(bench.sent)) == ("stopped", 2, 2)


def test_a_canary_whose_record_another_run_got_through_leaves_nothing_to_resume() -> None:
    bench = Bench([letter(offset=n) for n in range(5)], ReplayPolicy(canary=1))
    bench.consume = lambda: bench.process(failing=True)
    bench.fact = bench.run().execute()
    assert (bench.fact.status, bench.fact.sent) == ("stopped", 1)
    bench.settle("r2", bench.cases())
    fact = bench.run().execute()
    assert (fact.status, fact.sent, fact.skipped, len(bench.sent)) == ("done", 1, 4, 1)


def test_a_canary_that_was_under_way_when_its_run_ended_is_waited_for_before_more_is_sent() -> None:
    bench = Bench([letter(offset=n) for n in range(6)], ReplayPolicy(canary=3))
    stopped(bench, 3)
    sent: list[int] = []

    def consume() -> None:
        sent.append(len(bench.sent))
        if len(sent) == 4:
            bench.process(failing=False)

    bench.consume = consume
    fact = bench.run().execute()
    assert (fact.status, fact.sent, sent[:4]) == ("done", 6, [3] * 4)


def test_the_share_of_failures_is_counted_from_a_resume_on_and_does_not_stop_what_is_all_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_module, "BATCH", 10)
    bench = Bench([letter(offset=n) for n in range(40)], ReplayPolicy(stop_if_failing=5))
    bench.consume = lambda: bench.process(failing=True)
    bench.fact = bench.run().execute()
    assert (bench.fact.status, bench.fact.sent) == ("stopped", 20)
    bench.consume = lambda: bench.process(failing=False)
    assert bench.run().execute().status == "done"
    last = Bench([letter(offset=n) for n in range(20)], ReplayPolicy(stop_if_failing=5))
    last.consume = lambda: last.process(failing=True)
    assert last.run().execute().status == "done"


def test_the_rate_is_kept_in_small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    now = [100.0]

    def sleep(wait_s: float) -> None:
        slept.append(wait_s)
        now[0] += wait_s

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    bench = Bench([letter(offset=n) for n in range(40)], ReplayPolicy(rate_per_s=20))
    bench.run().execute()
    assert bench.transactions == [10] * 4
    assert sum(slept) == pytest.approx(2.0, abs=0.6)


def test_a_signal_that_comes_while_the_rate_is_waited_for_is_heard() -> None:
    bench = Bench(
        [letter(offset=n) for n in range(40)], ReplayPolicy(rate_per_s=0.001)
    )  # a quarter of an hour between two
    run: ReplayRun = bench.run(progress=lambda progress: run.stop() if progress.run.sent else None)
    assert run.execute().status == "stopped"
    assert len(bench.sent) == 1


def test_a_transform_that_returns_no_record_stops_the_run() -> None:
    bench = Bench([letter(offset=n) for n in range(2)], ReplayPolicy(transform="repair:value_of"))
    fact = bench.run(transform=lambda record: record.value).execute()
    assert (fact.status, fact.sent, bench.sent) == ("stopped", 0, [])
    assert fact.why.startswith(f"The transform failed at {DLQ} 0:0: it returned bytes instead of Record or None.")


def test_to_the_group_a_record_looks_as_if_it_came_back_from_a_retry_topic() -> None:
    bench = Bench([letter(offset=41, headers=HEADERS, group="g")], ReplayPolicy(to="group"))
    bench.run().execute()
    [one] = bench.sent
    assert (one.topic, one.partition) == (f"{TOPIC}.g.replay", 3)
    assert tuple(one.headers)[: len(HEADERS)] == HEADERS
