"""Rules about letters: P5, the verdict behind them, and that they are of the very record."""

from __future__ import annotations

from holdfast.core.policies import RetryPolicy
from holdfast.core.ports import Outgoing
from holdfast.core.records import Record
from holdfast.core.rules.codes import CRASHED
from holdfast.deadletter.letter import Letter
from holdfast.deadletter.reading import read
from holdfast.testing.simulator import acts
from holdfast.testing.simulator.oracle.book import FINAL, Book, Epoch
from holdfast.testing.simulator.oracle.violation import Blame
from holdfast.testing.simulator.workload import Entry


class LetterRules:
    """Looks at every letter that is handed to a sink."""

    def __init__(self, book: Book, blame: Blame, retry: RetryPolicy) -> None:
        self._book = book
        self._blame = blame
        self._retry = retry

    def sent(self, event: acts.LetterSent) -> None:
        outgoing, entry = self._book.letter(event.member, event.number)
        letter = original(outgoing)
        what = f"{event.member} sends a letter for record {entry.number} ({event.letter})"
        epoch = self._book.epochs.get((event.member, entry.place))
        if epoch is None or (event.member, entry.place) not in self._book.held:
            self._blame("P5", f"{what} of a partition it does not own")
        elif entry.number not in epoch.given:
            self._blame("P5", f"{what}, which it was not given since it owns the partition")
        elif entry.number in epoch.finished:
            self._blame("repeat", f"{what}, which is finished")
        elif letter.error_code != CRASHED:  # of those, CrashRules knows more
            self._due(what, epoch, entry)
        outcome = epoch.outcomes.get(entry.number) if epoch is not None else letter.error_type
        if (letter.error_type == "HandlerTimeout") != (outcome == "HandlerTimeout"):
            self._blame("letter", f"{what} because of {letter.error_type}")
        if (letter.key, letter.value, letter.headers) != (entry.key, entry.value, entry.headers):
            self._blame("letter", f"{what} with other bytes than the record's")

    def _due(self, what: str, epoch: Epoch, entry: Entry) -> None:
        failures, most = epoch.failures.get(entry.number, 0), self._retry.max_retries
        if not failures:
            self._blame("retry", f"{what}, which never failed here")
        elif epoch.outcomes[entry.number] in FINAL or self._retry.max_elapsed_s is not None:
            return
        elif most is None or failures <= most:
            self._blame("retry", f"{what} after {failures} failures; the policy allows {most} retries")


def original(outgoing: Outgoing) -> Letter:
    """The letter as whoever finds it in its topic reads it."""
    headers = tuple(outgoing.headers)
    return read(Record(outgoing.topic, outgoing.partition or 0, 0, outgoing.key, outgoing.value, headers, None))
