"""Rules about spools: what is kept outlives a power cut and reaches its topic (P1), once, byte for byte (P9)."""

from __future__ import annotations

from keepfast.core.records import Outgoing
from keepfast.deadletters.spool.letters import letter_of
from keepfast.testing.fakes import acts, trace
from keepfast.testing.fakes.world import World
from simulation.oracle.book import Book
from simulation.oracle.epochs import Epoch
from simulation.oracle.letters import LetterRules, original
from simulation.oracle.violation import Blame
from simulation.workload import Entry


class SpoolRules:
    """Looks at what loops hand to their spools, at what these say, at what they send on, and at the disk afterwards.

    A letter that is kept finishes its record; from then on, until it is in its topic, it has to be on the disk.
    """

    def __init__(self, world: World, book: Book, blame: Blame, letters: LetterRules) -> None:
        self._world = world
        self._book = book
        self._blame = blame
        self._letters = letters
        self._handed: dict[tuple[str, int], tuple[Epoch | None, Entry, Outgoing]] = {}
        self._sending: dict[tuple[str, int], Entry] = {}
        self._on_disk: dict[int, set[bytes]] = {}  # record → bytes of letters that are kept and not in the topic
        self._delivered: set[tuple[str, int]] = set()  # process and record

    def handed(self, event: acts.LetterHanded) -> None:
        outgoing, entry = self._book.handed(event.member, event.number)
        self._letters.judge(event.member, outgoing, entry, f"{event.member} spools a letter of record {entry.number}")
        epoch = self._book.epochs.get((event.member, entry.place))
        self._handed[event.member, event.number] = (epoch, entry, outgoing)
        if epoch is not None:
            epoch.letters.add(entry.number)

    def kept(self, event: acts.LetterKept) -> None:
        epoch, entry, outgoing = self._handed.pop((event.member, event.number))
        root = entry.root.number
        if (event.member, root) not in self._delivered:
            # A copy describes another attempt: only its identity equals that of this letter.
            mark = letter_of(outgoing).identity if event.known else outgoing.value or b""
            self._on_disk.setdefault(root, set()).add(mark)
        entry.terminal = entry.terminal or "spooled"
        self._book.active_at[event.member] = event.at
        if epoch is not None:
            self._book.finish(epoch, entry, event.at)

    def sent_on(self, event: acts.SpooledLetterSent) -> None:
        outgoing = self._book.members[event.member].seat.sink.sent[event.number]
        entry = self._book.root_of(outgoing)
        what = f"{event.member} sends on a letter of record {entry.number}"
        self._letters.same_bytes(original(outgoing), entry, what)
        if (event.member, entry.number) in self._delivered:
            self._blame("spool repeat", f"{what}, which it knows to be in its topic")
        if any(key[0] == event.member and other is entry for key, other in self._sending.items()):
            self._blame("spool repeat", f"{what} while a copy of it is on its way")
        self._sending[event.member, event.number] = entry

    def acked(self, event: trace.LetterAcked) -> None:
        entry = self._sending.pop((event.member, event.number), None)
        if entry is None:
            return
        self._delivered.add((event.member, entry.number))
        self._on_disk.pop(entry.number, None)

    def failed(self, event: trace.LetterFailed) -> None:
        self._sending.pop((event.member, event.number), None)

    def power_cut(self, event: acts.PowerCut) -> None:  # noqa: ARG002 - as every rule
        for number, letters in self._on_disk.items():
            if not any(self._world.disk.holds(letter) for letter in letters):
                self._blame("P1", f"the letter of record {number} was kept, and the power cut took it")

    def unfinished(self) -> list[str]:
        """Letters that are kept and not in their topic."""
        return [f"the letter of record {number} is spooled, and not sent on" for number in self._on_disk]
