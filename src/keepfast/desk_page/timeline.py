"""What happened, by day: events of the processes and actions at the desk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from keepfast.desk.audit import AuditEntry
from keepfast.desk_page.processes import ProcessView
from keepfast.telemetry.state import TimelineEvent


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    at_ms: int
    title: str
    text: str
    colour: str
    where: str
    count: int = 1


def timeline_of(
    views: Sequence[ProcessView], audit: Sequence[AuditEntry], wanted: str = ""
) -> list[tuple[str, list[TimelineEntry]]]:
    """Days with their entries, the latest first. `wanted`: part of an entry's text."""
    entries = [_event(view.url, one) for view in views for one in view.events]
    entries += [_action(one) for one in audit]
    found = [one for one in entries if wanted.lower() in f"{one.title} {one.text} {one.where}".lower()]
    days: dict[str, list[TimelineEntry]] = {}
    for one in sorted(found, key=lambda one: -one.at_ms):
        days.setdefault(datetime.fromtimestamp(one.at_ms / 1000, UTC).strftime("%A, %d %B %Y"), []).append(one)
    return list(days.items())


def _event(url: str, one: TimelineEvent) -> TimelineEntry:
    title = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in one.event).strip().capitalize()
    return TimelineEntry(round(one.at * 1000), title, one.text, one.level, f"{one.consumer} · {url}", one.count)


def _action(one: AuditEntry) -> TimelineEntry:
    number = f" {one.count:,} " + ("record" if one.count == 1 else "records") if one.count else ""
    parts = [one.why, one.what]
    text = f"by {one.by}{',' if number else ''}{number}: {' · '.join(part for part in parts if part)}"
    return TimelineEntry(one.at_ms, one.action.replace("-", " ").capitalize(), text, "accent", f"desk · {one.via}")
