"""A seek is a new epoch: nothing of the old one counts, and the new position is committed at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from keepfast.core import commit_metadata, crash_guard
from keepfast.core.commit_metadata import CompletionMap
from keepfast.core.crash_guard import Guard
from keepfast.core.errors import Fault, RetryLater, SourceError
from keepfast.core.guards import BreakerPolicy
from keepfast.core.policies import BufferPolicy, CommitPolicy
from keepfast.core.ports import Position
from keepfast.engine.commits import TRIP_S
from keepfast.engine.control import Answer, ControlOrder, Verb
from keepfast.engine.seeks import COMMIT_S
from keepfast.telemetry.state import Problem, SeekResult
from tests.engine.world import TOPIC, World, refusing
from tests.support.log_capture import LogCapture
from tests.support.messages import message

NOW_AND_THEN = CommitPolicy(mode="interval", every_s=5.0, every_records=1000)
TOO_LONG_S = 0.06
"""The worlds below give what is in flight 0.05 s."""


def world_of(handle: Any = lambda _: None, **options: Any) -> World:
    return World(handle, **{"batch": None, "partitions": 2} | options)


def seek(
    world: World, to: Any, *, answers: list[Answer] | None = None, partition: int = 0, pass_s: float = 0.0
) -> list[Answer]:
    """Order it. With `pass_s`, the loop continues for so long."""
    return order(world, "seek", to, [] if answers is None else answers, partition=partition, pass_s=pass_s)


def planned(world: World, to: Any) -> SeekResult:
    return completed(order(world, "plan_seek", to, []))


def order(
    world: World, verb: Verb, to: Any, answers: list[Answer], *, partition: int = 0, pass_s: float = 0.0
) -> list[Answer]:
    world.mailbox.post(ControlOrder(verb=verb, answer=answers.append, topic=TOPIC, partition=partition, to=to))
    world.step()
    if pass_s:
        world.step(pass_s=pass_s)
        settle(world)
    return answers


class Meanwhile:
    """A handler during whose next call something else happens."""

    def __init__(self) -> None:
        self.happens: Callable[[], object] | None = None

    def __call__(self, values: list[str]) -> None:
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()


def settle(world: World) -> None:
    for _ in range(6):
        world.step(pass_s=0.001)


def refused(answers: list[Answer]) -> str:
    [answer] = answers
    assert isinstance(answer, Problem), answer
    return answer.error


def completed(answers: list[Answer]) -> SeekResult:
    [answer] = answers
    assert isinstance(answer, SeekResult), answer
    return answer


def test_a_seek_back_repeats_exactly_the_records_from_there_in_order() -> None:
    world = world_of(order="partition")
    names = world.feed("aabbcc")
    world.feed("de", partition=1)
    world.play(steps=20)
    answers = seek(world, 2)
    world.play(steps=20)
    done = completed(answers)
    assert (done.position, done.to, done.repeats, done.skips, done.done, done.committed) == (6, 2, 4, 0, True, True)
    assert [name for name in world.done if name.startswith("0:")] == names + names[2:]
    assert [name for name in world.done if name.startswith("1:")] == ["1:0", "1:1"], "the other partition went on"
    assert world.committed() == 6


def test_a_seek_forward_skips_what_lies_between() -> None:
    world = world_of()
    world.feed("ab")
    world.play(steps=10)
    world.source.waiting = []
    names = world.feed("cdefgh")
    world.source.waiting = []  # written, and not fetched yet
    done = completed_after(world, 6)
    assert (done.position, done.to, done.repeats, done.skips) == (2, 6, 0, 4)
    assert world.done == ["0:0", "0:1", *names[4:]]


def completed_after(world: World, to: Any) -> SeekResult:
    answers = seek(world, to)
    world.play(steps=20)
    return completed(answers)


def test_the_new_position_is_committed_before_any_record_of_it_is_finished() -> None:
    world = world_of(commit=NOW_AND_THEN, order="partition")
    world.feed("abcdef")
    world.play(steps=30)
    assert world.committed() == 6
    answers = seek(world, 1)
    settle(world)
    assert completed(answers).committed
    assert world.committed() == 1, "below the last commit, and at once"


def test_the_answer_waits_for_the_commit_and_says_when_it_is_not_confirmed() -> None:
    world = world_of()
    world.feed("abc")
    world.play(steps=10)
    world.source.answers = False
    answers = seek(world, 0)
    settle(world)
    assert answers == []
    world.step(pass_s=COMMIT_S + 1)
    settle(world)
    done = completed(answers)
    assert done.done
    assert not done.committed


def test_the_record_in_hand_finishes_first() -> None:
    handle, answers = Meanwhile(), list[Answer]()
    world = world_of(handle, order="partition")

    def sought() -> None:
        seek(world, 2, answers=answers)
        assert answers == []
        assert world.source.moved == []

    handle.happens = sought
    world.feed("abc")
    settle(world)
    world.work()
    settle(world)
    assert completed(answers).position == 1, "what it did counts"
    assert world.source.moved == [Position(world.places[0], 2)]
    world.play(steps=10)
    assert world.done == ["0:0", "0:2"]


def test_a_record_that_takes_too_long_is_left_behind_and_its_late_result_is_stale() -> None:
    handle, answers = Meanwhile(), list[Answer]()
    world = world_of(handle, order="partition", commit=NOW_AND_THEN)
    handle.happens = lambda: seek(world, 0, answers=answers, pass_s=TOO_LONG_S)
    world.feed("aaa")
    settle(world)
    world.work()
    assert completed(answers).to == 0
    settle(world)
    world.loop.committer.push(world.clock.now, list(world.loop.ownership))
    settle(world)
    assert world.committed() == 0, "a result of the old epoch moved the commit of the new one"
    world.play(steps=20)
    assert world.done == ["0:0", "0:0", "0:1", "0:2"]
    assert world.loop.processed == 3


def test_the_key_of_a_record_left_behind_waits_for_it() -> None:
    handle, answers = Meanwhile(), list[Answer]()
    world = world_of(handle, order="key", partitions=1)

    def sought() -> None:
        seek(world, 0, answers=answers, pass_s=TOO_LONG_S)
        assert completed(answers).to == 0
        assert world.out == [], "nothing of this key starts beside it"

    handle.happens = sought
    world.feed("aa")
    settle(world)
    world.work()
    settle(world)
    assert world.out == [["0:0"]], "the key continues in the new epoch, from the beginning"


def test_the_completion_map_is_emptied() -> None:
    world = world_of(order="none")
    world.feed("abcd")
    settle(world)
    for _ in range(3):
        world.work(1)
    settle(world)
    assert world.committed() == 0
    assert told_map(world).bits, "1 to 3 are finished, 0 is not"
    answers = seek(world, 0)
    settle(world)
    world.work()  # it had not begun, and does not any more
    settle(world)
    assert completed(answers).repeats == 3
    assert not told_map(world).bits
    world.play(steps=20)
    assert sorted(world.done) == ["0:0", "0:1", "0:1", "0:2", "0:2", "0:3", "0:3"]


def told_map(world: World) -> CompletionMap:
    position = world.source.committed_at[world.places[0]]
    return commit_metadata.decode(position.metadata, offset=position.offset)


def test_finished_records_above_the_position_count_as_repeated() -> None:
    world = world_of(order="none")
    world.feed("abcdef")
    settle(world)
    world.work(3)
    world.work(1)  # 1 and 3 are finished
    settle(world)
    back, forward = planned(world, 0), planned(world, 2)
    assert (back.position, back.repeats, back.skips) == (0, 2, 0)
    assert (forward.repeats, forward.skips) == (1, 1), "3 again; 0 never, 1 was done"
    assert not (back.done)
    assert not (forward.done)


def test_a_plan_changes_nothing() -> None:
    world = world_of()
    world.feed("abc")
    world.play(steps=10)
    requests = len(world.source.requests)
    plan = planned(world, "beginning")
    settle(world)
    assert (plan.to, plan.first, plan.end, plan.done) == (0, 0, 3, False)
    assert world.source.moved == []
    assert len(world.source.requests) == requests


def test_beginning_end_and_time_are_offsets_of_the_log() -> None:
    world = world_of()
    place = world.places[0]
    world.source.logs[place] = [message(one, place=place, timestamp_ms=1000 * one) for one in range(10)]
    for to, offset in (
        ("beginning", 0),
        ("end", 10),
        (datetime.fromtimestamp(4, UTC), 4),
        (datetime.fromtimestamp(3.5, UTC), 4),
        (datetime.fromtimestamp(60, UTC), 10),
    ):
        assert planned(world, to).to == offset


@pytest.mark.parametrize("to", [-1, 4])
def test_an_offset_outside_the_log_is_refused(to: int) -> None:
    world = world_of()
    world.feed("abc")
    world.play(steps=10)
    assert refused(seek(world, to)) == f"Offset {to} is outside the log of {TOPIC}[0], which has 0 to 3."
    world.feed("d")
    world.play(steps=5)
    assert world.committed() == 4, "it continues"


def test_a_partition_of_another_process_is_refused() -> None:
    world = world_of()
    [answer] = seek(world, 0, partition=7)
    assert isinstance(answer, Problem)
    assert answer.elsewhere
    assert answer.error == f"{TOPIC}[7] is not assigned to this process."


def test_a_second_seek_of_the_same_partition_is_refused_while_one_is_under_way() -> None:
    world = world_of()
    world.feed("abc")
    settle(world)
    first = seek(world, 0)
    assert "under way" in refused(seek(world, 1))
    world.play(steps=10)
    assert completed(first).to == 0
    assert completed_after(world, 1).to == 1


def test_a_broker_that_does_not_answer_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of()
    world.feed("abc")
    world.play(steps=10)

    def away(*_: object) -> Any:
        raise SourceError("The broker is away.", fault=Fault.RETRY, code="_TIMED_OUT")

    monkeypatch.setattr(world.source, "edges", away)
    assert refused(seek(world, 0)) == "The broker is away. Nothing was changed; try again."
    assert world.source.moved == []


def test_a_client_that_cannot_be_moved_goes_on_at_the_committed_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_of()
    world.feed("abc")
    world.play(steps=10)
    works = world.source.reset
    failures = iter([True])

    def reset(position: Position) -> None:
        if next(failures, False):
            raise SourceError("Not now.", fault=Fault.RETRY, code="_STATE")
        works(position)

    monkeypatch.setattr(world.source, "reset", reset)
    answers = seek(world, 1)
    world.play(steps=20)
    assert "continues at the committed offset" in refused(answers)
    assert world.source.moved == [Position(world.places[0], 0)], "the offset that this client finds committed"
    assert len(world.loop.ownership) == 2


def test_waiting_retries_are_dropped_and_starts_again() -> None:
    world = world_of(refusing("0:1", error=lambda: RetryLater(after_s=60)), order="partition")
    world.feed("abc")
    world.play(steps=5, pass_s=0.01)
    assert len(world.loop.failures.settling) == 0
    answers = seek(world, 2)
    settle(world)
    assert completed(answers).position == 1
    world.play(steps=10)
    assert world.done == ["0:0", "0:2"]
    assert world.dead_lettered == []
    assert world.loop.failures.next_in(world.clock.now) > 60, "no timer of the dropped record is left"


def test_a_letter_under_way_is_waited_for() -> None:
    world = world_of(refusing("0:0"), order="partition")
    world.sink.decide = lambda _: None
    world.feed("ab")
    settle(world)
    world.work()
    settle(world)
    assert len(world.loop.failures.settling) == 1
    answers = seek(world, 0)
    settle(world)
    assert answers == []
    world.sink.answer()
    settle(world)
    assert completed(answers).position == 1


def test_batches_of_several_partitions_lose_only_the_part_that_is_moved() -> None:
    handle, answers = Meanwhile(), list[Answer]()
    world = World(handle, order="none", size=4, partitions=2)
    handle.happens = lambda: seek(world, 0, answers=answers, pass_s=TOO_LONG_S)
    world.feed("ab")
    world.feed("cd", partition=1)
    settle(world)
    assert sorted(world.out[0]) == ["0:0", "0:1", "1:0", "1:1"]
    world.work()
    assert completed(answers).to == 0
    world.play(steps=20)
    assert sorted(world.done) == ["0:0", "0:0", "0:1", "0:1", "1:0", "1:1"]
    assert (world.committed(), world.committed(1)) == (2, 2)


def test_an_open_breaker_stays_open_and_lets_the_new_epoch_wait() -> None:
    down = refusing("0:0", "0:1", error=lambda: ConnectionError("away"))
    breaker = BreakerPolicy(failures=1, share=0.01, window_s=60.0, open_s=30.0, max_open_s=30.0)
    world = world_of(down, order="partition", breaker=breaker, partitions=1)
    world.feed("ab")
    world.play(steps=5, pass_s=0.01)
    assert "breaker" in world.loop.holds
    answers = seek(world, 1)
    settle(world)
    assert completed(answers).position == 0
    assert world.committed() == 1
    assert "breaker" in world.loop.holds
    assert world.out == []
    world.play(steps=200, pass_s=0.5)
    assert world.dead_lettered == []
    assert {tuple(call) for call in world.calls[-3:]} == {("0:1",)}, "the probe is a record of the new epoch"


def test_a_paused_partition_is_moved_and_stays_paused() -> None:
    world = world_of()
    world.feed("abc")
    world.play(steps=10)
    answers: list[Answer] = []
    world.mailbox.post(ControlOrder(verb="pause", answer=answers.append, topic=TOPIC, partition=0))
    moved = seek(world, 0)
    world.play(steps=10)
    assert completed(moved).committed
    assert world.committed() == 0
    assert world.done == ["0:0", "0:1", "0:2"]
    world.mailbox.post(ControlOrder(verb="resume", answer=answers.append, topic=TOPIC, partition=0))
    world.play(steps=10)
    assert world.done == ["0:0", "0:1", "0:2"] * 2


def test_a_commit_that_is_under_way_does_not_count_for_the_new_epoch() -> None:
    world = world_of(order="partition")
    world.feed("abc")
    world.source.answers = False
    settle(world)
    world.work()
    settle(world)
    assert world.source.requests, "the commit of the old epoch waits for its answer"
    answers = seek(world, 0)
    settle(world)
    assert answers == []
    world.source.answers = True
    settle(world)
    assert completed(answers).committed
    assert world.committed() == 0
    world.play(steps=20)
    assert world.done == ["0:0", "0:0", "0:1", "0:2"]


def test_keys_that_waited_for_a_commit_of_the_old_epoch_are_free() -> None:
    world = world_of(order="key")
    world.source.answers = False
    world.feed("d", partition=1)
    settle(world)
    world.work()
    settle(world)
    world.feed("a")
    settle(world)
    world.work()
    settle(world)
    assert len(world.source.requests) == 1, "the commit of 0:0 is not even sent"
    answers = seek(world, 0)
    settle(world)
    world.source.answers = True
    world.play(steps=10)
    assert completed(answers).committed
    assert world.done == ["1:0", "0:0", "0:0"]


def test_a_partition_that_was_paused_because_it_was_full_is_fetched_again() -> None:
    world = world_of(order="partition", buffer=BufferPolicy(records=2), partitions=1)
    order(world, "pause", 0, [])  # so that nothing is in flight: it is moved at once
    world.feed("abcdefgh")
    settle(world)
    world.step(pass_s=0.1)
    world.step(pass_s=0.1)
    assert world.source.paused == {world.places[0]}
    answers = seek(world, 6)
    settle(world)
    assert completed(answers).to == 6
    assert world.source.paused == set()


def test_a_partition_whose_commits_are_refused_is_moved_and_the_answer_says_so() -> None:
    world = world_of()
    world.source.refused = {world.places[0]: Fault.REFUSED}
    world.feed("abc")
    world.play(steps=10)
    answers = seek(world, 1)
    world.play(steps=40)
    assert not completed(answers).committed
    world.source.refused = {}
    world.play(steps=60)
    assert world.committed() == 3


def test_a_revoke_while_it_drains_leaves_the_position_alone() -> None:
    handle, answers = Meanwhile(), list[Answer]()
    world = world_of(handle, order="partition")
    handle.happens = lambda: seek(world, 0, answers=answers)
    world.feed("abc")
    settle(world)
    world.work()
    world.revoke(0)
    assert refused(answers) == f"{TOPIC}[0] was not moved: the partition was revoked."
    assert world.source.moved == []
    assert world.committed() == 1


def test_a_revoke_before_the_commit_is_confirmed_commits_the_new_position() -> None:
    world = world_of()
    world.feed("abc")
    world.play(steps=10)
    world.source.answers = False
    answers = seek(world, 1)
    settle(world)
    assert answers == []
    world.source.answers = True
    world.revoke(0)
    assert completed(answers).committed
    assert world.committed() == 1


def test_a_partition_that_is_lost_before_the_commit_says_so() -> None:
    world = world_of()
    world.feed("abc")
    world.play(steps=10)
    world.source.answers = False
    answers = seek(world, 1)
    settle(world)
    world.loop.on_lost([world.places[0]])
    assert "before the broker confirmed the commit" in refused(answers)


def test_a_seek_is_refused_while_the_consumer_drains() -> None:
    world = world_of()
    world.feed("abc")
    settle(world)
    world.stop()
    world.step()
    assert refused(seek(world, 0)) == "The consumer stops: seek after its restart."


def test_a_drain_ends_a_seek_that_has_not_moved_yet() -> None:
    handle, answers = Meanwhile(), list[Answer]()
    world = world_of(handle, order="partition")

    def sought() -> None:
        seek(world, 0, answers=answers)
        world.stop()
        world.step()
        assert refused(answers) == f"{TOPIC}[0] was not moved: the consumer stops."

    handle.happens = sought
    world.feed("abc")
    settle(world)
    world.work()
    world.play(steps=10)
    assert world.committed() == 1
    assert world.loop.ending is not None


def test_a_drain_commits_a_seek_that_has_moved() -> None:
    world = world_of()
    world.feed("abc")
    world.play(steps=10)
    world.source.answers = False
    answers = seek(world, 1)
    settle(world)
    world.stop()
    settle(world)
    world.source.answers = True
    world.play(steps=10)
    assert completed(answers).committed
    assert world.committed() == 1


def test_a_seek_is_reported_once(log: LogCapture) -> None:
    world = world_of()
    world.feed("abc")
    world.play(steps=10)
    completed_after(world, 1)
    [line] = log.of("partition_sought")
    assert (line.fields["offset"], line.fields["to"], line.fields["partition"]) == (3, 1, 0)


# -- the crash guard


def died(*, lease: int = 16, mark: int | None = None, **starts: int) -> str:
    guard = Guard(lease, mark, mark, {int(name[1:]): count for name, count in starts.items()})
    return commit_metadata.encode(CompletionMap(0), guard=crash_guard.write(guard, 0))


def committed_guard(world: World, partition: int = 0) -> Guard:
    position = world.source.committed_at[world.places[partition]]
    _, words = commit_metadata.read(position.metadata, offset=position.offset)
    return crash_guard.read(words, position.offset)


def test_nothing_of_the_new_epoch_starts_before_its_lease_is_confirmed() -> None:
    world = world_of(max_deliveries=3)
    world.feed("abc")
    world.play(steps=10)
    world.source.answers = False
    seek(world, 0)
    settle(world)
    assert world.out == []
    world.source.answers = True
    world.play(steps=10)
    assert world.done == ["0:0", "0:1", "0:2"] * 2


def test_suspects_above_the_new_position_stay_suspects_and_keep_their_counts() -> None:
    world = world_of(order="partition", partitions=1, max_deliveries=3, found={0: died(lease=4, mark=4, s2=2)})
    world.feed("abcdef")
    for _ in range(2):
        settle(world)
        world.work()
    settle(world)
    assert world.out == [["0:2"]]
    answers = seek(world, 0)
    world.work()  # it had not begun, and does not any more
    settle(world)
    assert completed(answers).position == 2
    assert world.loop.probation.suspects_of(next(iter(world.loop.ownership))) == 2, "2 and 3; 0 and 1 were finished"
    assert dict(committed_guard(world).starts) == {2: 2}
    world.play(steps=30)
    assert world.done == ["0:0", "0:1", "0:0", "0:1", "0:2", "0:3", "0:4", "0:5"]
    assert world.loop.probation.suspected == {}


def test_suspects_below_the_new_position_are_forgotten() -> None:
    world = world_of(order="partition", partitions=1, max_deliveries=3, found={0: died(lease=3, mark=3, s1=2)})
    world.feed("abcdef")
    settle(world)
    world.work()
    settle(world)
    answers = seek(world, 4)
    world.work()  # it had not begun, and does not any more
    settle(world)
    assert completed(answers).skips == 3
    assert dict(committed_guard(world).starts) == {}
    world.play(steps=20)
    assert world.done == ["0:0", "0:4", "0:5"]
    assert world.loop.probation.suspected == {}


def test_a_count_that_the_broker_holds_is_taken_back_before_another_suspect_starts() -> None:
    found = {0: died(lease=2, mark=2), 1: died(lease=2, mark=2)}
    world = world_of(order="none", partitions=2, max_deliveries=3, found=found)
    world.feed("ab")
    world.feed("cd", partition=1)
    settle(world)
    assert world.out == [["0:0"]]
    world.source.exact, world.source.refused = True, {world.places[0]: Fault.RETRY}
    answers = seek(world, 2)
    world.work()
    world.play(steps=5)
    assert answers == []
    assert world.done == [], "the broker holds a count for a record that is not running"
    world.source.refused = {}
    world.play(steps=20)
    assert completed(answers).committed
    assert dict(committed_guard(world).starts) == {}
    assert world.done == ["1:0", "1:1"]


def test_a_probation_continues_in_the_new_epoch_and_ends_once() -> None:
    world = world_of(order="partition", partitions=1, max_deliveries=3, found={0: died(lease=4, mark=4)})
    seen: list[str] = []
    emit = world.loop.events.emit
    world.loop.events.emit = lambda event: (seen.append(type(event).__name__), emit(event))  # type: ignore[method-assign, func-returns-value, assignment]
    world.feed("abcdef")
    settle(world)
    seek(world, 0)
    world.play(steps=30)
    assert world.loop.probation.suspected == {}
    assert [name for name in seen if name.startswith("Probation")] == ["ProbationEnded"]


def test_the_time_that_the_broker_takes_to_answer_does_not_count_as_a_late_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A commit that is sent after the question is not older than that."""
    world = world_of()
    world.feed("a")
    settle(world)
    world.source.answers = False
    answer = world.source.edges

    def late(place: Any, timeout_s: float) -> tuple[int, int]:
        world.clock.now += 2.0
        return answer(place, timeout_s)

    monkeypatch.setattr(world.source, "edges", late)
    world.work()
    order(world, "plan_seek", 0, [])
    assert world.loop.committer.under_way
    world.step(pass_s=TRIP_S - 1.0)
    assert "commit" not in world.loop.holds
    world.step(pass_s=1.5)
    assert "commit" in world.loop.holds
