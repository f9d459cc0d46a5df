"""The floor of a process: one consumer has it alone, once all others have gone quiet."""

from __future__ import annotations

import threading
import time

from keepfast.engine.crash_guard import ExclusiveGate


def floor_of(*members: str) -> ExclusiveGate:
    floor = ExclusiveGate()
    for member in members:
        floor.join(member)
    return floor


def test_who_is_alone_has_it_at_once() -> None:
    floor = floor_of("a")
    assert floor.ask("a")
    assert not floor.is_anothers("a")


def test_it_is_granted_when_all_others_are_quiet() -> None:
    floor = floor_of("a", "b", "c")
    assert not floor.ask("a")
    assert [floor.is_anothers(one) for one in "abc"] == [False, True, True]
    floor.be_quiet("b")
    assert not floor.ask("a")
    floor.be_quiet("c")
    assert floor.ask("a")


def test_only_the_first_to_ask_gets_it_and_the_next_when_it_is_given_back() -> None:
    floor = floor_of("a", "b")
    floor.ask("a")
    floor.be_quiet("b")
    assert floor.ask("a")
    assert not floor.ask("b")
    floor.give_back("b")
    assert floor.ask("a"), "nobody can give back what is not theirs"
    floor.give_back("a")
    assert not floor.ask("b"), "who was busy before has to go quiet first"
    floor.be_quiet("a")
    assert floor.ask("b")


def test_quiet_counts_for_one_time_only() -> None:
    floor = floor_of("a", "b")
    floor.ask("a")
    floor.be_quiet("b")
    floor.give_back("a")
    assert not floor.ask("a"), "meanwhile b may have started something"


def test_quiet_that_nobody_asked_for_counts_for_nothing() -> None:
    floor = floor_of("a", "b")
    floor.be_quiet("b")
    assert not floor.ask("a")


def test_who_has_left_is_waited_for_no_more_and_keeps_nothing() -> None:
    floor = floor_of("a", "b", "c")
    floor.ask("a")
    floor.be_quiet("b")
    floor.leave("c")
    assert floor.ask("a")
    floor.leave("a")
    assert not floor.is_anothers("b")
    assert floor.ask("b")


def test_two_threads_are_never_on_it_together() -> None:
    floor, inside, clashes, turns = floor_of("a", "b"), list[str](), list[str](), {"a": 0, "b": 0}

    def live(who: str) -> None:
        deadline = time.monotonic() + 30
        while min(turns.values()) < 200 and time.monotonic() < deadline:
            if floor.is_anothers(who):
                floor.be_quiet(who)
            elif floor.ask(who):
                inside.append(who)
                clashes.extend(one for one in inside if one != who)
                inside.remove(who)
                turns[who] += 1
                floor.give_back(who)
            time.sleep(0)  # the other one's turn

    threads = [threading.Thread(target=live, args=(who,)) for who in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clashes == []
    assert min(turns.values()) >= 200
