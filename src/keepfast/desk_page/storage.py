"""What the dead-letter topics hold, and making room: archive cases, purge letters that are not needed any more."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from keepfast.core.errors import ConfigError, SourceError
from keepfast.desk.archives import archive
from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.cases import CaseState, Summary
from keepfast.desk.cluster import SILENT_CODES
from keepfast.desk.desk import PURGED, Desk
from keepfast.redact.urls import shown

CLOSED: Final = (*PURGED, CaseState.DISCARDED, CaseState.PERMANENTLY_FAILED)


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A dead-letter topic: its letters, and how many can be purged, without and with those that were put aside."""

    name: str
    letters: int
    purgeable: int
    with_discarded: int
    summary: Summary


class Storage:
    """Any thread may call it. `place`: the folder or URL that archives are written to; empty: none are. The attribute
    is without its credentials. Methods block and raise KeepfastError.
    """

    def __init__(self, desk: Desk, place: str) -> None:
        self._desk = desk
        self.place = shown(place)
        self._url = place

    def topics(self) -> list[StoredTopic]:
        return [one for name in sorted(self._desk.options.topics) if (one := self._topic(name)) is not None]

    def _topic(self, name: str) -> StoredTopic | None:
        try:
            spans = self._desk.cluster.spans(name)
            counts = [self._desk.purgeable_letters(name, states) for states in (PURGED, CLOSED)]
        except SourceError as error:
            if error.code in SILENT_CODES:
                raise
            return None
        letters = sum(high - low for low, high in spans.values())
        return StoredTopic(name, letters, counts[0], counts[1], self._desk.summary(CaseFilter(dlqs=frozenset({name}))))

    def purge(self, acting: Desk, *, discarded: bool, confirmed: int, why: str = "") -> int:
        """Delete as many letters as the person confirmed, or fewer: never more. Returns how many."""
        states = CLOSED if discarded else PURGED
        acting.refresh()
        now = sum(self._desk.purgeable_letters(name, states) for name in acting.options.topics)
        if now > confirmed:
            raise ConfigError(f"It would be {now:,} letters now, not {confirmed:,}. Look again.")
        return sum(acting.purge(states, why=why).values()) if now else 0

    def archive(self, acting: Desk, cases: Collection[str], *, why: str) -> int:
        """Write those of these cases that wait to the archive of this desk, and mark them. Returns how many."""
        if not self.place:
            raise ConfigError("The desk was started without --archive.")
        where = acting.own(CaseFilter(cases=frozenset(cases), states=frozenset({CaseState.OPEN})))
        chosen = list(acting.index.selected(where)) if cases else []
        if not chosen:
            raise ConfigError("Only records that wait can be archived.")
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(acting.now_ms() / 1000))
        url = f"{self._url.rstrip('/')}/letters-{stamp}-{len(chosen)}.jsonl.gz"
        return archive(acting, chosen, url, why=why).cases
