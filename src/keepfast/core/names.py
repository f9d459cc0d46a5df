"""Names made from names: domain and entity of a topic, group and dead-letter topic; and which names Kafka allows."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

MAX_TOPIC_LENGTH: Final = 249
LETTER_FIELDS: Final = ("domain", "entity", "topic", "env", "group")

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
_VERSION = re.compile(r"v[0-9]+", re.ASCII)


class TopicParts(NamedTuple):
    """What a topic is about: `orders.payment.v1` is the entity `payment` of the domain `orders`."""

    domain: str
    entity: str


def topic_parts(topic: str, *, app: str) -> TopicParts:
    """Split a topic: first segment, then the others joined by `_`, a version at the end left out.

    A topic of one segment belongs to the app's own domain.
    """
    segments = [segment for segment in topic.split(".") if segment]
    if len(segments) > 1 and _VERSION.fullmatch(segments[-1]):
        del segments[-1]
    if len(segments) < 2:
        return TopicParts(app, segments[0] if segments else topic)
    return TopicParts(segments[0], "_".join(segments[1:]))


def default_group(app: str, consumer: str) -> str:
    return f"{app}.{consumer}"


def expand(pattern: str, fields: Mapping[str, str]) -> str:
    """Fill `{field}` in a pattern. Raises ValueError, its text the end of a sentence, for anything but known fields."""
    known = ", ".join(f"{{{field}}}" for field in fields)
    try:
        parts = list(string.Formatter().parse(pattern))
    except ValueError as error:
        raise ValueError(f"has braces that do not match in {pattern!r}; it may use {known}") from error
    filled = []
    for literal, field, spec, conversion in parts:
        filled.append(literal)
        if field is None:
            continue
        if field not in fields or spec or conversion:
            raise ValueError(f"uses {{{field}}} in {pattern!r}, which is not known here; it may use {known}")
        filled.append(fields[field])
    return "".join(filled)


def literal_text(pattern: str) -> str:
    """What a pattern with `{field}` has beside its fields."""
    try:
        return "".join(literal for literal, _, _, _ in string.Formatter().parse(pattern))
    except ValueError:  # braces that do not match: `expand` says so
        return pattern


def segment_problem(text: str) -> str | None:
    """Why this cannot be a part of a topic's name, as the end of a sentence; None if it can."""
    if _LEGAL.fullmatch(text):
        return None
    return (
        f"becomes part of topic names, so it may have only letters, digits, dots, underscores and hyphens; got {text!r}"
    )


@lru_cache(maxsize=1_024)
def topic_problem(topic: str) -> str | None:
    """Why Kafka would refuse this name for a topic, as the end of a sentence; None if it would not."""
    if not topic:
        return "is an empty topic name"
    if topic in {".", ".."}:
        return f"is {topic!r}, which Kafka does not allow as a topic name"
    if len(topic) > MAX_TOPIC_LENGTH:
        return (
            f"makes a topic name of {len(topic)} characters, and Kafka allows {MAX_TOPIC_LENGTH}; choose a shorter one"
        )
    if not _LEGAL.fullmatch(topic):
        return f"is {topic!r}, and Kafka allows only letters, digits, dots, underscores and hyphens in a topic name"
    return None
