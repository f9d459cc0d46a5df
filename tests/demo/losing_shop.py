"""The demo's shop on an engine with a bug: the first dead letter counts as published and is not."""

from __future__ import annotations

from keepfast.core.records import Outgoing
from keepfast.core.runs import FailedRecord
from keepfast.demo.shop import app
from keepfast.engine.forwarding import ForwardedRecord, Forwarder, Kind

__all__ = ["app"]

begin, lost = Forwarder.begin, list[FailedRecord]()


def begin_but_once(
    self: Forwarder,
    failed_record: FailedRecord,
    kind: Kind,
    outgoing: Outgoing,
    now: float,
    *,
    error: BaseException | None = None,
) -> None:
    if lost:
        begin(self, failed_record, kind, outgoing, now, error=error)
    else:
        lost.append(failed_record)
        self._finished(ForwardedRecord(failed_record, kind, outgoing, outgoing), "topic", None)


Forwarder.begin = begin_but_once  # type: ignore[method-assign]
