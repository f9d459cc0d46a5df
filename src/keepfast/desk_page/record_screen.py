"""One record: what it holds, what happened to it, and what can be done with it alone: reveal, try, edit, note."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from keepfast.core.errors import KeepfastError, SourceError
from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.cases import Case, CaseHistory
from keepfast.desk.facts import Mark
from keepfast.desk.letters import StoredLetter
from keepfast.desk.masking import frames, masked_text
from keepfast.desk.plan import LaterRecords, later_of
from keepfast.desk.trials import TrialReport, try_handler
from keepfast.desk_page.commands import message_path
from keepfast.desk_page.payloads import MAX_SHOWN, frames_of, headers_of, payload_of
from keepfast.desk_page.screens import DeskBackend, Screens, local, redirect
from keepfast.desk_page.tokens import DeskUser

GONE: Final = "There is no such record at this desk."


class RecordScreen:
    """Any thread may call it."""

    def __init__(self, backend: DeskBackend, screens: Screens) -> None:
        self._backend = backend
        self._desk = backend.desk
        self._screens = screens

    def show(self, request: Request, user: DeskUser) -> Response:
        history = self._desk.case(request.query_params.get("id", ""))
        if history is None:
            return self._screens.problem(request, user, 404, GONE)
        try:
            return self._render(request, user, history, self._desk.letter(history.case.letter))
        except SourceError as error:
            return self._render(request, user, history, None, problem=f"The letter cannot be read now. {error}")

    def reveal(self, request: Request, user: DeskUser, form: FormData) -> Response:
        """Values, after that was noted in the audit."""
        history = self._history(form)
        if history is None:
            return self._screens.problem(request, user, 404, GONE)
        stored = self._desk.acting_as(user.name, "page").reveal(history.case.letter)
        return self._render(request, user, history, stored, reveal=True)

    def attempt(self, request: Request, user: DeskUser, form: FormData) -> Response:
        """Try today's handler on this record, which is audited."""
        history, trier = self._history(form), self._backend.trier
        if history is None or trier is None:
            return self._screens.problem(request, user, 404, GONE)
        report, problem = None, ""
        try:
            report = try_handler(self._desk.acting_as(user.name, "page"), trier, history.case.letter)
        except KeepfastError as error:
            problem = str(error)
        stored = self._desk.letter(history.case.letter)
        return self._render(request, user, history, stored, report=report, problem=problem)

    def edit(self, request: Request, user: DeskUser, form: FormData) -> Response:
        """Send the record with another value, as a replay of its case."""
        history = self._history(form)
        if history is None:
            return self._screens.problem(request, user, 404, GONE)
        # Forms send line ends as CR LF, whatever the text had; texts with CR are not offered for editing.
        value = str(form.get("value", "")).replace("\r\n", "\n").encode()
        try:
            run = self._backend.replays.edit(history.case, value, user.name, why=str(form.get("why", ""))[:1_000])
        except KeepfastError as error:
            return redirect(message_path(history.case.id), refused=str(error))
        return redirect(f"/runs/{run}", done="edited")

    def note(self, request: Request, user: DeskUser, form: FormData) -> Response:  # noqa: ARG002 - as every action
        back = local(str(form.get("back", "/")))
        try:
            self._desk.acting_as(user.name, "page").note(str(form.get("case", "")), str(form.get("note", ""))[:1_000])
        except KeepfastError as error:
            return redirect(back, refused=str(error))
        return redirect(back, done="noted")

    def _history(self, form: FormData) -> CaseHistory | None:
        return self._desk.case(str(form.get("case", "")))

    def _render(
        self,
        request: Request,
        user: DeskUser,
        history: CaseHistory,
        stored: StoredLetter | None,
        *,
        reveal: bool = False,
        report: TrialReport | None = None,
        problem: str = "",
    ) -> Response:
        letter, known = stored.letter if stored is not None else None, self._screens.commands
        reader = self._backend.reader
        reading = reader(letter) if reader is not None and letter is not None else None
        return self._screens.render(
            request,
            "message.html",
            user=user,
            active="failures",
            case=history.case,
            history=events_of(history),
            mark=history.mark,
            letter=letter,
            reveal=reveal,
            payload=payload_of(letter.value, reveal=reveal, reading=reading) if letter is not None else None,
            key=payload_of(letter.key, reveal=reveal) if letter is not None else None,
            headers=headers_of(letter.headers, reveal=reveal) if letter is not None else [],
            error=(letter.error_message if reveal else masked_text(letter.error_message, letter))
            if letter is not None
            else "",
            frames=frames_of(frames(letter.stack_trace)) if letter is not None else [],
            same_key=self._same_key(history.case),
            later=self._later(history.case),
            editable=_editable(letter.value if letter is not None else None),
            can_try=self._backend.trier is not None and letter is not None,
            report=report,
            problem=problem,
            command=(known.show if report is None else known.try_letter)(history.case.letter),
        )

    def _same_key(self, case: Case) -> list[Any]:
        """Other cases of the same key: replaying this one may apply an older state."""
        if not case.key_hash:
            return []
        listed = self._desk.cases(CaseFilter(topics=frozenset({case.topic}), groups=frozenset({case.group})), size=500)
        return [one for one in listed.cases if one.key_hash == case.key_hash and one.id != case.id][:10]

    def _later(self, case: Case) -> LaterRecords | None:
        try:
            return later_of(self._desk.cluster, case)
        except SourceError:  # the topic may not be readable; the record still is
            return None


def _editable(value: bytes | None) -> str | None:
    """The text that can be edited in a form and comes back as it was; None if it cannot."""
    if value is None or len(value) > MAX_SHOWN or b"\r" in value or b"\0" in value:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """One step of a case, in words."""

    at_ms: int
    colour: str
    text: str


def events_of(history: CaseHistory) -> list[HistoryEvent]:
    """What happened to a case, oldest first."""
    events = [
        HistoryEvent(
            one.at_ms, "bad", f"Failed again after the replay {one.run}" if one.run else "Failed and was dead-lettered"
        )
        for one in history.letters
    ]
    events += [
        HistoryEvent(
            one.at_ms, "accent", f"Sent to {_place(one.topic, one.partition, one.offset)} by the replay {one.run}"
        )
        for one in history.sends
    ]
    events += [
        HistoryEvent(
            one.at_ms, "good", "Processed" if one.kind == "succeeded" else f"Discarded by the handler ({one.code})"
        )
        for one in history.outcomes
    ]
    mark = history.mark
    if mark is not None:
        events.append(HistoryEvent(mark.at_ms, "warn", _mark_text(mark)))
    return sorted(events, key=lambda one: one.at_ms)


def _mark_text(mark: Mark) -> str:
    why = f": {mark.why}" if mark.why else ""
    if mark.kind == "restored":
        return f"{mark.by} wrote a note" if mark.note and not mark.why else f"Restored by {mark.by}{why}"
    return f"Marked as {mark.kind.replace('-', ' ')} by {mark.by}{why}"


def _place(topic: str, partition: int | None, offset: int | None) -> str:
    return topic if partition is None else f"{topic}[{partition}] offset {offset if offset is not None else '?'}"
