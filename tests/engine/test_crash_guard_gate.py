"""The gate of a process: one consumer has it alone, once all others have gone quiet."""

from __future__ import annotations

import threading
import time

from keepfast.engine.crash_guard import ExclusiveGate


def gate_of(*members: str) -> ExclusiveGate:
    gate = ExclusiveGate()
    for member in members:
        gate.join(member)
    return gate


def test_who_is_alone_has_it_at_once() -> None:
    gate = gate_of("a")
    assert gate.acquire("a")
    assert not gate.is_held_by_another("a")


def test_it_is_granted_when_all_others_are_quiet() -> None:
    gate = gate_of("a", "b", "c")
    assert not gate.acquire("a")
    assert [gate.is_held_by_another(one) for one in "abc"] == [False, True, True]
    gate.acknowledge("b")
    assert not gate.acquire("a")
    gate.acknowledge("c")
    assert gate.acquire("a")


def test_only_the_first_to_ask_gets_it_and_the_next_when_it_is_given_back() -> None:
    gate = gate_of("a", "b")
    gate.acquire("a")
    gate.acknowledge("b")
    assert gate.acquire("a")
    assert not gate.acquire("b")
    gate.release("b")
    assert gate.acquire("a"), "nobody can give back what is not theirs"
    gate.release("a")
    assert not gate.acquire("b"), "who was busy before has to go quiet first"
    gate.acknowledge("a")
    assert gate.acquire("b")


def test_quiet_counts_for_one_time_only() -> None:
    gate = gate_of("a", "b")
    gate.acquire("a")
    gate.acknowledge("b")
    gate.release("a")
    assert not gate.acquire("a"), "meanwhile b may have started something"


def test_an_unobserved_quiet_time_does_not_count() -> None:
    gate = gate_of("a", "b")
    gate.acknowledge("b")
    assert not gate.acquire("a")


def test_who_has_left_is_waited_for_no_more_and_keeps_nothing() -> None:
    gate = gate_of("a", "b", "c")
    gate.acquire("a")
    gate.acknowledge("b")
    gate.leave("c")
    assert gate.acquire("a")
    gate.leave("a")
    assert not gate.is_held_by_another("b")
    assert gate.acquire("b")


def test_two_threads_are_never_on_it_together() -> None:
    gate, inside, clashes, turns = gate_of("a", "b"), list[str](), list[str](), {"a": 0, "b": 0}

    def live(who: str) -> None:
        deadline = time.monotonic() + 30
        while min(turns.values()) < 200 and time.monotonic() < deadline:
            if gate.is_held_by_another(who):
                gate.acknowledge(who)
            elif gate.acquire(who):
                inside.append(who)
                clashes.extend(one for one in inside if one != who)
                inside.remove(who)
                turns[who] += 1
                gate.release(who)
            time.sleep(0)  # the other one's turn

    threads = [threading.Thread(target=live, args=(who,)) for who in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clashes == []
    assert min(turns.values()) >= 200
