"""Every exception that keepfast raises at a user, or that a user raises at keepfast.

KeepfastError
├── ConfigError            settings are wrong; all problems at once            exit 2
├── StartError             the broker, a topic or a right is missing at start  exit 3
├── LifecycleError         the app is used before its start or after its stop, or started twice
├── ConsumerFailed         a consumer of an embedded app halted or failed
├── DrainTimeout           an embedded app did not stop within shutdown_timeout_s
├── Fenced                 another member took this static member's identity   exit 6
├── PortError              a client call failed (see `Fault`)
│   ├── SourceError        consuming side
│   ├── SinkError          producing side
│   └── RegistryError      the schema registry
├── SpoolError             the spool did not take a letter, or does not give one back
├── DecodeError            the bytes of a record do not fit the annotation     dead-lettered
├── SchemaPending          the schema of a record is being fetched             waits
├── MiddlewareError        a middleware or provider did not yield exactly once  dead-lettered
├── ControlRefused         a running app did not carry out a command
├── HandlerTimeout         the handler did not end within timeout_s            dead-lettered
├── Abandoned              a handler that timed out still wanted to act
├── Crashed                the process died whenever a record was started      dead-lettered
└── Signal                 raised by a handler to choose the outcome
    ├── RetryLater         try this record again after a while
    ├── Reject             dead-letter this record now
    ├── Discard            drop this record on purpose, counted and logged
    ├── BatchError         these records of the batch failed, each with its own error
    └── Halt               stop the whole app; the record stays unfinished     exit 4
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from types import TracebackType
from typing import Any, NamedTuple


class KeepfastError(Exception):
    """The root of every error of ours; the message says what happened and what to do."""


class ConfigError(KeepfastError):
    """The configuration is wrong. `problems` lists every one, each with its remedy."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class StartError(KeepfastError):
    """Something outside that a consumer needs is missing: the broker, a topic, a right."""


class LifecycleError(KeepfastError):
    """The app is used before its start or after its stop, or it is started twice."""


class ConsumerFailed(KeepfastError):
    """A consumer of an embedded app has ended by itself, and the others were drained. Raised by `app.wait`, `app.join`
    and `app.stop`, and when the block of `with app` ends.

    `consumer` is its name. `kind`: "halted" (a handler raised Halt), "fenced" (a newer member uses its static identity)
    or "failed" (an error of the client or of keepfast, which is the cause of this one). Its unfinished records come
    again after the next start.
    """

    def __init__(self, message: str, *, consumer: str, kind: str) -> None:
        self.consumer = consumer
        self.kind = kind
        super().__init__(message)


class DrainTimeout(KeepfastError):
    """An embedded app did not stop within `shutdown_timeout_s`. What was not finished is not committed and comes again
    after the next start; a function that hangs in a thread hangs on.

    `unfinished` is how much was still being handled, dead-lettered or committed.
    """

    def __init__(self, message: str, *, unfinished: int = 0) -> None:
        self.unfinished = unfinished
        super().__init__(message)


class Fenced(KeepfastError):
    """A newer member uses the same static identity; this one must end and stay down."""


class Fault(StrEnum):
    """What kind of trouble a client reported, as far as keepfast acts on it."""

    RETRY = "retry"
    """Passing: a time-out, a broker away, a coordinator moving. Do it again later."""
    REBALANCING = "rebalancing"
    """Membership is in motion; ownership ends only by a callback. Wait for it, then do it again."""
    FENCED = "fenced"
    """Another member took over the static identity."""
    REFUSED = "refused"
    """Authentication or authorisation failed."""
    MISSING = "missing"
    """The topic or partition does not exist."""
    TOO_LARGE = "too_large"
    """The record or the metadata is larger than the broker takes."""
    OUT_OF_RANGE = "out_of_range"
    """The position lies outside the log."""
    FATAL = "fatal"
    """The client cannot continue."""


class PortError(KeepfastError):
    """A client call failed. `fault` says what to do about it, `code` is the client's own name for it."""

    def __init__(self, message: str, *, fault: Fault, code: str = "") -> None:
        self.fault = fault
        self.code = code
        super().__init__(message)


class SourceError(PortError):
    """The consuming client failed.

    `refused` is the output that made a transaction fail, and why, if it was one (`core.records.Output`, SinkError).
    """

    refused: tuple[Any, SinkError] | None = None


class SinkError(PortError):
    """The producing client failed, or a record was not acknowledged.

    `raised` is what the handler raised in the attempt that sent the record, if anything: the failed send replaces it.
    """

    raised: BaseException | None = None


class RegistryError(PortError):
    """The schema registry does not answer (`fault` RETRY), refuses the credentials (REFUSED), does not know what was
    asked for (MISSING), or refuses a schema (FATAL).
    """


class SpoolError(KeepfastError):
    """The spool did not take a letter, or cannot give it back. `full`: there is no room for it. `damaged`: what it
    holds is no letter any more, and will not become one.
    """

    def __init__(self, message: str, *, full: bool = False, damaged: bool = False) -> None:
        self.full = full
        self.damaged = damaged
        super().__init__(message)


class CodePlace(NamedTuple):
    """One frame of a traceback, without the frame and its variables."""

    module: str
    function: str
    file: str
    line: int


class DecodeError(KeepfastError):
    """The bytes of a record do not fit what the handler asked for.

    `error_class` names the class of what a library or the user's decoder raised, with its module: letters, logs and
    metrics report that type. Empty if no other error was raised.

    `detail` is the message with the texts of the user's own validators, which may quote the record: for letters only,
    shown with --reveal. `trail` is where the first of them raised, the innermost frame last. Both may be empty.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "DECODE_FAILED",
        error_class: str = "",
        detail: str = "",
        trail: tuple[CodePlace, ...] = (),
    ) -> None:
        self.code = code
        self.error_class = error_class
        self.detail = detail
        self.trail = trail
        super().__init__(message)


class SchemaPending(KeepfastError):
    """The schema of a record is not there yet. It is being fetched; the attempt does not count. `answered` says,
    without blocking, whether it makes sense to try the record again.
    """

    def __init__(self, message: str, answered: Callable[[], bool]) -> None:
        self.answered = answered
        super().__init__(message)


class MiddlewareError(KeepfastError):
    """A middleware or a provider did not yield, yielded twice, or suppressed what the handler raised."""


class HandlerTimeout(KeepfastError):
    """The handler did not end within its `timeout_s`. Final unless `retry`, and not to be taken for a TimeoutError of
    the handler's own, which is classified like any other error.
    """

    def __init__(self, timeout_s: float, *, retry: bool = False) -> None:
        self.timeout_s = timeout_s
        self.retry = retry
        super().__init__(f"the handler did not end within {timeout_s:g} s")


class ControlRefused(KeepfastError):
    """A running app did not carry out a command: unknown consumer, no such partition here, or its loop does not
    respond.
    """


class Abandoned(KeepfastError):
    """Raised in a handler whose record has timed out, when it still wants to do something in that record's name."""


class Crashed(KeepfastError):
    """Stands in a dead letter for what killed the process, which left no exception behind."""

    def __init__(self, starts: int) -> None:
        self.starts = starts
        super().__init__(f"the process died {starts} times after it had started this record, with nothing beside it")


class Signal(KeepfastError):
    """What a handler raises to decide about its record.

    In a batch handler it is about all records of the call, or about those at `index` in the list that it was given: one
    position, or several. Those leave the batch, and the others run again without them.
    """

    indices: tuple[int, ...] = ()


class RetryLater(Signal):
    """Try this record again after `after_s` seconds; counts as an attempt."""

    def __init__(self, message: str = "", *, after_s: float, index: int | Iterable[int] | None = None) -> None:
        if not 0 <= after_s < float("inf"):
            raise ValueError(f"RetryLater(after_s=…) must be 0 or more seconds, and finite; got {after_s}")
        self.after_s = after_s
        self.indices = _positions(index)
        super().__init__(message or f"retry after {after_s:g} s")


class Reject(Signal):
    """Dead-letter this record now, without retries."""

    def __init__(self, reason: str, *, code: str = "REJECTED", index: int | Iterable[int] | None = None) -> None:
        self.reason = reason
        self.code = code
        self.indices = _positions(index)
        super().__init__(reason)


class OperatorDeadLetter(Reject):
    """Stands in a dead letter for the decision of an operator to dead-letter a record that was in flight."""

    def __init__(self, by: str, last_error: str = "", *, why: str = "") -> None:
        self.by = by
        reason = f": {why}" if why else ""
        before = f"; its last error was {last_error}" if last_error else ""
        super().__init__(f"dead-lettered by {by}{reason}{before}", code="OPERATOR")


class TooManyDeliveries(Reject):
    """Stands in a dead letter for what kept a record of a queue from being finished, which is not known: a process that
    died with it, or a handler that took longer than the lock.
    """

    def __init__(self, deliveries: int) -> None:
        self.deliveries = deliveries
        super().__init__(
            f"delivered {deliveries} times and never finished: a process died with it, or its lock ran out",
            code="MAX_DELIVERIES",
        )


class Discard(Signal):
    """Drop this record on purpose: no letter; it is counted and logged."""

    def __init__(self, reason: str, *, index: int | Iterable[int] | None = None) -> None:
        self.reason = reason
        self.indices = _positions(index)
        super().__init__(reason)


class BatchError(Signal):
    """These records of the batch failed, each with its own error; the others run again without them.

    `errors` are by position in the list that the handler was given. Each record is judged by its own error, as if the
    handler had been called with it alone: retried, dead-lettered, discarded.
    """

    def __init__(self, errors: Mapping[int, BaseException]) -> None:
        self.errors = dict(errors)
        self.indices = _positions(errors)
        if not self.indices:
            raise ValueError("BatchError names no record; if none is to blame, raise the error itself")
        kinds = ", ".join(sorted({type(error).__name__ for error in self.errors.values()}))
        super().__init__(f"{len(self.errors)} of the batch failed: {kinds}")


class Halt(Signal):
    """Stop the app; this record stays unfinished and comes again after the restart."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


_MRO: Any = type.__dict__["__mro__"].__get__  # bypasses metaclasses
_NAME: Any = type.__dict__["__qualname__"].__get__
_BUILT_IN = frozenset(id(kind) for kind in vars(builtins).values() if isinstance(kind, type)) - {
    id(BaseExceptionGroup),
    id(ExceptionGroup),
}


def readable(error: BaseException) -> BaseException:
    """Return the error, or one of the same name and built-in base in its place if it cannot be read: an exception whose
    `__class__` raises would make every `isinstance` raise. Never raises.
    """
    cls = type(error)
    try:
        _ = (error.__cause__, error.__context__, error.__traceback__, cls.__module__, cls.__name__, cls.__qualname__)
        if issubclass(error.__class__, BaseException):
            return error
    except BaseException:  # noqa: BLE001, S110 - whatever a foreign property raises
        pass
    base: type[BaseException] = next(kind for kind in _MRO(cls) if id(kind) in _BUILT_IN)
    name = str.__str__(_NAME(cls))
    stand_in: type[BaseException] = type(name.rpartition(".")[2], (base,), {"__module__": "unreadable"})
    made: BaseException = base.__new__(stand_in, _UNREADABLE)
    made.__traceback__ = BaseException.__dict__["__traceback__"].__get__(error)
    return made


_UNREADABLE = "the attributes of this exception cannot be read"


def error_class(error: BaseException) -> str:
    """The class that is reported for an error, as in a traceback: with its module, except for built-ins. Of a
    DecodeError that of what was raised, where that is known.
    """
    if isinstance(error, DecodeError) and error.error_class:
        return error.error_class
    kind = type(error)
    module = str(kind.__module__)
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def error_type(error: BaseException) -> str:
    """The same without its module: the `error_type` of letters, logs and metrics."""
    if isinstance(error, DecodeError) and error.error_class:
        return error.error_class.rpartition(".")[2]
    return type(error).__name__


def code_places(trace: TracebackType | None) -> Iterator[CodePlace]:
    """The frames of a traceback, the innermost last."""
    while trace is not None:
        code, module = trace.tb_frame.f_code, str(trace.tb_frame.f_globals.get("__name__", ""))
        yield CodePlace(module, code.co_qualname, code.co_filename, trace.tb_lineno)
        trace = trace.tb_next


def _positions(index: int | Iterable[int] | None) -> tuple[int, ...]:
    if index is None:
        return ()
    found = (index,) if isinstance(index, int) else tuple(index)
    if not all(type(position) is int and position >= 0 for position in found):
        raise ValueError(f"index must be positions in the list of records, counted from 0; got {index!r}")
    return tuple(sorted(set(found)))


def named_in(error: BaseException, count: int) -> dict[int, BaseException]:
    """Which of the `count` records that were handed over the error is about, and what each is to be judged by.

    Empty: about all of them. Positions that do not exist mean that it is not known.
    """
    if not isinstance(error, Signal) or not error.indices or error.indices[-1] >= count:
        return {}
    errors = error.errors if isinstance(error, BatchError) else {}
    return {index: errors.get(index, error) for index in error.indices}
