"""Options of the `keepfast dlq` commands: which cluster and topics, and which letters."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from keepfast.cli.connection import CONNECT_TIMEOUT_S, as_start_error, connect, connection_for, missing_topic
from keepfast.core.errors import ConfigError, Fault, SourceError, StartError
from keepfast.core.retry_topics import left_over
from keepfast.deadletters import checked
from keepfast.deadletters.checked import iso
from keepfast.desk.selection import Offsets, Selection
from keepfast.kafka.admin import KafkaAdmin
from keepfast.kafka.browser import KafkaBrowser, browser_properties
from keepfast.kafka.config import Connection
from keepfast.wiring.topic_discovery import with_matched_topics

F = TypeVar("F", bound=Callable[..., Any])

HINT = "`keepfast dlq list --app MODULE:APP` finds the topics of an app."

_AGO = re.compile(r"(?P<count>\d{1,6})(?P<unit>[smhdw])", re.ASCII)
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Moment(click.ParamType[int]):
    """A time in milliseconds, from `2h` (ago) or ISO 8601."""

    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        ago = _AGO.fullmatch(str(value))
        if ago is not None:
            return max(0, round((time.time() - int(ago["count"]) * _UNITS_S[ago["unit"]]) * 1000))
        at_ms = checked.instant_ms(str(value))
        if at_ms is None:
            self.fail(f"{value!r} is not a time; write 30m, 2h or 7d (ago), or 2024-01-31T12:00 (UTC)", param, ctx)
        return at_ms


class OffsetsOption(click.ParamType[Offsets]):
    """P:FROM-TO, P:OFFSET or P:FROM-."""

    name = "P:FROM-TO"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Offsets:
        if isinstance(value, Offsets):
            return value
        try:
            return Offsets.parse(str(value))
        except ConfigError as error:
            self.fail(str(error), param, ctx)


def selection_options(command: F) -> F:
    """Add the filter options; their values are the keyword arguments of `selection_of`."""
    for option in (
        click.option(
            "--offsets",
            type=OffsetsOption(),
            multiple=True,
            help="Only these: 3:100-200, 3:100, or 3:100- (and later).",
        ),
        click.option("--until", type=Moment(), help="Failed before this time."),
        click.option("--since", type=Moment(), help="Failed at this time or later: 2h, 7d, 2024-01-31T12:00."),
        click.option("--group", "groups", metavar="NAME", multiple=True, help="Dead-lettered by this consumer group."),
        click.option(
            "--fingerprint", "fingerprints", metavar="HEX", multiple=True, help="With this cause, or a prefix of it."
        ),
        click.option("--code", "codes", metavar="CODE", multiple=True, help="With this error code."),
        click.option("--error-type", "error_types", metavar="TYPE", multiple=True, help="With this exception type."),
    ):
        command = option(command)
    return command


def selection_of(filters: dict[str, Any]) -> Selection:
    """The selection from the arguments of `selection_options`."""
    return Selection(
        error_types=frozenset(filters["error_types"]),
        codes=frozenset(filters["codes"]),
        fingerprints=frozenset(filters["fingerprints"]),
        groups=frozenset(filters["groups"]),
        since_ms=filters["since"],
        until_ms=filters["until"],
        offsets=tuple(filters["offsets"]),
    )


def option_words(selection: Selection, offsets: Sequence[Offsets]) -> list[str]:
    """The selection as command-line words, with these offsets instead of its own."""
    words: list[str] = []
    for option, values in (
        ("--error-type", selection.error_types),
        ("--code", selection.codes),
        ("--fingerprint", selection.fingerprints),
        ("--group", selection.groups),
    ):
        for value in sorted(values):
            words += [option, value]
    if selection.since_ms is not None:
        words += ["--since", iso(selection.since_ms)]
    if selection.until_ms is not None:
        words += ["--until", iso(selection.until_ms)]
    for one in offsets:
        words += ["--offsets", str(one)]
    return [shlex.quote(word) for word in words]


@dataclass(slots=True)
class DlqCluster:
    """A reachable cluster and the dead-letter topics to work on."""

    connection: Connection
    topics: tuple[str, ...]
    admin: KafkaAdmin
    _names: set[str] | None = None

    @property
    def topic(self) -> str:
        """The only topic. Raises ConfigError if there are several."""
        if len(self.topics) > 1:
            raise ConfigError(f"The app has several dead-letter topics; name one: {', '.join(self.topics)}.")
        return self.topics[0]

    def partitions_of(self, topic: str) -> int | None:
        facts = self.admin.topics([topic], CONNECT_TIMEOUT_S)[topic]
        return None if facts is None else facts.partitions

    def retry_topics_of(self, source: str, group: str) -> dict[str, int]:
        """The retry topics that exist for this group and source topic, each with its delay in seconds."""
        if self._names is None:
            self._names = self.admin.names(CONNECT_TIMEOUT_S)
        return left_over(self._names, source, group, ())

    @contextmanager
    def reading(self, topic: str) -> Iterator[None]:
        """Raise a SourceError from within as StartError; if the topic is missing, with a suggestion."""
        with as_start_error():
            try:
                yield
            except SourceError as error:
                if error.fault is not Fault.MISSING:
                    raise
                raise StartError(missing_topic(topic, self.admin.names(CONNECT_TIMEOUT_S), HINT)) from error

    @contextmanager
    def browser(self) -> Iterator[KafkaBrowser]:
        browser = KafkaBrowser(browser_properties(self.connection))
        try:
            yield browser
        finally:
            browser.close()


def open_dlq(topic: str | None, target: str | None, brokers: str | None) -> DlqCluster:
    """Connect and determine the topics. Raises ConfigError, LoadError or StartError."""
    connection, settings = connection_for(target, brokers)
    if topic is None:
        with as_start_error():
            settings = with_matched_topics(settings, lambda: connect(connection).names(CONNECT_TIMEOUT_S))
    letters = {letter for own in settings.consumers.values() for letter in own.dead_letter_topics.values()}
    topics = (topic,) if topic is not None else tuple(sorted(letters))
    if not topics:
        raise ConfigError("Name the dead-letter topic, or the app with --app MODULE:APP.")
    return DlqCluster(connection, topics, connect(connection))
