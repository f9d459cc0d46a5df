"""Structured logs on the standard library's logging: constant event names, and fields.

    log = get_logger("keepfast.engine")
    log.info("partition_assigned", topic="orders", partition=3)

As a library, keepfast adds no output; the user's handlers get the records. Until an app starts, a NullHandler on the
logger `keepfast` keeps Python from printing warnings where there is no handler at all. Only `configure`, which the CLI
calls, adds an output. Fields are made safe (`clean.py`) before a record exists, so that no
handler can print a payload. Structured handlers can use `record.event` and `record.fields`.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Hashable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TextIO, get_args

from keepfast.core.errors import ConfigError
from keepfast.redact.masking import MASKED
from keepfast.telemetry.clean import Clean, clean_error, clean_text, clean_trace, clean_value, hides

ROOT = "keepfast"
LogFormat = Literal["auto", "console", "json", "app"]
FORMATS = get_args(LogFormat)
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_RESERVED = frozenset({"ts", "level", "logger", "event"})
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.\-]")
_LIKE_A_FIELD = re.compile(r"[\"=\\]")
_BARE_VALUE = re.compile(r"[^\s\"'=\\{}\[\]]+")
_COLOURS = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "1;31"}

_SILENT = logging.NullHandler()
logging.getLogger(ROOT).addHandler(_SILENT)


@dataclass(frozen=True, slots=True)
class Entry:
    """An event and its clean fields; as text, which plain handlers print: `event a=1 b="two words"`."""

    event: str
    fields: Mapping[str, Clean]

    def __str__(self) -> str:
        return " ".join((_title(self.event), *(f"{name}={_quoted(value)}" for name, value in self.fields.items())))


_OF_LOG_RECORDS = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})
"""Attributes that are taken."""


class Logger:
    """Any thread may use it. A call at a disabled level costs a dictionary lookup. `flat`: fields are attributes of the
    log records, too, as the formatters of users expect it.
    """

    __slots__ = ("_bound", "_enabled", "_flat", "_log", "_sampler")

    def __init__(self, log: logging.Logger, *, bound: Mapping[str, Any], sampler: Sampler, flat: bool = False) -> None:
        self._log = log
        self._enabled = log.isEnabledFor
        self._bound = bound
        self._sampler = sampler
        self._flat = flat

    def bind(self, **fields: Any) -> Logger:
        """A logger that adds these fields to every entry."""
        return Logger(self._log, bound={**self._bound, **fields}, sampler=self._sampler, flat=self._flat)

    @property
    def debugging(self) -> bool:
        """Whether debug entries are logged: ask before gathering what is costly."""
        return self._enabled(10)

    def debug(self, event: str, /, **fields: Any) -> None:
        if self._enabled(10):
            self._emit(10, event, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        if self._enabled(20):
            self._emit(20, event, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        if self._enabled(30):
            self._emit(30, event, fields)

    def error(self, event: str, /, **fields: Any) -> None:
        """An exception in the fields is logged with its stack."""
        if self._enabled(40):
            self._emit(40, event, fields)

    def critical(self, event: str, /, **fields: Any) -> None:
        if self._enabled(50):
            self._emit(50, event, fields)

    def sampled(
        self,
        level: int,
        event: str,
        /,
        *,
        now: float,
        key: Hashable = None,
        every_s: float = 10.0,
        at_most: int = 1,
        **fields: Any,
    ) -> bool:
        """Log an event that may be frequent: at most `at_most` entries in `every_s` seconds for one event and key.

        The first entry of the next window has the number of suppressed ones (`suppressed`). `now` is monotonic. Returns
        whether it was logged.
        """
        if not self._enabled(level):
            return False
        left_out = self._sampler.admit((event, key), now=now, every_s=every_s, at_most=at_most)
        if left_out is None:
            return False
        if left_out:
            fields["suppressed"] = left_out
        self._emit(level, event, fields)
        return True

    def _emit(self, level: int, event: str, fields: dict[str, Any]) -> None:
        shown: dict[str, Clean] = {}
        for name, value in ({**self._bound, **fields} if self._bound else fields).items():
            safe_name = _NOT_IN_A_NAME.sub("_", name)[:64]
            shown[safe_name] = MASKED if value is not None and hides(safe_name) else clean_value(value)
            if level >= logging.ERROR and isinstance(value, BaseException) and value.__traceback__ is not None:
                shown[f"{safe_name}_at"] = clean_trace(value)
        entry = Entry(clean_text(event, 100), shown)
        extra: dict[str, object] = {"event": entry.event, "fields": shown}
        if self._flat:
            extra = {name: value for name, value in shown.items() if name not in _OF_LOG_RECORDS} | extra
        # stacklevel: file and line in a user's format are those of the caller.
        self._log.log(level, entry, extra=extra, stacklevel=3)


class Sampler:
    """At most n per window and key, in bounded memory. Any thread may use it.

    If `capacity` keys have open windows, new keys share one window, so that many keys are limited like one.
    """

    def __init__(self, *, capacity: int = 1024) -> None:
        self._capacity = capacity
        self._windows: dict[Hashable, list[float]] = {}  # key -> [end, admitted, suppressed]
        self._sweep_at = float("-inf")
        self._lock = threading.Lock()
        self.suppressed_total = 0

    def admit(self, key: Hashable, *, now: float, every_s: float, at_most: int) -> int | None:
        """The number suppressed since the last admitted one, or None if this one is suppressed too."""
        with self._lock:
            window = self._windows.get(key) or self._place(key, now)
            end, admitted, suppressed = window
            if now >= end:
                window[:] = now + every_s, 1, 0
                return int(suppressed)
            if admitted < at_most:
                window[1] += 1
                return 0
            window[2] += 1
            self.suppressed_total += 1
            return None

    def over(self, now: float) -> list[tuple[Hashable, int]]:
        """Keys whose window is over, with the number suppressed in it, unless that was returned before."""
        with self._lock:
            ended = [(key, window) for key, window in self._windows.items() if now >= window[0] and window[2]]
            found = [(key, int(window[2])) for key, window in ended]
            for _, window in ended:
                window[2] = 0
            return found

    def renew_lock(self) -> None:
        self._lock = threading.Lock()  # in a forked child, where the thread that held it does not exist

    def _place(self, key: Hashable, now: float) -> list[float]:
        if len(self._windows) >= self._capacity and now >= self._sweep_at:
            self._windows = {k: w for k, w in self._windows.items() if now < w[0]}
            # No window ends before the earliest end, so many new keys do not sweep each time.
            self._sweep_at = min((w[0] for w in self._windows.values()), default=now)
        if len(self._windows) >= self._capacity:
            key = Sampler
        return self._windows.setdefault(key, [float("-inf"), 0, 0])


_tracebacks = False


def shows_tracebacks() -> bool:
    """Whether lines about a failed attempt have its traceback."""
    return _tracebacks


_sampler = Sampler()
os.register_at_fork(after_in_child=_sampler.renew_lock)


def get_logger(name: str) -> Logger:
    """The logger of that name: ours, or that of a handler (`keepfast.app.…`)."""
    return Logger(logging.getLogger(name), bound={}, sampler=_sampler)


def logger_for(log: logging.Logger | logging.LoggerAdapter[Any]) -> Logger:
    """A structured logger on a logger of the user. What an adapter adds is in every entry."""
    bound: dict[str, Any] = {}
    while isinstance(log, logging.LoggerAdapter):
        bound = {**(log.extra or {}), **bound}
        log = log.logger
    return Logger(log, bound=bound, sampler=_sampler, flat=True)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ts, level, logger, event, then the fields (`_` is added to a field of these names) and
    `more`, which every line has.
    """

    def __init__(self, *, more: Mapping[str, Clean] | None = None) -> None:
        super().__init__()
        self._more = more or {}

    def format(self, record: logging.LogRecord) -> str:
        entry = _entry_of(record)
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Clean] = {
            "ts": when.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": clean_text(record.name, 200),
            "event": entry.event,
        }
        for name, value in entry.fields.items():
            line[f"{name}_" if name in _RESERVED else name] = value
        line |= self._more
        return json.dumps(line, separators=(",", ":"), ensure_ascii=False)


class ConsoleFormatter(logging.Formatter):
    """Time, level, event and fields, for people; a traceback below them. `more` are fields of every line."""

    def __init__(self, *, colour: bool = False, more: Mapping[str, Clean] | None = None) -> None:
        super().__init__()
        self._colour = colour
        self._more = more or {}

    def format(self, record: logging.LogRecord) -> str:
        entry = _entry_of(record)
        when = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = record.levelname.lower()
        shown = {**entry.fields, **self._more}
        trace = shown.pop("traceback", None)
        trace = trace if isinstance(trace, list) else []
        fields = (f"{self._paint(name, '2')}={_quoted(value)}" for name, value in shown.items())
        head = f"{when}.{int(record.msecs):03d} {self._paint(f'{level:<8}', _COLOURS.get(level, '0'))}"
        line = " ".join((head, self._paint(_title(entry.event), "1"), *fields))
        return "\n".join((line, *(f"    {one}" for one in trace)))

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour else text


FLOODS = frozenset(
    {
        *("retry_scheduled", "retry_held", "retry_succeeded", "dead_lettering", "moving_to_retry_topic"),
        *("dead_letter_publish_failed", "dead_letter_adjusted", "spool_write_failed"),
        *("retry_topic_publish_failed", "retry_topic_record_adjusted"),
        *("handler_timed_out", "abandoned_handler_ended", "handler_stuck", "stuck_handler_ended"),
        *("batch_retry_scheduled", "batch_retry_held", "batch_split"),
    }
)
"""Events that every record may cause. The last statement about a record that did not succeed is not among them: each
record that is dead-lettered, spooled, moved to a retry topic or discarded has its line.
"""
STORM_S = 10.0
STORM_FIELDS = ("consumer_group", "topic", "error_type")


class _Output(logging.StreamHandler[TextIO]):
    """The handler that `configure` adds and replaces; characters that the stream cannot encode are escaped.

    Of an event that every record may cause, it writes `max_lines` in 10 s for one group, topic and error type. The next
    line of that kind, or a line `log_lines_suppressed`, has the number that was suppressed: lines and numbers add up,
    also at the end. Other handlers get all records.
    """

    def __init__(self, stream: TextIO, *, max_lines: int | None) -> None:
        super().__init__(stream)
        self._max_lines = max_lines
        self._sampler = Sampler()
        self._report_at = float("-inf")

    def emit(self, record: logging.LogRecord) -> None:
        entry = record.msg
        if self._max_lines is not None and isinstance(entry, Entry) and entry.event in FLOODS:
            key = (entry.event, *(str(entry.fields.get(name)) for name in STORM_FIELDS))
            left_out = self._sampler.admit(key, now=time.monotonic(), every_s=STORM_S, at_most=self._max_lines)
            if left_out is None:
                return
            if left_out:
                record = logging.makeLogRecord(record.__dict__)
                record.msg = Entry(entry.event, {**entry.fields, "suppressed": left_out})
        if time.monotonic() >= self._report_at:
            self._report(time.monotonic())
        super().emit(record)

    def report_suppressed(self) -> None:
        """Write the numbers that no line has yet: the process ends."""
        with self.lock or nullcontext():
            self._report(float("inf"))

    def close(self) -> None:
        with suppress(ValueError):  # the stream is closed already
            self.report_suppressed()
        super().close()

    def _report(self, now: float) -> None:
        self._report_at = now + STORM_S
        for key, count in self._sampler.over(now):
            # Keys beyond the capacity share one window.
            fields = dict(zip(("of", *STORM_FIELDS), key, strict=True)) if isinstance(key, tuple) else {}
            entry = Entry("log_lines_suppressed", {**fields, "suppressed": count})
            warning = {"name": ROOT, "levelno": logging.WARNING, "levelname": "WARNING", "msg": entry}
            super().emit(logging.makeLogRecord(warning))

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        encoding = getattr(self.stream, "encoding", None)
        return line.encode(encoding, "backslashreplace").decode(encoding) if encoding else line


def configure(
    *,
    level: str | int = "info",
    format: LogFormat = "auto",  # noqa: A002  the name that logging itself uses
    stream: TextIO | None = None,
    max_lines: int | None = None,
    process: int | None = None,
    tracebacks: bool = False,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Write keepfast's logs to `stream` (standard error); auto is console on a terminal, otherwise JSON. `app`: write
    nothing, and leave the records to the handlers that the app has set up.

    `max_lines`: see `[log]` in the settings. `process`: the number of this child process, in every line. `tracebacks`:
    lines about a failed attempt have the traceback. For the CLI only. It changes only the logger `keepfast`; a second
    call replaces the output of the first. Raises ConfigError.
    """
    number = level if isinstance(level, int) else LEVELS.get(level.lower())
    problems = []
    if number is None:
        problems.append(f"log level must be one of {', '.join(LEVELS)}; got {level!r}")
    if format not in FORMATS:
        problems.append(f"log format must be one of {', '.join(FORMATS)}; got {format!r}")
    if problems:
        raise ConfigError(*problems)
    global _tracebacks  # noqa: PLW0603 - process-wide, as loggers are
    _tracebacks = tracebacks
    root = logging.getLogger(ROOT)
    for old in [handler for handler in root.handlers if isinstance(handler, _Output)]:
        root.removeHandler(old)
        old.close()
    root.setLevel(number or logging.INFO)
    root.propagate = format == "app"
    if format == "app":
        return
    target = stream if stream is not None else sys.stderr
    terminal = target.isatty()
    known = os.environ if environ is None else environ
    colour = terminal and not known.get("NO_COLOR") and known.get("TERM") != "dumb"
    output = _Output(target, max_lines=max_lines)
    as_json = format == "json" or (format == "auto" and not terminal)
    more: dict[str, Clean] = {} if process is None else {"process": process}
    output.setFormatter(JsonFormatter(more=more) if as_json else ConsoleFormatter(colour=colour, more=more))
    root.addHandler(output)


def show_warnings() -> None:
    """For an app that starts: where no logging is set up, Python prints warnings and errors to standard error, so that
    a dead letter is not silent.
    """
    logging.getLogger(ROOT).removeHandler(_SILENT)


def report_suppressed() -> None:
    """Write how many lines were left out, before the process ends without its usual way out. Any thread."""
    for handler in logging.getLogger(ROOT).handlers:
        if isinstance(handler, _Output):
            handler.report_suppressed()


def _entry_of(record: logging.LogRecord) -> Entry:
    """Our entry unchanged; the record of another library made safe."""
    if isinstance(record.msg, Entry):
        return record.msg
    try:
        text = record.getMessage()
    except Exception:  # noqa: BLE001  a format that does not match its arguments must not crash the app
        text = record.msg if isinstance(record.msg, str) else "<no text>"
    fields: dict[str, Clean] = {}
    if record.exc_info and record.exc_info[1] is not None:
        fields = {"exc": clean_error(record.exc_info[1]), "exc_at": clean_trace(record.exc_info[1])}
    return Entry(clean_text(text, 2000), fields)


def _title(event: str) -> str:
    """The event; quoted if it looks like fields, which only messages of other libraries can."""
    return json.dumps(event, ensure_ascii=False) if _LIKE_A_FIELD.search(event) else event


def _quoted(value: Clean) -> str:
    """An unambiguous value: unquoted if it has no blank, quote, `=`, bracket or backslash."""
    if isinstance(value, str):
        return value if _BARE_VALUE.fullmatch(value) else json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)
