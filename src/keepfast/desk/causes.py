"""Cases by cause: how many, since when, until when, and what became of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from keepfast.core.records import RecordPlace
from keepfast.deadletters.letter import Letter
from keepfast.desk.cases import UNRESOLVED, CaseState
from keepfast.desk.masking import field_name, masked_text

HOURS: Final = 24
NO_LETTER: Final = "(no letter)"
"""In place of the error type: the record has no known format of letters."""
STILL_MS: Final = 15 * 60_000
"""A cause whose last letter is younger still happens."""

_PYTHON = re.compile(r'File "(?P<file>[^"\n]{1,300})", line (?P<line>\d{1,9}), in ')
_JAVA = re.compile(r"\bat (?P<method>[\w.$]{1,300})\((?P<file>\w{1,100}\.(?:java|kt|scala)):(?P<line>\d{1,9})\)")
_LIBRARIES = ("site-packages/", "dist-packages/", "/lib/python", "<frozen", "/keepfast/")
_JAVA_LIBRARIES = (
    "java.",
    "jdk.",
    "sun.",
    "org.springframework.",
    "org.apache.kafka.",
    "kotlin.",
    "scala.",
    "com.sun.",
)
_MISSING: Final = (
    re.compile(r"\bfield (?P<name>[\w.\[\]-]{1,100}) is required"),
    re.compile(r"(?:^|\n)(?P<name>[\w.-]{1,100})\n\s+Field required"),
    re.compile(r"missing required (?:field|property|argument)s?:? [`'\"](?P<name>[\w.-]{1,100})[`'\"]", re.IGNORECASE),
    re.compile(r"[`'\"](?P<name>[\w.-]{1,100})[`'\"] is a required property"),
)
_KEY_ERROR = re.compile(r"'(?P<name>[A-Za-z_][\w.-]{0,99})'")
_MAX_FIELDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One reason why records were dead-lettered. Its message has no values, so it can be printed."""

    fingerprint: str
    error_type: str
    message: str
    place: str
    """`file:line` in the user's code; empty if it is not known."""
    fields: tuple[str, ...]
    """Names of fields that the error says are missing."""
    classification: str
    counts: Mapping[CaseState, int]
    failed_again: int
    """How many of its cases failed again after a replay."""
    first_ms: int
    last_ms: int
    codes: Mapping[str, int]
    groups: Mapping[str, int]
    topics: Mapping[str, int]
    """Topics of the original records."""
    dlqs: Mapping[str, int]
    sample: RecordPlace
    """A letter of it."""
    hours: tuple[int, ...] = ()
    """Cases by the hour of their last failure, the last 24; the current hour is the last."""

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    @property
    def is_of_letters(self) -> bool:
        """False: these are records without a known format of letters; their topic may be no dead-letter topic."""
        return self.error_type != NO_LETTER

    @property
    def unresolved(self) -> int:
        return sum(self.counts.get(state, 0) for state in UNRESOLVED)

    def still_happens(self, now_ms: int) -> bool:
        return now_ms - self.last_ms < STILL_MS


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What all cases of a cause have in common; made from one letter. Masked."""

    fingerprint: str
    error_type: str
    error_class: str
    message: str
    classification: str
    place: str
    fields: tuple[str, ...]

    @classmethod
    def of(cls, letter: Letter) -> Diagnosis:
        kind = letter.error_type or (NO_LETTER if letter.format == "unknown" else "(not given)")
        return cls(
            letter.fingerprint,
            kind,
            letter.error_class,
            masked_text(letter.error_message, letter),
            letter.classification,
            raised_at(letter.stack_trace),
            missing_fields(letter),
        )


def raised_at(stack_trace: str) -> str:
    """`file:line` of the innermost frame that belongs neither to a library nor to us; empty if there is none."""
    found = [one for one in _PYTHON.finditer(stack_trace) if not any(part in one["file"] for part in _LIBRARIES)]
    if found:
        return f"{'/'.join(found[-1]['file'].replace(chr(92), '/').split('/')[-2:])}:{found[-1]['line']}"
    for one in _JAVA.finditer(stack_trace):  # Java lists the innermost first
        if not one["method"].startswith(_JAVA_LIBRARIES):
            return f"{one['file']}:{one['line']}"
    return ""


def missing_fields(letter: Letter) -> tuple[str, ...]:
    """Names of fields that the error says are missing, as far as they look like names."""
    message = letter.error_message
    names = [found["name"] for pattern in _MISSING for found in pattern.finditer(message)]
    if letter.error_type == "KeyError" and (found := _KEY_ERROR.fullmatch(message)):
        names.append(found["name"])
    shown = dict.fromkeys(field_name(name) for name in names)
    return tuple(name for name in shown if not name.startswith("<"))[:_MAX_FIELDS]
