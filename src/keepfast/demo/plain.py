"""The demo as lines of text: where there is no terminal, or nobody wants colours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Self

from keepfast.demo.picture import Note, Picture
from keepfast.demo.reconcile import Account
from keepfast.demo.shop import LANES
from keepfast.desk.causes import Cause

LINE_EVERY_S = 2.5


class PlainView:
    """Writes whole lines with `echo`; progress now and then, and only if there is some."""

    def __init__(self, echo: Callable[[str], object]) -> None:
        self._echo = echo
        self._said_at = 0.0
        self._said = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to put away."""

    def note(self, note: Note) -> None:
        self._echo(f"{note.at_s:5.1f} s  {note.about:<11}  {note.text}")

    def show(self, picture: Picture) -> None:
        if picture.at_s - self._said_at < LINE_EVERY_S or picture.committed == self._said:
            return
        self._said_at, self._said = picture.at_s, picture.committed
        parts = [
            f"{picture.committed:,} of {picture.sent:,} committed",
            f"{picture.lanes} of {LANES} lanes at work",
            f"{picture.retries} retries",
            f"{picture.letters.total()} letters",
        ]
        self.note(Note(picture.at_s, "orders", ", ".join(parts)))

    def causes(self, topic: str, causes: list[Cause], fixed: set[str]) -> None:
        self._echo(f"\nWhy orders are in {topic}:")
        for cause in causes:
            cure = "  <- our bug" if cause.fingerprint in fixed else ""
            self._echo(f"  {cause.count:>4}  {cause.fingerprint}  {cause.error_type}: {short(cause.message)}{cure}")
        self._echo("")

    def account(self, account: Account) -> None:
        self._echo("\nThe account, read from the topics by another process:")
        for name, count, why in lines(account):
            self._echo(f"  {name:<10} {count:>6,}  {why}".rstrip())
        self._echo("")
        self._echo(verdict(account))


def short(text: str, most: int = 60) -> str:
    """The first line of it, cut."""
    line = text.partition("\n")[0]
    return line if len(line) <= most else line[: most - 1] + "…"


def lines(account: Account) -> Iterator[tuple[str, int, str]]:
    """What the account says: name, number, remark."""
    after = f"{account.processed_after_replay} of them after the replay" if account.replayed else ""
    yield "sent", account.sent, ""
    yield "processed", account.processed, after
    yield "buried", account.buried, "with their exact bytes, the reason, and a way back"
    yield "discarded", account.discarded, "test orders: the handler said so"
    yield "lost", account.lost, ", ".join(account.lost_orders)
    yield "repeated", account.repeated, ", ".join(f"{n} {why}" for why, n in account.repeated_because.items())
    if account.out_of_order:
        yield "disordered", account.out_of_order, "shipped before an earlier order of the same customer"
    if account.strangers:
        yield "strangers", account.strangers, "belong to no order that was sent, or do not hold its bytes"


def verdict(account: Account) -> str:
    """The last line."""
    if account.is_right:
        return f"lost 0: all {account.sent:,} orders are accounted for, each customer's in order."
    return f"lost {account.lost}: this must not happen."
