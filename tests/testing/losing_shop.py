"""The demo's shop on an engine with a bug: the first dead letter counts as published and is not."""

from __future__ import annotations

from keepfast.core.runs import FailedRecord
from keepfast.demo.shop import app
from keepfast.engine.forwarding import DeadLetterForwarder

__all__ = ["app"]

begin, lost = DeadLetterForwarder.begin, list[FailedRecord]()


def begin_but_once(self: DeadLetterForwarder, case: FailedRecord, now: float) -> None:
    if lost:
        begin(self, case, now)
    else:
        lost.append(case)
        self._finished(case, "topic", None)


DeadLetterForwarder.begin = begin_but_once  # type: ignore[method-assign]
