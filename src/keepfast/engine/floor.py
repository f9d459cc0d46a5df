"""Who may be at work in this process: every consumer, or one of them alone. Shared by the loops of an app."""

from __future__ import annotations

from threading import Lock


class Floor:
    """One loop may ask for the floor; it has it when all others have said that nothing of theirs is running.

    Whoever sees that another one has asked must start nothing until the floor is free again. Any thread; never blocks.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._members: list[object] = []
        self._quiet: list[object] = []
        self._asked_by: object | None = None

    def join(self, who: object) -> None:
        with self._lock:
            self._members.append(who)

    def leave(self, who: object) -> None:
        """It is over with this one: nobody waits for it any more."""
        self.give_back(who)
        with self._lock:
            if who in self._members:
                self._members.remove(who)

    def ask(self, who: object) -> bool:
        """Ask, or ask again. Whether it is this one's now."""
        with self._lock:
            if self._asked_by is None:
                self._asked_by = who
                self._quiet = []
            return self._asked_by == who and all(one == who or one in self._quiet for one in self._members)

    def is_anothers(self, who: object) -> bool:
        """Whether somebody else has asked for it. So cheap that every turn of a loop can look."""
        asked_by = self._asked_by
        return asked_by is not None and asked_by != who

    def be_quiet(self, who: object) -> None:
        """Nothing of this one runs, and nothing will start while the floor is another's."""
        with self._lock:
            if self._asked_by is not None and who not in self._quiet:
                self._quiet.append(who)

    def give_back(self, who: object) -> None:
        with self._lock:
            if self._asked_by == who:
                self._asked_by = None
