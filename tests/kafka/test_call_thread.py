"""Calls that may never return: their results, their errors, and what becomes of one that hangs."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from keepfast.kafka import call_thread
from keepfast.kafka.call_thread import CallThread, Hangs
from tests.support.waiting import DEADLINE_S, wait_until


def fail() -> None:
    raise LookupError("inside")


def test_results_and_errors_are_those_of_the_call() -> None:
    calls = CallThread("calls")
    assert calls.call(lambda: threading.current_thread().name, DEADLINE_S) == "calls"
    with pytest.raises(LookupError, match="inside"):
        calls.call(fail, DEADLINE_S)
    assert calls.call(lambda: 2, DEADLINE_S) == 2
    assert not calls.busy
    calls.close()


def test_a_call_that_does_not_return_is_given_up_and_no_other_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_thread, "GRACE_S", 0.0)
    gate, made = threading.Event(), list[int]()
    calls = CallThread("calls")
    with pytest.raises(Hangs):
        calls.call(gate.wait, 0.01)
    with pytest.raises(Hangs):
        calls.call(partial(made.append, 1), DEADLINE_S)
    assert calls.busy
    gate.set()
    wait_until(lambda: not calls.busy, "it has returned")
    wait_until(lambda: not calls._thread.is_alive(), "the thread has ended")
    assert made == []


def test_a_result_that_is_there_when_a_stopped_process_continues_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_thread, "GRACE_S", DEADLINE_S)
    assert CallThread("calls").call(partial(time.sleep, 0.05), 0.001) is None
