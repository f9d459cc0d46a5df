"""The state of a case: a function of its facts, whatever their order, in the pure model and in the index."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from keepfast.core.records import Record, RecordPlace
from keepfast.core.replays import ReplayMark, outcome_record
from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.cases import CaseState, LetterFact, Standing, case_id, state_of
from keepfast.desk.database import Database
from keepfast.desk.facts import (
    Fact,
    Gone,
    Mark,
    Outcome,
    PlanChunk,
    PlanItem,
    RunFact,
    RunOrder,
    Sent,
    chunks_of,
    fact_of,
    fact_record,
)
from keepfast.desk.index import Index
from keepfast.desk.index_writer import IndexWriter
from keepfast.desk.letters import StoredLetter
from tests.support.letters import letter

DLQ, DESK = "orders.payment.dlq", "keepfast.desk"
RUNS = ("a", "b", "c")


def first() -> Any:
    return letter(offset=7, value=b"7", failed_at_ms=100)


CASE = case_id(first(), DLQ, 0, 0)


def sent(run: str, n: int, at_ms: int) -> Sent:
    return Sent(case=CASE, run=run, n=n, at_ms=at_ms, topic="orders.payment.v1", partition=3, offset=n + 100)


def outcome(run: str, at_ms: int) -> Outcome:
    return Outcome(case=CASE, run=run, kind="succeeded", at_ms=at_ms)


def mark(kind: Any, at_ms: int = 500) -> Mark:
    return Mark(case=CASE, kind=kind, by="ada", at_ms=at_ms, why="why")


LETTER = LetterFact(100)


def test_each_row_of_the_table() -> None:
    once, again = sent("a", 1, 200), sent("b", 2, 400)
    assert state_of([LETTER]) == Standing(CaseState.OPEN)
    assert state_of([LETTER], [once]) == Standing(CaseState.REPLAYING, 1)
    assert state_of([LETTER], [once], [outcome("a", 250)]) == Standing(CaseState.RESOLVED, 1)
    failed = [LETTER, LetterFact(300, "a")]
    assert state_of(failed, [once]) == Standing(CaseState.OPEN, 1, 1)
    assert state_of(failed, [once, again]) == Standing(CaseState.REPLAYING, 2, 1)
    assert state_of(failed, [once, again], [outcome("b", 450)]) == Standing(CaseState.RESOLVED, 2, 1)
    assert state_of(failed, [once, again], passed=["b"]) == Standing(CaseState.RESOLVED, 2, 1, reported=False)
    assert state_of([LETTER], mark=mark("discarded")).state is CaseState.DISCARDED
    assert state_of([LETTER], mark=mark("permanently-failed")).state is CaseState.PERMANENTLY_FAILED
    assert state_of([LETTER], [once], [outcome("a", 250)], mark("archived")).state is CaseState.ARCHIVED
    assert state_of([LETTER], mark=mark("restored")).state is CaseState.OPEN


def test_an_outcome_of_an_earlier_send_resolves_nothing_and_one_without_a_send_neither() -> None:
    sends = [sent("a", 1, 200), sent("b", 2, 400)]
    assert state_of([LETTER, LetterFact(300, "a")], sends, [outcome("a", 250)]).state is CaseState.REPLAYING
    assert state_of([LETTER], [], [outcome("forged", 250)]).state is CaseState.OPEN


def test_a_record_that_fails_again_outside_of_replays_is_open_again() -> None:
    sends, outcomes = [sent("a", 1, 200)], [outcome("a", 250)]
    assert state_of([LETTER, LetterFact(260)], sends, outcomes).state is CaseState.OPEN
    assert state_of([LETTER, LetterFact(240)], sends, outcomes).state is CaseState.RESOLVED
    assert state_of([LETTER, LetterFact(210)], sends).state is CaseState.OPEN


moments = st.integers(0, 1_000)
sends = st.lists(st.builds(sent, st.sampled_from(RUNS), st.integers(1, 4), moments), max_size=4)
outcomes = st.lists(st.builds(outcome, st.sampled_from((*RUNS, "forged")), moments), max_size=3)
marks = st.none() | st.builds(mark, st.sampled_from(["discarded", "permanently-failed", "archived", "restored"]))
letter_facts = st.lists(st.builds(LetterFact, moments, st.sampled_from(("", *RUNS, "forged"))), max_size=5)


def by_key(facts: list[Any]) -> list[Any]:
    """As compaction leaves them."""
    return list({fact.key: fact for fact in facts}.values())


@given(letter_facts, sends, outcomes, marks, st.randoms())
def test_the_order_of_facts_does_not_matter(
    letters: list[LetterFact], some: list[Sent], ends: list[Outcome], one: Mark | None, rng: random.Random
) -> None:
    some, ends = by_key(some), by_key(ends)
    expected = state_of(letters, some, ends, one)
    for facts in (letters, some, ends):
        rng.shuffle(facts)
    assert state_of(letters, some, ends, one) == expected


def stored(run: str, n: int, offset: int, at_ms: int) -> StoredLetter:
    replay = ReplayMark(CASE, run, n) if run else None
    place = 7 if not run else 1_000 + offset  # a replayed record is at another place
    one = letter(offset=place, value=b"7", failed_at_ms=at_ms, replay=replay)
    return StoredLetter(one, RecordPlace(DLQ, 0, offset), None)


@given(sends, outcomes, marks, st.lists(st.tuples(st.sampled_from(RUNS), moments), max_size=4), st.data())
def test_the_index_says_what_the_model_says_however_it_is_fed(
    some: list[Sent], ends: list[Outcome], one: Mark | None, again: list[tuple[str, int]], data: st.DataObject
) -> None:
    some, ends = by_key(some), by_key(ends)
    known = {fact.run: fact.n for fact in some}
    again = [(run, at_ms) for run, at_ms in again if run in known]
    database = Database()
    writer, index = IndexWriter(database), Index(database)
    facts: list[Fact] = data.draw(st.permutations([*some, *ends, *([one] if one else [])]))
    cut = data.draw(st.integers(0, len(facts)))
    writer.add_facts(facts[:cut], topic=DESK, topic_id="", ends={})
    assert_counts_agree(index)
    letters = [stored("", 0, 0, 100), *(stored(run, known[run], at, at_ms) for at, (run, at_ms) in enumerate(again, 1))]
    for batch in (letters[:2], letters[2:], letters):  # what is read twice counts once
        writer.add_letters(batch, topic=DLQ, topic_id="", ends={0: 5})
        assert_counts_agree(index)
    writer.add_facts(facts[cut:], topic=DESK, topic_id="", ends={})
    assert_counts_agree(index)
    expected = state_of([LETTER, *(LetterFact(at_ms, run) for run, at_ms in again)], some, ends, one)
    found = index.history(CASE)
    assert found is not None
    case = found.case
    assert (case.state, case.replays, case.failed_again) == (expected.state, expected.replays, expected.failed_again)
    assert (case.letters, case.topic, case.partition, case.offset) == (1 + len(again), "orders.payment.v1", 3, 7)
    assert len(found.sends) == len(some)
    assert index.summary(CaseFilter()).counts == {expected.state: 1}
    writer.add_facts([Gone(fact.key) for fact in facts], topic=DESK, topic_id="", ends={})
    left = index.history(CASE)
    assert left is not None
    assert (left.case.state, left.sends) == (CaseState.OPEN, ())
    writer.forget_below(DLQ, 0, 1)
    assert_counts_agree(index)
    writer.forget_topic(DLQ)
    assert_counts_agree(index)


def assert_counts_agree(index: Index) -> None:
    """What is counted in parts, and what is counted case by case."""
    each = CaseFilter(until_ms=2**60)
    assert index.causes(CaseFilter(), now_ms=200) == index.causes(each, now_ms=200)
    assert index.summary(CaseFilter()) == index.summary(each)


def test_a_letter_that_names_a_send_that_is_not_known_is_a_case_of_its_own() -> None:
    database = Database()
    IndexWriter(database).add_letters([stored("forged", 1, 0, 100)], topic=DLQ, topic_id="", ends={0: 1})
    index = Index(database)
    assert index.history(CASE) is None
    [case] = index.cases(CaseFilter()).cases
    assert (case.offset, case.state) == (1_000, CaseState.OPEN)


def test_a_letter_that_is_read_before_its_send_joins_the_case_when_the_send_is_read() -> None:
    """The record of a replay may fail while the desk is between its own topic and the dead-letter topic."""
    database = Database()
    writer, index = IndexWriter(database), Index(database)
    letters = [stored("", 0, 0, 100), stored("a", 1, 1, 300)]
    writer.add_letters(letters, topic=DLQ, topic_id="", ends={0: 2})
    assert index.summary(CaseFilter()).counts == {CaseState.OPEN: 2}
    writer.add_facts([sent("a", 1, 200)], topic=DESK, topic_id="", ends={0: 1})
    [case] = index.cases(CaseFilter()).cases
    assert (case.offset, case.letters, case.failed_again, case.state) == (7, 2, 1, CaseState.OPEN)
    assert_counts_agree(index)


def test_a_recreated_topic_gives_other_cases() -> None:
    other = letter(offset=7, value=b"another record at the same offset")
    assert case_id(other, DLQ, 0, 0) != CASE
    assert case_id(replace(first(), timestamp_ms=1), DLQ, 0, 0) != CASE, "the same once more, at another time"
    assert case_id(replace(first(), key=b"another"), DLQ, 0, 0) != CASE
    assert case_id(letter(topic=None), DLQ, 2, 9) == f"/{DLQ}/2/9"


texts = st.text(max_size=20)
every_fact = st.one_of(
    st.builds(
        Mark, case=st.just(CASE), kind=st.sampled_from(["archived", "restored"]), by=texts, at_ms=moments, why=texts
    ),
    st.builds(sent, st.sampled_from(RUNS), st.integers(1, 9), moments),
    st.builds(outcome, st.sampled_from(RUNS), moments),
    st.builds(RunOrder, run=st.just("a"), kind=st.sampled_from(["pause", "cancel"]), by=texts, at_ms=moments),
    st.builds(
        RunFact,
        run=st.just("a"),
        topic=st.just(DLQ),
        by=texts,
        at_ms=moments,
        status=st.sampled_from(["running", "stopped"]),
        updated_ms=moments,
        total=moments,
        chunks=moments,
        policy=st.dictionaries(texts, st.integers() | texts, max_size=2),
    ),
    st.builds(
        PlanChunk, st.just("a"), moments, st.tuples(st.builds(PlanItem, moments, moments, st.just(((CASE, 1),))))
    ),
)


def as_read(outgoing: Any) -> Record:
    return Record(outgoing.topic, 0, 0, outgoing.key, outgoing.value, (), 0)


@given(every_fact)
def test_a_fact_is_read_as_it_was_written(fact: Fact) -> None:
    assert fact_of(as_read(fact_record(DESK, fact))) == fact


def test_the_runtimes_outcome_is_a_fact() -> None:
    written = outcome_record(DESK, ReplayMark(CASE, "a", 1), "discarded", at_ms=5, code="CODE")
    assert fact_of(as_read(written)) == Outcome(case=CASE, run="a", kind="discarded", at_ms=5, code="CODE")


@given(st.none() | st.binary(max_size=60), st.none() | st.binary(max_size=60))
def test_garbage_is_no_fact(key: bytes | None, value: bytes | None) -> None:
    found = fact_of(Record(DESK, 0, 0, key, value, (), 0))
    assert found is None or isinstance(found, Gone)


def test_a_plan_is_cut_into_chunks_below_a_megabyte() -> None:
    items = [PlanItem(0, number, ((f"group/{'t' * 200}/0/{number}/abcdef01", 1),)) for number in range(20_000)]
    chunks = list(chunks_of("r", items))
    assert [item for chunk in chunks for item in chunk.items] == items
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
    assert len(chunks) > 3
    assert max(len(fact_record(DESK, chunk).value or b"") for chunk in chunks) < 1_000_000


@given(st.text(min_size=1, max_size=30), st.integers(1, 9))
def test_the_header_of_a_replay_is_read_as_it_was_written(case: str, n: int) -> None:
    found = ReplayMark(case.encode("utf-8", "replace").decode(), "run", n)
    assert ReplayMark.of([("a", b""), found.header]) == found
    for forged in (b"", b";;", b"a;b;0", b"a;b;x", b"a;b", None, b";r;1", b"a;;1"):
        assert ReplayMark.parse(forged) is None
