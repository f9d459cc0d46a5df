"""Rules about the crash guard (P7): killers are dead-lettered in time, no other record is, and the commits record it
correctly.

How long a killer may continue: each of its deaths leaves a lease that covers it. The first leaves a mark above it, the
second makes it a suspect, and from then on every start is counted. So it dies twice before counting starts, and
`max_deliveries` times after that. Only starts that end in a death are meant: a partition that is handed over in order
while its killer is still running leaves no evidence, and neither does a process that dies after another one, which saw
that it was alive, has taken over.
"""

from __future__ import annotations

from collections import Counter

from keepfast.classify.rules.codes import CRASHED
from keepfast.core.crash_guard import MAX_SUSPECTS, ONE_BY_ONE, Guard, Spans, covers, read
from keepfast.core.records import Outgoing, TopicPartition
from keepfast.testing.fakes import acts, trace
from simulation.oracle.book import Book
from simulation.oracle.cover import Cover
from simulation.oracle.epochs import Epoch
from simulation.oracle.health import Health
from simulation.oracle.letters import original
from simulation.oracle.violation import Blame
from simulation.setup import Setup
from simulation.workload import Entry

DEATHS_BEFORE = 2
"""So often a record may kill before its starts are counted."""

SEARCH_DEATHS = 12
"""So often can the suspects within a lease be halved, and one more for what a lane held back meanwhile."""

ANSWERED_S = 1.0


class CrashRules:
    """Looks at starts, deaths, letters, and at the guard's words in every commit."""

    def __init__(self, book: Book, blame: Blame, health: Health, setup: Setup) -> None:
        self._book = book
        self._blame = blame
        self._health = health
        self._most = setup.max_deliveries
        self._alone_s = setup.alone_s
        self._deaths: Counter[int] = Counter()
        self._killers = max(1, setup.killers)
        self._searched: set[int] = set()
        """Records that were among many suspects: the search costs deaths of its own."""
        self._known: dict[tuple[str, TopicPartition], Counter[int]] = {}
        """Of which deaths the commits of a member can tell: those before it began with the partition."""
        self._sent: dict[tuple[str, TopicPartition], tuple[Epoch, Guard]] = {}
        self._began_at: dict[int, float] = {}
        self._recorder = setup.recorder
        self._owners: dict[TopicPartition, str] = {}  # who began with a partition last
        self._hands: dict[tuple[str, TopicPartition], set[int]] = {}
        """The numbers of the records that a member had in flight of a partition when it died."""

    # -- what commits say

    def sent(self, event: trace.CommitSent) -> None:
        epoch = self._book.epochs.get((event.member, event.place))
        if epoch is None:
            return
        words = Cover(event.offset, event.metadata).guard
        guard, suspicion = read(words, event.offset), epoch.suspicion
        if epoch.before is not None and epoch.sent is None:
            self._carried(event, epoch, epoch.before, guard)
        if bool(words) != (guard != Guard()) or (words and self._most is None):
            self._blame("guard", f"{epoch} commits words of the guard that say nothing: {words!r}")
        self._sent[event.member, event.place] = epoch, guard
        if suspicion.end <= (guard.until or 0) < suspicion.until:
            suspicion.limit(guard.until or 0)
        elif not guard.until and suspicion.end <= event.offset < suspicion.until:
            suspicion.limit(0)
        for what, recorded, known in (("mark", guard.mark, suspicion.mark), ("until", guard.until, suspicion.until)):
            wanted = known if known > event.offset and self._most is not None else 0
            if (recorded or 0) != wanted:
                self._blame("guard", f"{epoch} commits at {event.offset} with {what} {recorded}; it should be {wanted}")
        self._exact(event, epoch, guard)
        for offset, count in guard.starts.items():
            ahead = offset == guard.charged or event.member in self._book.stopping
            if count > suspicion.found.starts.get(offset, 0) + ahead:
                self._blame("guard", f"{epoch} counts {count} starts of {offset}; it found {suspicion.found}")
            if count != suspicion.found.starts.get(offset, 0) and not suspicion.is_suspect(offset):
                self._blame("guard", f"{epoch} counts a start of {offset}, which is no suspect")

    def _carried(self, event: trace.CommitSent, epoch: Epoch, before: Epoch, guard: Guard) -> None:
        """The first commit after a seek: who was a suspect and is not finished still is one."""
        epoch.suspicion.suspects = guard.suspects
        epoch.suspicion.start = event.offset
        epoch.suspicion.begin_search()
        if self._most is None or len(guard.suspects) >= MAX_SUSPECTS:
            return
        open_suspects = (entry.offset for entry in before.waiting.values() if before.suspicion.is_suspect(entry.offset))
        for offset in open_suspects:
            if offset >= event.offset and not covers(guard.suspects, offset):
                self._blame("guard", f"{epoch} forgets that {offset} is a suspect: {guard}")

    def _exact(self, event: trace.CommitSent, epoch: Epoch, guard: Guard) -> None:
        """Where the last owner noted what it had in flight: all of that below its lease is marked, nothing else is
        suspected. Beyond the lease are at most calls of an earlier epoch, which were given up.
        """
        suspicion = epoch.suspicion
        noted = suspicion.fate.in_hand
        if not suspicion.died or noted is None or self._most is None:
            return
        numbers = self._hands.get((suspicion.left_by, event.place), set())
        hand = {self._book.entries[number].offset for number in numbers}
        marked, again = guard.in_hand, _covered(suspicion.found.in_hand, hand)
        for offset in hand:
            entry = self._book.records_of(event.place).by_offset.get(offset)
            if offset < event.offset or entry is None or epoch.knows_finished(entry):
                continue
            if entry.number not in numbers or offset >= (suspicion.found.lease or 0):
                continue  # it was a record of the topic that had this name before, or lies beyond the lease
            if not covers(marked, offset):
                self._blame(
                    "guard", f"{epoch} does not mark {offset}, which was in flight when its owner died: {guard}"
                )
            if offset in again and not (covers(guard.suspects, offset) or offset < suspicion.until):
                self._blame("guard", f"{epoch} does not suspect {offset}, in flight at two deaths: {guard}")
        if len(guard.suspects) < MAX_SUSPECTS:
            own = {entry.offset for other, entry in self._book.calls.values() if other is epoch}  # if it ends for them
            before = suspicion.found.suspects
            for first, end in guard.suspects:
                for offset in range(first, end):
                    if not covers(before, offset) and offset not in hand | own:
                        self._blame("guard", f"{epoch} suspects {offset}, which was not in hand: {guard}, {hand}")

    def accepted(self, event: trace.CommitAccepted) -> None:
        if event.late:
            return
        epoch, guard = self._sent.get((event.member, event.place), (None, Guard()))
        if epoch is not None:
            epoch.suspicion.stored = guard
        known = self._known.get((event.member, event.place))
        if known is not None and self._owners.get(event.place) != event.member:
            # A group without members takes the commit of a former one, in place of what says how a later one died.
            for entry in self._book.records_of(event.place).entries:
                self._deaths[entry.number] = min(self._deaths[entry.number], known[entry.number])

    def answered(self, event: trace.CommitAnswered) -> None:
        epoch, guard = self._sent.get((event.member, event.place), (None, Guard()))
        if epoch is not None and not event.code:
            epoch.suspicion.confirmed = guard

    def revoke_ends(self, event: trace.RevokedEnd) -> None:
        """Who lets go in order says so, if the broker lets it."""
        answers = max(self._health.broker_disturbed_at(), self._health.commits_disturbed_at(event.member))
        if answers > event.at - ANSWERED_S or self._health.awaits_answer(event.member):
            return
        for place in event.places:
            epoch, guard = self._sent.get((event.member, place), (None, Guard()))
            if epoch is None or epoch is not self._book.epochs.get((event.member, place)):
                continue
            if guard.lease is not None or epoch.suspicion.charges():
                self._blame("guard", f"{epoch} releases it, and its last commit has records in flight: {guard}")

    # -- starts

    def began(self, event: acts.HandlerBegan) -> None:
        self._began_at[event.call] = event.at
        entry = self._book.entries[event.number]
        epoch = self._book.epochs.get((event.member, event.place))
        if self._most is None or epoch is None:
            return
        suspicion = epoch.suspicion
        what = f"{event.member} starts record {entry.number} ({event.place} offset {event.offset})"
        if suspicion.confirmed.lease is None or suspicion.confirmed.lease <= entry.offset:
            self._blame("guard", f"{what} without a confirmed commit that says so: {suspicion.confirmed}")
        if suspicion.is_suspect(entry.offset) and self._is_of_a_half(epoch, entry):
            self._half(what, epoch)
        else:
            self._alone(what, event, epoch, entry)
        if suspicion.found.starts.get(entry.offset, 0) >= self._most and suspicion.is_suspect(entry.offset):
            self._blame("P7", f"{what}, which has to be dead-lettered: {suspicion.found}")
        most = DEATHS_BEFORE + self._most + SEARCH_DEATHS * self._killers * (entry.number in self._searched)
        if entry.conduct == "kill" and self._deaths[entry.number] >= most:
            self._blame("P7", f"{what}, which has killed {self._deaths[entry.number]} processes")

    def batch_began(self, event: acts.BatchBegan) -> None:
        for number, call in zip(event.numbers, event.calls, strict=True):
            entry = self._book.entries[number]
            self.began(
                acts.HandlerBegan(event.at, event.member, entry.place, entry.offset, number, event.attempt, call)
            )
            epoch = self._book.epochs.get((event.member, entry.place))
            suspect = epoch is not None and epoch.suspicion.is_suspect(entry.offset)
            if suspect and epoch is not None and len(event.numbers) > 1 and not self._is_of_a_half(epoch, entry):
                self._blame(
                    "guard", f"{event.member} starts a suspect, record {number}, with others in batch {event.batch}"
                )

    def _is_of_a_half(self, epoch: Epoch, entry: Entry) -> bool:
        """Whether the suspect was started as one of many, by the commits of its owner: no start is counted for it."""
        guard = epoch.suspicion.confirmed
        return guard.charged != entry.offset and guard.lease is not None and epoch.suspicion.half * 2 > ONE_BY_ONE

    def _half(self, what: str, epoch: Epoch) -> None:
        """No more than half of the suspects run at a time, and then they may come beside anything."""
        suspicion = epoch.suspicion
        self._searched.update(number for number, one in epoch.waiting.items() if suspicion.is_suspect(one.offset))
        running = [epoch.waiting[number] for number in epoch.running if number in epoch.waiting]
        suspects = [one for one in running if suspicion.is_suspect(one.offset)]
        if len(suspects) + 1 > max(suspicion.half, ONE_BY_ONE):
            self._blame("guard", f"{what} beside {len(suspects)} other suspects; half of them are {suspicion.half}")

    def _alone(self, what: str, event: acts.HandlerBegan, epoch: Epoch, entry: Entry) -> None:
        suspicion, counted = epoch.suspicion, epoch.suspicion.is_suspect(entry.offset)
        if counted:
            self._book.alone[event.call] = event.member, event.at
        if counted and suspicion.confirmed.starts.get(entry.offset, 0) <= suspicion.found.starts.get(entry.offset, 0):
            self._blame("guard", f"{what}, a suspect, before its start is counted: {suspicion.confirmed}")
        for call, (other, beside) in self._book.calls.items():
            if other is None or other.member != event.member or event.at - self._began_at[call] >= self._alone_s:
                continue
            suspected = other.suspicion.is_suspect(beside.offset) and not self._is_of_a_half(other, beside)
            if counted or (suspected and other.alive):
                self._blame("guard", f"{what} beside record {beside.number}, and one of them is a suspect")
        for (name, _), other in self._book.epochs.items():
            charges = other.suspicion.charges() - ({entry.offset} if other is epoch else set())
            if name == event.member and charges:
                self._blame("guard", f"{what} while {other} is charged with a start of {charges}")

    # -- deaths

    def started(self, event: trace.Started | trace.Reset) -> None:
        """Where there is no commit to begin from, nothing is known of former deaths."""
        self._owners[event.place] = event.member
        offset, _ = self._book.read.get((event.member, event.place), (None, ""))
        if offset is None or offset != event.offset:
            for entry in self._book.records_of(event.place).entries:
                self._deaths[entry.number] = 0
        self._known[event.member, event.place] = self._deaths.copy()

    def crashed(self, event: trace.ProcessCrashed) -> None:
        died: set[int] = set()  # of several calls for a record, all but one were given up
        for epoch, entry in self._book.calls.values():
            if epoch is None or epoch.member != event.member:
                continue
            self._hands.setdefault((event.member, entry.place), set()).add(entry.number)
            _, sent = self._sent.get((event.member, entry.place), (None, Guard()))
            if self._recorder and self._owners.get(entry.place) != event.member:
                continue  # the next owner saw that the process was alive
            if epoch.alive and not (epoch.suspicion.stored.draining or sent.draining):
                died.add(entry.number)
        self._deaths.update(died)

    def lost(self, event: trace.LostCalled) -> None:
        if self._recorder:
            return  # the next owner sees that the process lives
        self._deaths.update(
            {
                entry.number
                for epoch, entry in self._book.calls.values()
                if epoch is not None and epoch.alive and epoch.member == event.member and epoch.place in event.places
            }
        )

    def letter_sent(self, event: acts.LetterSent) -> None:
        self._given_up(event.member, *self._book.letter(event.member, event.number))

    def letter_handed(self, event: acts.LetterHanded) -> None:
        self._given_up(event.member, *self._book.handed(event.member, event.number))

    def _given_up(self, member: str, outgoing: Outgoing, entry: Entry) -> None:
        epoch = self._book.epochs.get((member, entry.place))
        if original(outgoing).error_code != CRASHED or epoch is None:
            return
        found = epoch.suspicion.found
        if self._most is None or found.starts.get(entry.offset, 0) < self._most:
            self._blame(
                "P7", f"{epoch} dead-letters record {entry.number} ({entry.conduct}) as a killer; it found {found}"
            )


def _covered(spans: Spans, offsets: set[int]) -> set[int]:
    return {offset for offset in offsets if covers(spans, offset)}
