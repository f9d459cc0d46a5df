"""Conformance of mailboxes: word is handed over in order, and waiting ends with the first item."""

from __future__ import annotations

import pytest

from keepfast.core.ports import Mailbox
from tests.conformance.backend import Backend


def box(backend: Backend) -> Mailbox:
    return backend.mailbox()


def test_what_was_posted_comes_in_order_and_once(backend: Backend) -> None:
    mailbox = box(backend)
    for number in range(5):
        mailbox.post(number)
    assert mailbox.collect(1.0) == [0, 1, 2, 3, 4]
    assert mailbox.collect(0) == []


@pytest.mark.timing
def test_an_empty_mailbox_waits_for_its_time_out(backend: Backend) -> None:
    mailbox = box(backend)
    before = backend.now()
    assert mailbox.collect(0.2) == []
    assert 0.19 <= backend.now() - before < 2.0


@pytest.mark.timing
def test_a_time_out_of_zero_does_not_wait(backend: Backend) -> None:
    mailbox = box(backend)
    before = backend.now()
    assert mailbox.collect(0) == []
    assert backend.now() - before < 0.1


@pytest.mark.timing
def test_an_item_posted_meanwhile_ends_the_wait(backend: Backend) -> None:
    mailbox = box(backend)
    backend.later(0.05, lambda: mailbox.post("word"))
    before = backend.now()
    assert mailbox.collect(10.0) == ["word"]
    assert backend.now() - before < 5.0


def test_none_and_false_are_items_like_any_other(backend: Backend) -> None:
    mailbox = box(backend)
    mailbox.post(None)
    mailbox.post(False)
    assert mailbox.collect(1.0) == [None, False]


def test_a_list_counts_as_its_items_in_order(backend: Backend) -> None:
    mailbox = box(backend)
    mailbox.post("first")
    mailbox.post(["second", "third"])
    mailbox.post([])
    mailbox.post(("a", "tuple"))
    assert mailbox.collect(1.0) == ["first", "second", "third", ("a", "tuple")]
