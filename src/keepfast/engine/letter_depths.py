"""How many letters the dead-letter topics of a consumer hold, and whether these topics are there: asked for now and
then, so that it is known before the next letter has to go there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

ASK_S, AGAIN_S = 30.0, 5.0
"""How often; the latter while one is not there."""

AskDepths = Callable[[Mapping[str, int], Callable[[Mapping[str, int | None]], None]], None]
"""Asks for the records in each of these topics, given with the number of their partitions: returns at once, and answers
at most once, from any thread. None: there is no such topic. Left out: it is not known.
"""


class LetterDepths:
    """Owner: the loop thread. `partitions`: the dead-letter topics, and how many each has."""

    def __init__(self, asks: AskDepths, partitions: Mapping[str, int]) -> None:
        self._asks = asks
        self._partitions = partitions
        self._asked_at = float("-inf")
        self._found: Mapping[str, int | None] = {}

    def look(self, now: float) -> dict[str, int | None]:
        """As it was when somebody answered last."""
        every_s = AGAIN_S if None in self._found.values() else ASK_S
        if self._partitions and now - self._asked_at >= every_s:
            self._asked_at = now
            self._asks(self._partitions, self._told)
        return dict(self._found)

    def _told(self, depths: Mapping[str, int | None]) -> None:
        """From any thread: replaced as a whole."""
        self._found = {**self._found, **depths}
