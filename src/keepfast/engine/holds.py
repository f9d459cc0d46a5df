"""Named reasons not to start anything. Owner: the loop thread; others may read."""

from __future__ import annotations

from keepfast.core.ports import Clock
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.loop")


class Holds(set[str]):
    """Whoever added a hold removes it; something starts only when there is none. `since`: since when (monotonic)."""

    def __init__(self, consumer: str, clock: Clock) -> None:
        super().__init__()
        self._consumer = consumer
        self._clock = clock
        self.since: dict[str, float] = {}

    def add(self, name: str) -> None:
        if name not in self:
            super().add(name)
            self.since[name] = self._clock.monotonic()

    def discard(self, name: object) -> None:
        super().discard(name)
        self.since.pop(str(name), None)

    def put(self, name: str, *, held: bool) -> None:
        """Add or remove it, and say so if that changes something."""
        if held and name not in self:
            self.add(name)
            log.warning("held", consumer=self._consumer, hold=name)
        elif not held and name in self:
            self.discard(name)
            log.info("released", consumer=self._consumer, hold=name)
