"""Cases as lines of JSON, masked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import msgspec

from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.desk import Desk
from keepfast.desk_page.filters import VIEWS


def export_lines(desk: Desk) -> Iterator[bytes]:
    """All cases that were put aside. Noted in the audit first."""
    where = desk.own(CaseFilter(states=VIEWS["put-aside"]))
    desk.note_action("export", count=desk.cases(where, size=1).total, what="discarded")
    return (msgspec.json.encode(asdict(case)) + b"\n" for case in desk.index.selected(where))
