"""Plants in the crash guard."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from keepfast.core import crash_guard
from keepfast.core.crash_guard import UNKNOWN, CrashWatch, Fate, Guard, Spans, SuspectTrial
from keepfast.core.runs import NO_LEASE_NEEDED, Partition, Run
from keepfast.engine import crash_guard as engine_guard
from keepfast.engine.commits import Committer
from keepfast.engine.crash_guard import Probation
from keepfast.engine.flight_recorder import FlightRecorder, Slot
from simulation.plants.plant import Patch, plant


@plant
def never_says_that_it_is_at_work(patch: Patch) -> None:
    def words(self: CrashWatch, base: int, handed: int) -> str:
        text: str = original(self, base, handed)
        return ",".join(word for word in text.split(",") if not word.startswith("d"))

    original = patch.set(CrashWatch, "words", words)


@plant
def never_takes_its_lease_back(patch: Patch) -> None:
    patch.set(CrashWatch, "leave", lambda _: False)


@plant
def takes_its_lease_for_endless(patch: Patch) -> None:
    def stored(self: Committer, partition: Partition) -> None:
        original(self, partition)
        partition.lease_until(NO_LEASE_NEEDED, NO_LEASE_NEEDED)

    original = patch.set(Committer, "_stored", stored)


@plant
def starts_a_suspect_before_its_start_is_counted(patch: Patch) -> None:
    def charge(self: CrashWatch, offset: int) -> bool:
        original(self, offset)
        return True

    original = patch.set(CrashWatch, "charge", charge)


@plant
def never_takes_a_count_back(patch: Patch) -> None:
    def came_back(self: CrashWatch, *, finished: bool) -> None:
        if self.charged is not None and not finished:
            self._starts[self.charged] = self.starts(self.charged) + 1
        original(self, finished=finished)

    original = patch.set(CrashWatch, "came_back", came_back)


@plant
def starts_others_before_a_count_is_known_to_be_taken_back(patch: Patch) -> None:
    patch.set(Probation, "_is_exposed", lambda *_, **__: False)


@plant
def runs_suspects_beside_others(patch: Patch) -> None:
    def is_back(self: Probation, *_: Any) -> bool:
        engine_guard._acquit(self._accused, finished=False)
        self._alone = self._accused = None
        return True

    patch.set(Probation, "_is_still", staticmethod(lambda *_: True))
    patch.set(Probation, "_is_exposed", lambda *_, **__: False)
    patch.set(Probation, "_is_back", is_back)


@plant
def suspects_for_ever(patch: Patch) -> None:
    def begin(self: CrashWatch, found: Guard, commit_soon: Any, **more: Any) -> None:
        original(self, replace(found, until=found.until and found.until + 10_000), commit_soon, **more)

    original = patch.set(CrashWatch, "__init__", begin)


@plant
def suspects_after_one_death(patch: Patch) -> None:
    def inherited(found: Guard, base: int, fate: Fate = UNKNOWN) -> Guard:
        guard: Guard = original(found, base, fate)
        suspects = guard.in_hand if fate.dead else guard.suspects
        return guard if found.lease is None else replace(guard, until=guard.mark, suspects=suspects)

    original = patch.set(crash_guard, "inherited", inherited)


@plant
def forgets_marks_when_a_partition_is_handed_over(patch: Patch) -> None:
    def inherited(found: Guard, base: int, fate: Fate = UNKNOWN) -> Guard:
        guard: Guard = original(found, base, fate)
        return Guard() if found.lease is None else guard

    original = patch.set(crash_guard, "inherited", inherited)


@plant
def forgets_counts(patch: Patch) -> None:
    def inherited(found: Guard, base: int, fate: Fate = UNKNOWN) -> Guard:
        guard: Guard = original(found, base, fate)
        return replace(guard, starts={})

    original = patch.set(crash_guard, "inherited", inherited)


@plant
def tries_all_of_many_suspects_at_once(patch: Patch) -> None:
    def next_trial(suspects: Spans, begin: int, *_: Any, **__: Any) -> SuspectTrial | None:
        return SuspectTrial() if suspects and suspects[-1][1] > begin else None

    patch.set(crash_guard, "next_trial", next_trial)


@plant
def never_narrows_a_search(patch: Patch) -> None:
    patch.set(crash_guard, "_narrowed", lambda found, base, in_flight, guard: ())


@plant
def dead_letters_a_suspect_one_death_too_early(patch: Patch) -> None:
    def is_guilty(self: Probation, run: Run) -> bool:
        watch = run.partition.watch
        most = self._max_deliveries or 1
        return watch is not None and watch.starts(run.messages[0].offset()) + 1 >= most

    patch.set(Probation, "_is_guilty", is_guilty)


@plant
def never_dead_letters_a_killer(patch: Patch) -> None:
    patch.set(Probation, "_is_guilty", lambda *_: False)


@plant
def takes_a_live_owner_for_a_dead_one(patch: Patch) -> None:
    def fate(self: FlightRecorder, *where: Any) -> Fate:
        found: Fate = original(self, *where)
        return found if found.dead else UNKNOWN

    original = patch.set(FlightRecorder, "fate", fate)


@plant
def suspects_all_that_the_lease_covers(patch: Patch) -> None:
    def fate(self: FlightRecorder, *where: Any) -> Fate:
        found: Fate = original(self, *where)
        return Fate(dead=True, in_hand=((0, 1 << 40),)) if found.in_hand else found

    original = patch.set(FlightRecorder, "fate", fate)


@plant
def notes_a_record_only_when_it_is_done(patch: Patch) -> None:
    def begin(self: Slot, run: Run, call: Any) -> Any:
        return call

    patch.set(Slot, "begin", begin)
    patch.set(Slot, "begin_batch", lambda *_: None)


@plant
def leaves_a_count_behind_without_a_crash(patch: Patch) -> None:
    patch.set(crash_guard, "_taken_back", lambda starts, _: starts)
