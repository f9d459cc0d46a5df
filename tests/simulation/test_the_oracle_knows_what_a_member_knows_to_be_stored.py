"""A commit that fails takes nothing back of what was confirmed before: a position may be committed again."""

from __future__ import annotations

import pytest

from keepfast.core.events import Event, Revoked
from keepfast.core.records import TopicPartition
from keepfast.testing.fakes import trace
from keepfast.testing.fakes.faults import CommitFault, ReadFault
from simulation.member import Member
from simulation.plants import planted
from tests.simulation.stage import Stage

PLACE = TopicPartition("orders", 1)
"""What a second member gets."""


@pytest.mark.parametrize(("more", "unconfirmed"), [(0, ()), (1, (PLACE,))], ids=["the same position", "another one"])
def test_a_revoke_after_a_commit_that_failed(
    more: int, unconfirmed: tuple[TopicPartition, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first commit after all is done says the same again, unless there are more records. Without a crash guard, a
    member says nothing else when it leaves.
    """
    stage = Stage(partitions=2, records=6, max_deliveries=None)
    stage.until(stage.done)
    stage.world.broker.faults.commits.order(CommitFault.RETRY, duration_s=60.0)
    stage.produce(2 * more)
    stage.until(lambda: any(map(is_refused, stage.world.trace.events)))
    revokes = revokes_of(stage, monkeypatch)
    stage.chaos._spawn()
    stage.until(lambda: revokes)
    assert [revoke.unconfirmed for revoke in revokes] == [unconfirmed]


def test_a_revoke_after_the_position_was_read_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first read of it fails. The commit that fails later says the same again."""
    stage = Stage(records=3, max_deliveries=None)
    stage.until(stage.done)
    faults, events, first = stage.world.broker.faults, stage.world.trace.events, stage.member
    faults.committed_reads.order(ReadFault.RETRY, duration_s=8.0)
    first.stop()
    stage.until(lambda: any(isinstance(event, trace.Reset) for event in events))
    faults.commits.order(CommitFault.RETRY, duration_s=60.0)
    stage.until(lambda: any(isinstance(event, trace.CommitAnswered) and event.code for event in events))
    revokes = revokes_of(stage, monkeypatch)
    stage.member.stop()
    stage.until(lambda: revokes)
    assert stage.member is not first
    assert [revoke.unconfirmed for revoke in revokes] == [()]


def test_a_revoke_that_says_of_a_confirmed_commit_that_it_was_not() -> None:
    with planted("reports_no_revoke_as_confirmed"):
        stage = Stage(partitions=2, records=6)
        stage.until(stage.done)
        stage.chaos._spawn()
        with pytest.raises(AssertionError, match="was confirmed"):
            stage.run(10.0)


def revokes_of(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[Revoked]:
    """What the loops report from now on."""
    revokes: list[Revoked] = []
    emitted = stage.oracle.emitted

    def observe(member: Member, event: Event) -> None:
        emitted(member, event)
        if isinstance(event, Revoked):
            revokes.append(event)

    monkeypatch.setattr(stage.oracle, "emitted", observe)
    return revokes


def is_refused(event: trace.Fact) -> bool:
    return isinstance(event, trace.CommitAnswered) and event.place == PLACE and bool(event.code)
