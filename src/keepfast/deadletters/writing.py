"""Serialises a letter in any of the three formats, and changes one that Kafka does not accept as it is."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from keepfast.core.errors import Fault, SinkError
from keepfast.core.policies import LetterFormat
from keepfast.core.records import Outgoing, Record
from keepfast.deadletters import envelope, nested, ours, spring
from keepfast.deadletters.letter import Bytes, Headers, Letter, within_limits
from keepfast.deadletters.reading import read

SHORT_MESSAGE = 200


def write(letter: Letter, form: LetterFormat) -> tuple[Bytes, Headers]:
    """Value and headers of the letter; its key is the original's."""
    letter = within_limits(letter)
    match form:
        case "envelope":
            return envelope.write(letter), (*letter.headers, *_marks(letter))
        case "nested":
            return nested.write(letter), (*letter.headers, *_marks(letter))
        case "headers":
            return letter.value, (*spring.write(letter), *ours.replay_header(letter))
        case other:
            assert_never(other)


def shrunk(outgoing: Outgoing) -> Outgoing:
    """One step smaller, never at the cost of the original bytes; the same if nothing is left to cut.

    Removed in this order: the stack, the message (its beginning is kept), attempts and reason; then, because base64
    makes a value a third larger, a JSON letter becomes one in the format `headers`, which holds the value unchanged;
    finally only the id of our own headers is kept (and the header of a replay).
    """
    letter = read(Record(outgoing.topic, 0, 0, outgoing.key, outgoing.value, tuple(outgoing.headers), None))
    form = letter.format
    if form not in ("envelope", "nested", "headers"):
        return outgoing
    if letter.stack_trace:
        letter = replace(letter, stack_trace="")
    elif len(letter.error_message) > SHORT_MESSAGE:
        letter = replace(letter, error_message=letter.error_message[:SHORT_MESSAGE])
    elif letter.attempts or letter.reason or letter.error_message:
        letter = replace(letter, attempts=(), reason="", error_message="")
    elif form != "headers":
        form = "headers"
    else:
        return replace(outgoing, value=letter.value, headers=ours.only_id(letter))
    value, headers = write(letter, form)
    return replace(outgoing, value=value, headers=headers)


def other_form(outgoing: Outgoing, error: SinkError) -> Outgoing | None:
    """The same letter in a form that Kafka may accept at once; None if there is none.

    Too large: one step smaller. No such partition, because the topic was recreated with fewer: its key decides.
    """
    if error.fault is Fault.TOO_LARGE:
        smaller = shrunk(outgoing)
        return None if smaller == outgoing else smaller
    if error.fault is Fault.MISSING and error.code == "_UNKNOWN_PARTITION" and outgoing.partition is not None:
        return replace(outgoing, partition=None)
    return None


def _marks(letter: Letter) -> Headers:
    marks = [(ours.LETTER_ID, letter.id), (ours.ERROR_CODE, letter.error_code)]
    return (*ours.origin_note(letter), *ours.encoded(marks), *ours.replay_header(letter))
