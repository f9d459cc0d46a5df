"""The crash guard's words in a commit, what a new owner makes of them, and when a record may start."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil, log2
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keepfast.core import commit_metadata
from keepfast.core.commit_metadata import GUARD_LIMIT, METADATA_LIMIT, WINDOW, CompletionMap
from keepfast.core.crash_guard import (
    MAX_COUNTED,
    MAX_STARTS,
    MAX_SUSPECTS,
    MIN_LEASE,
    NOT_DEAD,
    ONE_BY_ONE,
    UNKNOWN,
    CrashWatch,
    Fate,
    Guard,
    SuspectTrial,
    all_suspects,
    coarser,
    common,
    covers,
    inherited,
    lease_length,
    next_trial,
    read,
    spans_of,
    write,
)

LARGEST = 2**62
offsets = st.integers(0, LARGEST)
beyond = st.none() | st.integers(1, LARGEST)
counts = st.dictionaries(st.integers(0, LARGEST), st.integers(1, MAX_STARTS), max_size=MAX_COUNTED)


small = st.integers(0, 60)
spans = st.lists(st.tuples(small, st.integers(1, 9)).map(lambda one: (one[0], sum(one))), max_size=20).map(spans_of)


@st.composite
def guards(draw: st.DrawFn) -> tuple[Guard, int]:
    """A guard and the committed offset that it belongs to."""
    base = draw(offsets)
    lease, mark, until = (None if delta is None else base + delta for delta in draw(st.tuples(beyond, beyond, beyond)))
    return Guard(lease, mark, until, starts={base + delta: count for delta, count in draw(counts).items()}), base


# -- the text


@given(guards())
def test_what_was_written_is_read_again(one: tuple[Guard, int]) -> None:
    guard, base = one
    assert read(write(guard, base), base) == guard


@given(guards(), st.binary(min_size=WINDOW // 8, max_size=WINDOW // 8))
def test_it_fits_beside_a_full_completion_map(one: tuple[Guard, int], bits: bytes) -> None:
    guard, base = one
    text = write(guard, base)
    assert len(text) <= GUARD_LIMIT
    topic_id = "Hm5lOsWNRI-4dDsxZbFaZw"
    metadata = commit_metadata.encode(CompletionMap(base, bits), topic_id=topic_id, guard=text)
    assert len(metadata) <= METADATA_LIMIT
    assert commit_metadata.read(metadata, offset=base, topic_id=topic_id) == (CompletionMap(base, bits), text)


def test_nothing_to_say_is_no_text() -> None:
    assert write(Guard(), 5) == ""
    assert write(Guard(mark=5, until=3), 5) == "", "what lies below the committed offset is over"
    assert write(Guard(starts={4: 2}), 5) == ""


def test_commits_of_older_versions_say_nothing() -> None:
    assert read("", 5) == Guard()
    old = commit_metadata.encode(CompletionMap(5, b"\x06"))
    assert commit_metadata.read(old, offset=5) == (CompletionMap(5, b"\x06"), "")


@pytest.mark.parametrize("metadata", ["", "somebody else's", "kf1;5;;;d16;;00000000", "kf1;5;;;d16", "kf2;5;;;d16;;x"])
def test_foreign_and_broken_metadata_says_nothing(metadata: str) -> None:
    assert commit_metadata.read(metadata, offset=5) == (CompletionMap(5), "")


def test_metadata_of_another_offset_or_another_topic_says_nothing() -> None:
    metadata = commit_metadata.encode(CompletionMap(5), topic_id="one", guard="d16")
    assert commit_metadata.read(metadata, offset=5, topic_id="one")[1] == "d16"
    assert commit_metadata.read(metadata, offset=6, topic_id="one")[1] == ""
    assert commit_metadata.read(metadata, offset=5, topic_id="two")[1] == ""


@given(st.text() | st.text("dmps0123456789:,", max_size=40))
@example("d")
@example("d1,d2")
@example("d1:2")
@example("s1")
@example("s1:")
@example("d²")
@example("d-1")
@example("d1,,m2")
@example("x1")
@example("s1:10000")
@example("d" + "9" * 20)
@example(",".join(f"s{number}:1" for number in range(MAX_COUNTED + 1)))
@example("d" + "1" * GUARD_LIMIT)
def test_any_text_is_read_without_an_exception_and_means_itself_or_nothing(text: str) -> None:
    guard = read(text, 0)
    if guard != Guard():
        again = Guard(guard.lease or None, guard.mark or None, guard.until or None, guard.starts)
        assert read(write(guard, 0), 0) == again


@pytest.mark.parametrize("text", ["d", "d1,d2", "d1:2", "s1", "s1:", "d²", "d-1", "d1,,m2", "x1", "s1:10000", "d1,x"])
def test_a_word_that_cannot_be_understood_makes_nothing_of_all_of_them(text: str) -> None:
    assert read(text, 0) == Guard()


@given(guards(), st.tuples(spans, spans), st.none() | small, st.booleans(), st.booleans())
def test_what_was_in_hand_fits_into_the_text_and_loses_no_record(
    one: tuple[Guard, int], lists: tuple[Any, Any], charged: int | None, token: bool, draining: bool
) -> None:
    guard, base = one
    moved = [tuple((base + first, base + end) for first, end in some) for some in lists]
    leased = guard.lease is not None
    guard = replace(
        guard,
        in_hand=moved[0],
        suspects=moved[1],
        charged=None if charged is None else base + charged,
        token="0123456789abcdef" if token and leased else "",
        draining=draining and leased,
    )
    text = write(guard, base)
    assert len(text) <= GUARD_LIMIT
    again = read(text, base)
    assert replace(again, in_hand=(), suspects=()) == replace(guard, in_hand=(), suspects=())
    for wanted, found in ((guard.in_hand, again.in_hand), (guard.suspects, again.suspects)):
        assert common(wanted, found) == wanted, "never fewer"


@pytest.mark.parametrize(
    "text", ["d1,t0123", "d1,t0123456789ABCDEF", "t0123456789abcdef", "g", "d1,g1", "d1,g,g", "h5", "h5+0", "h9+1.5+1"]
)
def test_a_token_or_a_list_that_is_not_in_order_makes_nothing_of_all(text: str) -> None:
    assert read(text, 0) == Guard()


@given(spans, spans, st.integers(1, 5))
def test_spans_are_sets_of_offsets(one: Any, other: Any, most: int) -> None:
    offsets = [{at for at in range(80) if covers(some, at)} for some in (one, other)]
    assert {at for at in range(80) if covers(common(one, other), at)} == offsets[0] & offsets[1]
    assert {at for at in range(80) if covers(spans_of(one + other), at)} == offsets[0] | offsets[1]
    fewer = coarser(one, most)
    assert len(fewer) <= most
    assert offsets[0] <= {at for at in range(80) if covers(fewer, at)}
    assert spans_of(fewer) == fewer


# -- what a new owner makes of it where the last one's flight recorder is found


def dead(*in_hand: tuple[int, int]) -> Fate:
    return Fate(dead=True, in_hand=in_hand)


def test_the_first_death_marks_what_was_in_hand_and_nothing_else() -> None:
    assert inherited(Guard(lease=1000), 100, dead((105, 106))) == Guard(in_hand=((105, 106),))


def test_a_death_with_nothing_in_hand_leaves_nothing() -> None:
    assert inherited(Guard(lease=1000), 100, dead()) == Guard()


def test_only_what_was_in_hand_at_both_deaths_is_suspected() -> None:
    found = Guard(lease=1000, in_hand=((105, 106), (110, 112)))
    guard = inherited(found, 100, dead((111, 112), (300, 301)))
    assert guard == Guard(in_hand=((105, 106), (110, 112), (300, 301)), suspects=((111, 112),))


def test_a_death_of_which_only_the_lease_is_known_goes_together_with_one_that_is_known_exactly() -> None:
    assert inherited(Guard(lease=1000, mark=500), 100, dead((111, 112))).suspects == ((111, 112),)
    assert inherited(Guard(lease=1000, in_hand=((111, 112),)), 100).suspects == ((111, 112),)


def test_what_lies_outside_the_lease_is_not_believed() -> None:
    assert inherited(Guard(lease=120), 100, dead((0, 1 << 60))) == Guard(in_hand=((100, 120),))


@pytest.mark.parametrize(("fate", "draining"), [(NOT_DEAD, False), (dead((104, 105)), True), (None, True)])
def test_who_lives_or_was_about_to_end_has_not_died_of_a_record(fate: Fate | None, draining: bool) -> None:
    found = Guard(lease=120, mark=116, starts={104: 2}, charged=104, draining=draining)
    assert inherited(found, 100, *([fate] if fate else [])) == Guard(mark=116, starts={104: 1})


def test_a_start_that_was_counted_and_never_happened_is_taken_back() -> None:
    found = Guard(lease=120, suspects=((104, 105), (107, 108)), starts={104: 2, 107: 1}, charged=107)
    assert inherited(found, 100, dead((119, 120))).starts == {104: 2}
    assert inherited(found, 100, dead((107, 108))).starts == {104: 2, 107: 1}


@given(st.lists(st.tuples(small, spans), min_size=2, max_size=12), st.data())
def test_a_killer_that_was_in_hand_at_two_deaths_is_a_suspect_whatever_else_dies(
    deaths: list[tuple[int, Any]], data: st.DataObject
) -> None:
    bases = sorted(base for base, _ in deaths)
    killer = bases[-1] + data.draw(st.integers(0, 40))
    guard, killed = Guard(), 0
    for base, (_, hand) in zip(bases, deaths, strict=True):
        has_it = data.draw(st.booleans())
        killed += has_it
        noted = spans_of((*hand, (killer, killer + 1))) if has_it else hand
        exact = data.draw(st.booleans())
        found = replace(guard, lease=killer + 1 if has_it else base + 1)
        guard = inherited(found, base, Fate(dead=True, in_hand=noted if exact else None))
        assert len(guard.in_hand) <= MAX_SUSPECTS >= len(guard.suspects)
        assert killed < 2 or covers(guard.suspects, killer) or (guard.until or 0) > killer


# -- what a new owner makes of it


@given(guards())
def test_an_orderly_end_hands_on_what_is_not_over_and_nothing_else(one: tuple[Guard, int]) -> None:
    guard, base = one
    handed = Guard(None, guard.mark, guard.until, guard.starts)
    assert inherited(handed, base) == handed


@given(guards(), st.integers(0, LARGEST))
def test_what_everything_is_finished_below_is_over(one: tuple[Guard, int], later: int) -> None:
    guard, base = one
    found = inherited(guard, base + later)
    assert all(limit is None or limit > base + later for limit in (found.mark, found.until))
    assert all(offset >= base + later for offset in found.starts)


def test_the_first_death_leaves_a_mark_and_no_suspects() -> None:
    assert inherited(Guard(lease=116), 100) == Guard(mark=116)


def test_the_second_death_in_about_the_same_place_makes_suspects() -> None:
    assert inherited(Guard(lease=120, mark=116), 110) == Guard(mark=120, until=120)


def test_a_second_death_somewhere_else_is_a_first_one() -> None:
    assert inherited(Guard(lease=132, mark=116), 116) == Guard(mark=132)


def test_what_may_have_been_in_flight_at_the_first_death_is_suspected_with_the_rest() -> None:
    assert inherited(Guard(lease=120, mark=500), 104) == Guard(mark=500, until=500)


def test_counts_survive_deaths_and_handovers() -> None:
    found = Guard(lease=120, mark=116, until=116, starts={104: 2})
    assert inherited(found, 104) == Guard(mark=120, until=120, starts={104: 2})


@given(st.lists(st.integers(0, 10 * WINDOW), min_size=1, max_size=30), st.data())
def test_a_killer_is_a_suspect_after_its_second_death_whatever_else_dies(
    commits: list[int], data: st.DataObject
) -> None:
    """Deaths at rising offsets, each with its own lease; the killer is unfinished and in flight in some of them."""
    places = sorted(commits)
    killer = places[-1] + data.draw(st.integers(0, WINDOW))
    guard, killed = Guard(), 0
    for base in places:
        has_it = data.draw(st.booleans())
        lease = data.draw(st.integers(killer + 1, killer + 2 * WINDOW) if has_it else st.integers(base + 1, killer + 9))
        killed += lease > killer
        guard = inherited(Guard(lease, guard.mark, guard.until, guard.starts), base)
        assert (guard.mark or 0) > killer or killed == 0
        assert (guard.until or 0) > killer or killed < 2


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 500)), max_size=30))
def test_deaths_at_different_places_make_no_suspects(deaths: list[tuple[int, int]]) -> None:
    guard, base = Guard(), 0
    for lease, further in deaths:
        guard = inherited(Guard(base + lease, guard.mark, guard.until, guard.starts), base)
        assert guard.until is None
        base = max(base + lease, guard.mark or 0) + further


# -- the lease


@given(st.integers(0, WINDOW), st.integers(-100, LARGEST))
def test_a_lease_is_never_too_short_and_never_too_long(before: int, used: int) -> None:
    assert MIN_LEASE <= lease_length(before, used) <= WINDOW


def test_a_lease_that_runs_out_grows_until_it_is_enough() -> None:
    lengths = [0]
    for _ in range(6):
        lengths.append(lease_length(lengths[-1], lengths[-1]))
    assert lengths[1:] == [32, 256, 2048, WINDOW, WINDOW, WINDOW]


def test_a_lease_that_is_not_used_shrinks_by_halves() -> None:
    lengths = [WINDOW]
    for _ in range(10):
        lengths.append(lease_length(lengths[-1], 1))
    assert lengths[1:4] == [8192, 4096, 2048]
    assert lengths[-1] == MIN_LEASE


@given(st.integers(0, 1000), st.integers(0, 500), st.booleans(), st.booleans(), st.sampled_from([0, 5, 5000]))
def test_the_short_way_says_the_same_as_the_long_one(
    base: int, ahead: int, working: bool, leaving: bool, mark: int
) -> None:
    short, long = (CrashWatch(Guard(mark=mark or None), lambda: None) for _ in range(2))
    for _ in range(3):
        for watch in (short, long):
            if working:
                watch.run_out()
            if leaving:
                watch.leave()
        assert short.words(base, base + ahead) == write(long.propose(base, base + ahead), base)
        assert short.lease == long.lease
        base += 7
        assert short.confirmed() == long.confirmed()


@dataclass
class Watched:
    """A watch, and how often it asked for a commit."""

    found: Guard = field(default_factory=Guard)
    pressed: int = 0
    base: int = 0
    first_lease: int = MIN_LEASE

    def __post_init__(self) -> None:
        self.watch = CrashWatch(self.found, self._commit_soon, first_lease=self.first_lease, base=self.base)

    def _commit_soon(self) -> None:
        self.pressed += 1

    def commit(self, base: int, handed: int) -> Guard:
        """Propose, and hear that it is stored."""
        guard = self.watch.propose(base, handed)
        self.watch.confirmed()
        return guard


def test_a_partition_is_not_at_work_before_something_wants_to_start() -> None:
    one = Watched(Guard(mark=50))
    assert one.commit(10, 10) == Guard(mark=50)
    one.watch.run_out()
    assert one.pressed == 1
    guard = one.watch.propose(10, 12)
    assert guard == Guard(lease=12 + MIN_LEASE, mark=50)
    assert one.watch.confirmed() == (guard.lease, 12 + MIN_LEASE // 2)


def test_every_commit_moves_the_lease_until_the_end_takes_it_back() -> None:
    one = Watched()
    one.watch.run_out()
    assert [one.commit(base, base + 1).lease for base in range(3)] == [33, 34, 35]
    assert one.watch.leave()
    assert one.commit(3, 4) == Guard()
    assert not one.watch.leave(), "it is taken back already"


def test_the_first_lease_may_be_a_longer_one() -> None:
    watch = CrashWatch(Guard(), lambda: None, first_lease=1_000)
    watch.run_out()
    assert watch.propose(0, 0).lease == 1_000
    assert watch.confirmed() == (1_000, 500)


def test_who_never_began_has_nothing_to_take_back() -> None:
    assert not Watched(Guard(mark=50)).watch.leave()


def test_the_token_goes_with_the_lease_and_the_drain_is_recorded_once() -> None:
    watch = CrashWatch(Guard(), lambda: None, token="0123456789abcdef")
    assert not watch.drain(), "none is at work"
    watch = CrashWatch(Guard(), lambda: None, token="0123456789abcdef")
    watch.run_out()
    assert watch.words(0, 0) == f"d{MIN_LEASE},t0123456789abcdef"
    assert watch.drain()
    assert watch.words(0, 0) == f"d{MIN_LEASE},t0123456789abcdef,g"
    assert not watch.drain()
    watch.leave()
    assert watch.words(0, 0) == ""


def test_a_drain_that_ends_for_a_record_counts_as_a_death_of_it() -> None:
    one = Watched()
    one.watch.run_out()
    one.commit(10, 13)
    one.watch.count_death(((12, 13),))
    assert one.watch.leave()
    assert one.commit(10, 13) == Guard(in_hand=((12, 13),))
    again = Watched(Guard(in_hand=((12, 13),)))
    again.watch.count_death(((12, 13),))
    assert again.commit(10, 13) == Guard(in_hand=((12, 13),), suspects=((12, 13),))


def test_and_if_its_start_was_counted_the_count_stays() -> None:
    one = Watched(Guard(suspects=((12, 13),), starts={12: 1}))
    one.watch.run_out()
    one.watch.charge(12)
    one.commit(10, 13)
    one.watch.count_death(((12, 13),))
    one.watch.leave()
    assert one.commit(10, 13).starts == {12: 2}


# -- suspects


def test_exact_suspects_are_suspects_until_they_are_finished() -> None:
    one = Watched(Guard(suspects=((12, 13), (15, 17))))
    assert [offset for offset in range(20) if one.watch.is_suspect(offset)] == [12, 15, 16]
    assert one.commit(13, 20).suspects == ((15, 17),)
    one.watch.clear_suspects()
    assert one.commit(13, 20) == Guard()


def test_only_unfinished_records_below_the_limit_are_suspects() -> None:
    watch = Watched(Guard(until=20)).watch
    assert [watch.is_suspect(offset) for offset in (0, 19, 20, 21)] == [True, True, False, False]


def test_probation_is_over_once_everything_below_the_limit_is_finished() -> None:
    one = Watched(Guard(until=20, mark=20))
    assert one.commit(19, 25) == Guard(until=20, mark=20)
    assert one.commit(20, 25).until is None
    assert one.watch.until == 0


def test_a_suspect_starts_when_the_broker_has_counted_it_and_not_before() -> None:
    one = Watched(Guard(until=20, starts={12: 1}))
    watch = one.watch
    assert not watch.charge(12)
    assert not watch.charge(12)
    assert one.pressed == 1, "once is enough"
    assert watch.propose(10, 13).starts == {12: 2}
    assert not watch.charge(12)
    watch.confirmed()
    assert watch.charge(12)


def test_a_count_is_taken_back_when_the_record_comes_back() -> None:
    one = Watched(Guard(until=20, starts={12: 1}))
    one.watch.charge(12)
    one.commit(10, 13)
    one.watch.came_back(finished=False)
    assert one.watch.exposed
    assert one.pressed == 2
    assert one.commit(10, 13).starts == {12: 1}
    assert not one.watch.exposed
    assert one.watch.starts(12) == 1


def test_a_record_that_is_finished_is_forgotten() -> None:
    one = Watched(Guard(until=20, starts={12: 1}))
    one.watch.charge(12)
    one.commit(10, 13)
    one.watch.came_back(finished=True)
    assert one.commit(10, 13).starts == {}


def test_a_second_attempt_is_counted_again_even_while_the_first_count_is_being_taken_back() -> None:
    one = Watched(Guard(until=20))
    watch = one.watch
    watch.charge(12)
    one.commit(10, 13)
    watch.came_back(finished=False)
    watch.propose(10, 13)  # on its way, without the count
    assert not watch.charge(12), "the broker is about to hold something else"
    watch.confirmed()
    assert not watch.charge(12)
    one.commit(10, 13)
    assert watch.charge(12)


def test_a_count_that_may_have_been_stored_counts_as_exposed_until_a_commit_without_it_is_confirmed() -> None:
    one = Watched(Guard(until=20))
    one.watch.charge(12)
    one.watch.propose(10, 13)  # the answer says that it failed; it may be stored all the same
    one.watch.came_back(finished=False)
    assert one.watch.exposed
    one.commit(10, 13)
    assert not one.watch.exposed


def test_an_orderly_end_takes_the_count_back_with_the_lease() -> None:
    one = Watched(Guard(until=20, starts={12: 2}))
    one.watch.run_out()
    one.watch.charge(12)
    one.commit(10, 13)
    assert one.watch.leave()
    assert one.commit(10, 13) == Guard(until=20, starts={12: 2})


def test_the_count_of_the_record_that_starts_is_never_the_one_to_be_forgotten() -> None:
    one = Watched(Guard(until=100, starts=dict.fromkeys(range(MAX_COUNTED), 5)))
    one.watch.charge(50)
    starts = one.watch.propose(0, 60).starts
    assert len(starts) == MAX_COUNTED
    assert starts[50] == 1


@given(st.lists(st.sampled_from(["innocent", "killer"]), min_size=1, max_size=12), st.integers(1, 5))
def test_in_probation_a_killer_is_started_so_often_and_no_innocent_is_charged(kinds: list[str], most: int) -> None:
    """Lives of owners, one after another, over one stretch of suspects, each of which runs alone in order."""
    stored, base = Guard(lease=len(kinds) + 9, mark=len(kinds) + 9), 0
    started = [0] * len(kinds)
    for _ in range(len(kinds) * (most + 1) + 1):
        watch = Watched(inherited(stored, base))
        watch.watch.run_out()
        while base < len(kinds):
            if watch.watch.starts(base) >= most:
                assert kinds[base] == "killer"
                base += 1  # dead-lettered
                continue
            watch.watch.charge(base)
            stored = watch.commit(base, base + 1)
            assert watch.watch.charge(base)
            started[base] += 1
            if kinds[base] == "killer":
                break
            watch.watch.came_back(finished=True)
            base += 1
    assert base == len(kinds)
    assert started == [most if kind == "killer" else 1 for kind in kinds]


# -- the search among many suspects


def test_many_suspects_are_tried_by_halves_and_few_of_them_alone() -> None:
    whole = ((0, 400),)
    assert next_trial(whole, 0, (), passed=False) == SuspectTrial(200)
    assert next_trial(whole, 200, (), passed=True) == SuspectTrial(300)
    assert next_trial(whole, 380, (), passed=True) == SuspectTrial(), "nothing points at these: they run together"
    assert next_trial(whole, 400, (), passed=True) is None
    assert next_trial(((0, ONE_BY_ONE),), 0, (), passed=False) == SuspectTrial(alone=True)


def test_after_a_death_those_that_were_tried_are_halved_before_the_others() -> None:
    whole = ((0, 400),)
    assert next_trial(whole, 0, (200,), passed=False) == SuspectTrial(100)
    assert next_trial(whole, 100, (200,), passed=True) == SuspectTrial(150)
    assert next_trial(whole, 180, (200,), passed=True) == SuspectTrial(200, alone=True)
    assert next_trial(whole, 200, (200,), passed=True) == SuspectTrial(300)
    assert next_trial(((0, 20), (100, 380)), 0, (110,), passed=False) == SuspectTrial(110, alone=True)


def test_the_lease_ends_behind_the_half_that_is_tried_and_asks_for_no_more() -> None:
    one = Watched(Guard(suspects=((10, 210),)), base=10, first_lease=2048)
    one.watch.run_out()
    assert one.commit(10, 10).lease == 110
    pressed = one.pressed
    one.watch.run_out()
    assert one.pressed == pressed, "a commit would not move it"
    assert not one.watch.is_tried(109)
    assert one.watch.is_tried(110)
    one.watch.pass_trial(110)
    assert (one.pressed, one.commit(50, 110).lease) == (pressed + 1, 160)


def test_a_death_during_a_trial_is_remembered_with_the_commit() -> None:
    found = Guard(lease=110, suspects=((10, 210),), narrowed=(160,))
    for fate in (UNKNOWN, dead((10, 110))):
        guard = inherited(found, 10, fate)
        assert guard.narrowed == (110, 160)
        assert read(write(guard, 10), 10).narrowed == (110, 160)
    assert inherited(found, 10, dead()).narrowed == (160,), "none of them was in flight"
    assert inherited(found, 120, NOT_DEAD).narrowed == (160,), "what lies below the commit is over"


def test_a_suspect_that_was_counted_runs_alone_wherever_it_is() -> None:
    one = Watched(Guard(suspects=((0, 400),), starts={70: 2}))
    assert (one.watch.trial, one.watch.has_alone) == (SuspectTrial(200), True)
    assert [at for at in range(400) if one.watch.runs_alone(at)] == [70]


def test_what_lies_behind_the_end_of_the_log_is_no_suspect() -> None:
    one = Watched(Guard(mark=2048, until=2048))
    assert one.watch.trial == SuspectTrial(1024)
    one.watch.limit_suspects(7)
    assert one.watch.trial == SuspectTrial(alone=True)
    assert one.commit(0, 0) == Guard(mark=2048, until=7)


class Search:
    """Lives of owners, one after another, over a stretch of suspects: a killer ends the life that tries it."""

    def __init__(self, count: int, killers: set[int], *, most: int, exact: bool) -> None:
        self.count, self.killers, self.most, self.exact = count, killers, most, exact
        self.left = set(range(count))
        self.letters: set[int] = set()
        self.together: list[int] = []
        self.counted: set[int] = set()
        self.deaths = 0
        self._text = write(Guard(mark=None if exact else count, suspects=((0, count),)), 0)
        self._base = 0

    def live(self, fate: Fate, *, trials: int = 1_000) -> Fate:
        """One owner, which ends in order after so many trials. Returns its fate."""
        one = Watched(inherited(read(self._text, self._base), self._base, fate), base=self._base, first_lease=WINDOW)
        watch, handed = one.watch, self._base
        watch.run_out()
        self._commit(one, handed)
        for _ in range(trials):
            if watch.trial is None:
                break
            tried = sorted(at for at in self.left if handed <= at < (watch.lease if watch.trial.end else self.count))
            died = self._alone(one, tried, handed) if watch.trial.alone else self._together(tried)
            if died:
                self.deaths += 1
                return Fate(dead=True, in_hand=spans_of((at, at + 1) for at in died)) if self.exact else UNKNOWN
            self.left -= set(tried)
            handed = self.count if watch.trial.end is None else watch.trial.end
            watch.pass_trial(handed)
            self._commit(one, handed)
        watch.leave()
        self._commit(one, handed)
        return NOT_DEAD

    def _commit(self, one: Watched, handed: int) -> None:
        self._base = min(self.left, default=self.count)
        self._text = write(one.commit(self._base, max(handed, self._base)), self._base)

    def _together(self, tried: list[int]) -> list[int]:
        self.together.append(len(tried))
        return tried if self.killers & set(tried) else []

    def _alone(self, one: Watched, tried: list[int], handed: int) -> list[int]:
        for at in tried:
            if one.watch.starts(at) >= self.most:
                self.letters.add(at)
            else:
                one.watch.charge(at)
                self._commit(one, handed)
                self.counted.add(at)
                if at in self.killers:
                    return [at]
                one.watch.came_back(finished=True)
            self.left.discard(at)
            self._commit(one, handed)
        return []


many = st.integers(ONE_BY_ONE + 1, 20 * ONE_BY_ONE)


def deaths_of_a_killer(count: int, most: int) -> int:
    """How many processes a killer among `count` suspects ends, at most.

    It ends those that try a half with it. Next is half of that half, until `ONE_BY_ONE` are left: as often can `count`
    be halved. If it was in none of the halves, it ends one process when the last `ONE_BY_ONE` are tried together. Then
    its starts are counted, alone, and a death of one makes no others suspects. Several killers cost no more each: a
    death is that of the first one in the half, and those behind it begin within a half that is known already.
    """
    return ceil(log2(count / ONE_BY_ONE)) + most


@given(many, st.data(), st.integers(1, 3), st.booleans())
def test_a_killer_among_many_costs_a_death_for_each_half_and_its_starts(
    count: int, data: st.DataObject, most: int, exact: bool
) -> None:
    search, fate = Search(count, {data.draw(st.integers(0, count - 1))}, most=most, exact=exact), NOT_DEAD
    for _ in range(30):
        fate = search.live(fate)
    assert search.left == set()
    assert search.letters == search.killers
    assert search.deaths <= deaths_of_a_killer(count, most)
    assert search.together[0] == (count + 1) // 2


@given(many, st.data(), st.lists(st.integers(1, 4), max_size=6), st.booleans())
def test_several_killers_are_found_however_owners_end_and_no_innocent_is_dead_lettered(
    count: int, data: st.DataObject, stops: list[int], exact: bool
) -> None:
    killers = data.draw(st.sets(st.integers(0, count - 1), max_size=3))
    search, fate = Search(count, killers, most=3, exact=exact), NOT_DEAD
    for trials in stops:
        fate = search.live(fate, trials=trials)
    for _ in range(60):
        fate = search.live(fate)
    assert search.left == set()
    assert search.letters == killers
    assert search.deaths <= len(killers) * deaths_of_a_killer(count, 3)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("count", [ONE_BY_ONE + 1, 2 * ONE_BY_ONE, 2 * ONE_BY_ONE + 1, 4 * ONE_BY_ONE + 1])
def test_the_bound_of_deaths_is_reached_and_no_more(count: int, *, exact: bool) -> None:
    worst = 0
    for killer in range(count):
        search, fate = Search(count, {killer}, most=2, exact=exact), NOT_DEAD
        while search.left:
            fate = search.live(fate)
        worst = max(worst, search.deaths)
    assert worst == deaths_of_a_killer(count, 2)


def test_a_death_of_a_counted_start_makes_no_others_suspects() -> None:
    """Without a flight recorder; nothing ran beside it, whatever the lease allowed."""
    found = Guard(lease=2_000, mark=30, until=30, starts={15: 1}, charged=15)
    guard = inherited(found, 15)
    assert (guard.mark, guard.until, guard.starts) == (30, 30, {15: 1})
    assert all_suspects(guard, 15) == ((15, 30),)


@given(many)
def test_without_a_killer_a_search_has_few_trials_and_counts_no_start(count: int) -> None:
    search = Search(count, set(), most=3, exact=False)
    search.live(NOT_DEAD)
    assert (search.left, search.counted) == (set(), set())
    assert len(search.together) <= ceil(log2(count / ONE_BY_ONE)) + 1
