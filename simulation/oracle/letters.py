"""Rules about letters and moves: P5, the verdict behind them, and that they are of the very record."""

from __future__ import annotations

from keepfast.classify.rules.codes import CRASHED
from keepfast.core.records import Outgoing, Record
from keepfast.core.retry_topics import Tier
from keepfast.deadletters.letter import Letter
from keepfast.deadletters.reading import read
from keepfast.testing.fakes import acts
from simulation.oracle.book import Book, is_final
from simulation.oracle.epochs import Epoch
from simulation.oracle.violation import Blame
from simulation.setup import Setup
from simulation.workload import Entry


class LetterRules:
    """Looks at every record that is handed to a sink: letters, and those on their way to a retry topic."""

    def __init__(self, book: Book, blame: Blame, setup: Setup) -> None:
        self._book = book
        self._blame = blame
        self._setup = setup
        self._retry = setup.retry
        self._delays_s = setup.tiers

    def sent(self, event: acts.LetterSent) -> None:
        outgoing, entry = self._book.letter(event.member, event.number)
        tier = self._book.tiers.topics.get(outgoing.topic)
        sends = f"sends a letter for record {entry.number} ({event.letter})"
        what = f"{event.member} {sends if tier is None else f'moves record {entry.number} to {tier.topic}'}"
        self.judge(event.member, outgoing, entry, what)

    def judge(self, member: str, outgoing: Outgoing, entry: Entry, what: str) -> None:
        """Whether this member may give the record up, by whatever way."""
        letter = original(outgoing)
        tier = self._book.tiers.topics.get(outgoing.topic)
        epoch = self._book.epochs.get((member, entry.place))
        if epoch is None or (member, entry.place) not in self._book.held:
            self._blame("P5", f"{what} of a partition it does not own")
        elif entry.number not in epoch.given:
            self._blame("P5", f"{what}, which it was not given since it owns the partition")
        elif entry.number in epoch.finished:
            self._blame("repeat", f"{what}, which is finished")
        elif letter.error_code == CRASHED:
            epoch.killers.add(entry.number)  # of those, CrashRules knows more
        elif not letter.error_code and entry.number in epoch.killers:
            pass
        elif not epoch.failures.get(entry.number, 0):
            self._blame("retry", f"{what}, which never failed here")
        elif not is_final(self._setup, epoch.outcomes[entry.number]):
            self._after_retries(what, epoch, entry)
            if tier is not None:
                self._next_step(what, tier, epoch, entry)
            else:
                self._no_step_left(what, epoch, entry)
        elif tier is not None:
            self._blame("retry", f"{what}, which is final")
        if tier is None:
            self._is_of(what, letter, epoch, entry)
        elif (outgoing.key, outgoing.value, tuple(outgoing.headers)[:1]) != (entry.key, entry.value, entry.headers):
            self._blame("letter", f"{what} with other bytes than the record's")

    def same_bytes(self, letter: Letter, entry: Entry, what: str) -> None:
        if (letter.key, letter.value, letter.headers) != (entry.key, entry.value, entry.headers):
            self._blame("letter", f"{what} with other bytes than the record's")

    def _after_retries(self, what: str, epoch: Epoch, entry: Entry) -> None:
        """All retries in place come first; a record that came back has none."""
        failures, policy = epoch.failures[entry.number], self._retry
        if entry.copied is not None or entry.number in epoch.stays or policy.max_elapsed_s is not None:
            return
        if (
            self._delays_s
            and epoch.outcomes[entry.number] == "RetryLater"
            and epoch.asked_s.get(entry.number, entry.after_s) > policy.max_delay_ms / 1000
        ):
            return  # that long no lane waits
        if policy.max_retries is None or failures <= policy.max_retries:
            self._blame("retry", f"{what} after {failures} failures; the policy allows {policy.max_retries} retries")

    def _next_step(self, what: str, tier: Tier, epoch: Epoch, entry: Entry) -> None:
        behind = entry.copied.step if entry.copied is not None else 0
        if entry.number in epoch.stays:
            self._blame("retry", f"{what}, which is too large for that")
        elif entry.forged:  # whatever its headers say, it was at the first step at least
            if behind >= len(self._delays_s) - 1:
                self._blame("retry", f"{what}, which was forged, after {behind} moves")
        elif tier.source != entry.root.place.topic:
            self._blame("retry", f"{what}, which is of {entry.root.place}")
        elif behind >= len(self._delays_s) or tier.delay_s != self._delays_s[behind]:
            self._blame("retry", f"{what} after {behind} of the delays {self._delays_s}")

    def _no_step_left(self, what: str, epoch: Epoch, entry: Entry) -> None:
        behind = entry.copied.step if entry.copied is not None else 0
        if behind < len(self._delays_s) and not entry.forged and entry.number not in epoch.stays:
            self._blame("retry", f"{what} after {behind} of the delays {self._delays_s}")

    def _is_of(self, what: str, letter: Letter, epoch: Epoch | None, entry: Entry) -> None:
        outcome = epoch.outcomes.get(entry.number) if epoch is not None else letter.error_type
        smallest = not (letter.error_type or letter.error_code)  # too large with what it says about the error
        if not smallest and (letter.error_type == "HandlerTimeout") != (outcome == "HandlerTimeout"):
            self._blame("letter", f"{what} because of {letter.error_type}")
        self.same_bytes(letter, entry, what)
        copied, root = entry.copied, entry.root
        if entry.forged:
            return  # a forged one may name another place
        if (letter.topic, letter.partition, letter.offset) != (*root.place, root.offset):
            self._blame("letter", f"{what} as {letter.id}; it came from {root.place} offset {root.offset}")
        failures = (copied.failures if copied else 0) + (epoch.failures.get(entry.number, 0) if epoch else 0)
        if epoch is not None and not smallest and letter.retry_count != max(0, failures - 1):
            self._blame("letter", f"{what} with {letter.retry_count} retries; it failed {failures} times")


def original(outgoing: Outgoing) -> Letter:
    """The letter as read from its topic."""
    headers = tuple(outgoing.headers)
    return read(Record(outgoing.topic, outgoing.partition or 0, 0, outgoing.key, outgoing.value, headers, None))
