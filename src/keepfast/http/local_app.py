"""The app of this process and its server, which answers from before the brokers are reached until the process ends.

Any thread may call the methods of `LocalApp`; only those that say so wait for a loop.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar

import msgspec

from keepfast.core.errors import ConfigError, ControlRefused
from keepfast.core.records import TopicPartition
from keepfast.deadletters.spool.service import SpoolService
from keepfast.engine.control import OPERATOR, QUEUE_REFUSES, Answer, ControlOrder, Verb
from keepfast.engine.hooks import EventHooks
from keepfast.engine.lifecycle import Lifecycle, LoopThread
from keepfast.engine.metrics import consumer_families, hook_families, spool_families
from keepfast.engine.seeks import ASK_S, COMMIT_S, SeekTarget
from keepfast.http.health import HealthFacts, health_of
from keepfast.http.pages import API, Pages, ServedApp
from keepfast.http.server import (
    HttpRequest,
    Response,
    Server,
    as_json,
    problem,
    server_required,
    start_metrics_server,
    start_server,
)
from keepfast.inbox.service import InboxService
from keepfast.settings import Settings
from keepfast.telemetry import catalogue, logs
from keepfast.telemetry.clean import clean_text
from keepfast.telemetry.metrics import Collision, MetricFamily, Sample, namesakes
from keepfast.telemetry.otel import MetricsExport, exporter_from
from keepfast.telemetry.prometheus import REGISTERED, all_process_families
from keepfast.telemetry.state import (
    AppState,
    CommandDone,
    ConsumerCounts,
    ConsumerDetail,
    ConsumerState,
    ControlDone,
    HealthReport,
    PartitionState,
    Phase,
    Positions,
    Problem,
    SeekResult,
    SpoolState,
    TimelineEvents,
)
from keepfast.telemetry.timeline import Timeline

if TYPE_CHECKING:
    from prometheus_client.core import Metric

log = logs.get_logger("keepfast.http")

MAX_NAME, MAX_WHY = 100, 1_000
SUPERVISED = "x-keepfast-supervised"
"""A header of the supervisor's, which has the audit written once for all processes that carry out an order."""
REPLY_TIMEOUT_S = 3.0
"""A loop usually replies within a tenth of a second."""

B = TypeVar("B")
D = TypeVar("D", bound=CommandDone | SeekResult)


class LoopTimeout(ControlRefused):
    """The loop did not reply in time: it is stuck, or the process was suspended."""

    def __init__(self) -> None:
        super().__init__("The consumer's loop does not reply: it is stuck. See /health/live.")


class PartitionElsewhere(ControlRefused):
    """Another process of the group may have the partition."""


class UnknownConsumer(ControlRefused):
    """No consumer of this process has the name."""


class AppParts(Protocol):
    """What exists once an app is assembled."""

    @property
    def threads(self) -> Sequence[LoopThread]: ...
    @property
    def lifecycle(self) -> Lifecycle: ...
    @property
    def spool(self) -> SpoolService | None: ...
    def owner_of(self, group: str, place: TopicPartition) -> str:
        """Which member of the group has the partition, in words. Waits for the brokers, a few seconds at most."""
        ...

    @property
    def hooks(self) -> EventHooks | None: ...
    @property
    def missed_deadlines(self) -> int: ...
    @property
    def timeline(self) -> Timeline: ...


class ControlRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who orders something and why, for the audit; `by` also stands in events and letters."""

    by: str = OPERATOR
    why: str = ""
    via: Literal["command", "page", "api"] = "command"


class PauseTarget(ControlRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What to pause or resume; without a topic, the whole consumer."""

    topic: str | None = None
    partition: int | None = None


class DeadLetterTarget(ControlRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The record in flight to dead-letter. `unless_running`: only if it waits, or if its handler is stuck."""

    topic: str
    partition: int
    offset: int
    unless_running: bool = False


class SeekRequest(ControlRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where to move a partition: an offset, `"beginning"`, `"end"` or a time with its zone (ISO 8601). `plan`: only say
    what it would do.
    """

    topic: str
    partition: int
    to: int | str
    plan: bool = False

    def target(self) -> SeekTarget:
        """Raises msgspec.ValidationError."""
        match self.to:
            case int() | "beginning" | "end" as to:
                return to
            case text:
                return _time(text)


class ReleaseTarget(ControlRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The hold to release."""

    hold: str


class LogLevel(ControlRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    level: str


class LocalApp(ServedApp):
    """The app of this process. It has no parts until `attach`; `waits_for` says why not."""

    def __init__(
        self,
        app: str,
        *,
        version: str = "",
        shutdown_timeout_s: float = 0.0,
        parts: AppParts | None = None,
        waits_for: str = "It waits for its brokers and checks its topics.",
    ) -> None:
        self.app = app
        self.version = version
        self._shutdown_timeout_s = shutdown_timeout_s
        self._parts = parts
        self._waits_for = waits_for
        self._started_at = time.monotonic()
        self._inboxes: InboxService | None = None
        self._more: Callable[[], list[MetricFamily]] = list
        self._audit: Callable[[ControlDone], None] | None = None

    def attach(
        self,
        parts: AppParts,
        inboxes: InboxService | None = None,
        more: Callable[[], list[MetricFamily]] = list,
        audit: Callable[[ControlDone], None] | None = None,
    ) -> None:
        """The app is assembled: from now on its consumers are shown, its outbox, and `more` metrics. `audit` gets
        each order that was carried out; it must not block.
        """
        self._parts, self._inboxes, self._more, self._audit = parts, inboxes, more, audit
        for name, dotted in namesakes(self.families()).items():
            log.warning(
                "metric_names_collide",
                name=name,
                metrics=dotted,
                consequence="their series differ in the label topic only",
                what_to_do="set another domain or entity for one of the consumers",
            )

    # -- state, health, metrics

    def families(self) -> list[MetricFamily]:
        """All metrics of this app."""
        now = time.monotonic()
        found = [
            MetricFamily.of(catalogue.INFO, [Sample((self.app, self.version, keepfast_version()), 1)]),
            MetricFamily.of(catalogue.SHUTDOWN_TIMEOUT, [Sample((), self._shutdown_timeout_s)]),
            MetricFamily.of(catalogue.SHUTDOWN, [Sample((), self._draining_s(now))]),
        ]
        for thread in self._threads:
            found += consumer_families(thread, now, app=self.app)
        if self._spool is not None:
            found += spool_families(self._spool.status)
        if self._inboxes is not None:
            found += self._inboxes.families()
        missed = self._parts.missed_deadlines if self._parts is not None else 0
        found.append(MetricFamily.of(catalogue.SHUTDOWN_TIMEOUTS, [Sample((), missed)]))
        if self._parts is not None and self._parts.hooks is not None:
            found += hook_families(self._parts.hooks.counts)
        return found + self._more()

    def collect(self) -> list[Metric]:
        """All metrics of this process except those of other apps. Raises Collision if a metric of the user has the
        name of one of ours.
        """
        return REGISTERED.collect_for(self)

    def health(self) -> HealthReport:
        return health_of(
            HealthFacts(
                app=self.app,
                uptime_s=time.monotonic() - self._started_at,
                consumers=self._states(),
                starting="" if self._parts else self._waits_for,
                draining=self._draining_since is not None,
                spool=self._spool_state(),
                outbox=self._inboxes.outbox if self._inboxes is not None else None,
            )
        )

    def state(self) -> AppState:
        phase: Phase = "running" if self._parts else "starting"
        return AppState(
            app=self.app,
            version=self.version,
            keepfast=keepfast_version(),
            pid=os.getpid(),
            uptime_s=time.monotonic() - self._started_at,
            phase="draining" if self._draining_since is not None else phase,
            consumers=self._states(),
            spool=self._spool_state(),
            outbox=self._inboxes.outbox if self._inboxes is not None else None,
            counts={thread.loop.plan.name: counts_of(thread) for thread in self._threads},
        )

    @property
    def _threads(self) -> Sequence[LoopThread]:
        return self._parts.threads if self._parts else ()

    @property
    def _spool(self) -> SpoolService | None:
        return self._parts.spool if self._parts else None

    @property
    def _draining_since(self) -> float | None:
        return self._parts.lifecycle.draining_since if self._parts else None

    def _draining_s(self, now: float) -> float:
        since = self._draining_since
        return 0.0 if since is None else now - since

    def _states(self) -> dict[str, ConsumerState]:
        now = time.monotonic()
        return {thread.loop.plan.name: _with_age(thread, now) for thread in self._threads}

    def _spool_state(self) -> SpoolState | None:
        if self._spool is None:
            return None
        status = self._spool.status
        return SpoolState(
            letters=status.fill.letters,
            bytes=status.fill.held_bytes,
            stuck=len(status.stuck),
            sent_on=status.sent_on,
            refusing=status.refusing,
            waits=status.waits,
        )

    # -- commands: each waits for the loop's reply, and raises ControlRefused

    def pause(
        self, consumer: str, topic: str | None = None, partition: int | None = None, *, by: str = OPERATOR
    ) -> CommandDone:
        """Start no more records of a consumer, or of some of its partitions."""
        what = _words("pause", consumer, topic, partition)
        return self._by_code(
            what, lambda: _done(self._order(consumer, "pause", topic=topic, partition=partition, by=by))
        )

    def resume(
        self, consumer: str, topic: str | None = None, partition: int | None = None, *, by: str = OPERATOR
    ) -> CommandDone:
        """End a pause."""
        what = _words("resume", consumer, topic, partition)
        order = lambda: _done(self._order(consumer, "resume", topic=topic, partition=partition, by=by))  # noqa: E731
        return self._by_code(what, order)

    def seek_by_code(self, consumer: str, topic: str, partition: int, to: SeekTarget) -> SeekResult:
        """Move a partition as `seek` does, for `app.seek`: with an entry in the audit."""
        what = _words("seek", consumer, topic, partition, to)
        return self._by_code(what, lambda: self.seek(consumer, topic, partition, to))

    def _by_code(self, what: str, carry_out: Callable[[], D]) -> D:
        """Carry out an order of the user's code, and audit it."""
        note = partial(ControlDone, what=what, by=self.app, via="code")
        try:
            done = carry_out()
        except LoopTimeout as error:
            self._note(note(result=f"not known: {error}"))
            raise
        self._note(note(result=_result(done)))
        return done

    def seek(self, consumer: str, topic: str, partition: int, to: SeekTarget, *, plan: bool = False) -> SeekResult:
        """Move a partition; returns when the new position is committed. `plan`: only say what it would do."""
        if isinstance(to, datetime) and to.tzinfo is None:
            raise ControlRefused(
                "The time to seek to has no time zone: use datetime.now(UTC), or a time with an offset."
            )
        thread = self._thread(consumer)
        patience_s = 2 * ASK_S + (0 if plan else thread.loop.plan.revoke_timeout_s + COMMIT_S)
        verb: Verb = "plan_seek" if plan else "seek"
        answer = _order(thread, verb, REPLY_TIMEOUT_S + patience_s, topic=topic, partition=partition, to=to)
        if isinstance(answer, Problem) and answer.elsewhere:
            owner = self._owner(thread, TopicPartition(topic, partition))
            raise PartitionElsewhere(f"{answer.error} {owner}")
        if not isinstance(answer, SeekResult):
            raise _refusal(answer)
        return answer

    def positions(self, consumer: str) -> tuple[PartitionState, ...]:
        """The partitions that this process has, as they are now."""
        state = _detail(self._thread(consumer)).state
        if state.queue is not None:
            raise ControlRefused(QUEUE_REFUSES)
        return state.partitions

    def _order(self, consumer: str, verb: Verb, **more: Any) -> Answer:
        return _order(self._thread(consumer), verb, **more)

    def _thread(self, name: str) -> LoopThread:
        thread = next((one for one in self._threads if one.loop.plan.name == name), None)
        if thread is None:
            known = ", ".join(one.loop.plan.name for one in self._threads) or "none yet"
            raise UnknownConsumer(f"There is no consumer {name!r} here; there is {known}.")
        if thread.over.is_set():
            raise ControlRefused(f"The consumer {name!r} has ended.")
        return thread

    def _owner(self, thread: LoopThread, place: TopicPartition) -> str:
        return self._parts.owner_of(thread.loop.plan.group, place) if self._parts else ""

    # -- the control API

    def api(self, request: HttpRequest) -> Response:
        """May wait for a loop, for at most REPLY_TIMEOUT_S; for a seek, until that has ended."""
        try:
            return self._route(request)
        except LoopTimeout as error:
            return problem(HTTPStatus.GATEWAY_TIMEOUT, str(error))
        except UnknownConsumer as error:
            return problem(HTTPStatus.NOT_FOUND, str(error))
        except PartitionElsewhere as error:
            return as_json(Problem(error=str(error), elsewhere=True), HTTPStatus.CONFLICT)
        except ControlRefused as error:
            return problem(HTTPStatus.CONFLICT, str(error))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return problem(HTTPStatus.BAD_REQUEST, f"The body is invalid: {error}.")

    def _route(self, request: HttpRequest) -> Response:
        path = request.path.removeprefix(API).strip("/").split("/")
        found = self._read(path) if request.method in ("GET", "HEAD") else self._command(path, request)
        if found is not None:
            return as_json(found)
        if path[0] == "consumers" and len(path) == len(["consumers", "name"]):
            return problem(HTTPStatus.METHOD_NOT_ALLOWED, "Use GET.")
        return problem(HTTPStatus.NOT_FOUND, f"There is no {request.method} {request.path}.")

    def _read(self, path: list[str]) -> msgspec.Struct | None:
        match path:
            case ["state"]:
                return self.state()
            case ["health"]:
                return self.health()
            case ["events"]:
                return TimelineEvents(events=self._parts.timeline.entries() if self._parts else ())
            case ["consumers", name]:
                return _detail(self._thread(name))
            case ["consumers", name, "position"]:
                return Positions.of(self.positions(name))
            case _:
                return None

    def _command(self, path: list[str], request: HttpRequest) -> msgspec.Struct | None:
        if path == ["audit"] and not request.peer:  # from the supervisor, about an order to several processes
            self._note(_body(request, ControlDone))
            return CommandDone(text="Noted.", changed=0)
        order = order_of(path, request)
        if order is None:
            return None
        supervised = not request.peer and SUPERVISED in request.headers
        try:
            done = self._carry_out(path, order.body)
        except LoopTimeout as error:
            if not supervised:
                self._note(order.done(f"not known: {error}"))
            raise
        if not supervised:
            self._note(order.done(_result(done)))
        return done

    def _carry_out(self, path: list[str], body: ControlRequest) -> CommandDone | SeekResult:
        consumer, by = path[1] if len(path) > 1 else "", _name(body.by)
        match body:
            case LogLevel():
                return _set_level(body.level)
            case PauseTarget():
                verb: Verb = "pause" if path[-1] == "pause" else "resume"
                return _done(self._order(consumer, verb, topic=body.topic, partition=body.partition, by=by))
            case DeadLetterTarget():
                why = clean_text(body.why, MAX_WHY)
                return _done(
                    self._order(
                        consumer,
                        "dead_letter",
                        topic=body.topic,
                        partition=body.partition,
                        offset=body.offset,
                        unless_running=body.unless_running,
                        by=by,
                        why=why,
                    )
                )
            case ReleaseTarget():
                return _done(self._order(consumer, "release", hold=body.hold))
            case SeekRequest():
                return self.seek(consumer, body.topic, body.partition, body.target(), plan=body.plan)
            case other:
                raise TypeError(f"there is no order {other!r}")

    def _note(self, done: ControlDone | None) -> None:
        """Log an order that was carried out, and write it to the audit. None: it changes nothing."""
        if done is None:
            return
        log.info("control_order", what=done.what, by=done.by, why=done.why, via=done.via, result=done.result)
        if self._audit is not None:
            self._audit(done)


def _detail(thread: LoopThread) -> ConsumerDetail:
    """Waits for the loop. Raises LoopTimeout."""
    answer = _order(thread, "show")
    if not isinstance(answer, tuple):
        raise TypeError(f"a loop replied {answer!r}")
    state, lanes, left_out = answer
    return ConsumerDetail(state=state, counts=counts_of(thread), lanes=lanes, left_out=left_out)


def _order(thread: LoopThread, verb: Verb, timeout_s: float = REPLY_TIMEOUT_S, **more: Any) -> Answer:
    """Send an order to the loop and wait for its reply. Raises LoopTimeout."""
    answers: SimpleQueue[Answer] = SimpleQueue()
    thread.mailbox.post(ControlOrder(verb=verb, answer=answers.put, **more))
    try:
        return answers.get(timeout=timeout_s)
    except Empty:
        raise LoopTimeout from None


def _done(answer: Answer) -> CommandDone:
    """Raises ControlRefused."""
    if not isinstance(answer, CommandDone):
        raise _refusal(answer)
    return answer


def _refusal(answer: Answer) -> Exception:
    return ControlRefused(answer.error) if isinstance(answer, Problem) else TypeError(f"a loop replied {answer!r}")


@dataclass(frozen=True, slots=True)
class ControlCommand:
    """A command of the control API. `what`: in the words of `keepfast ctl`; empty if it changes nothing."""

    what: str
    body: ControlRequest

    def done(self, result: str) -> ControlDone | None:
        """For the audit; None if it changes nothing."""
        if not self.what:
            return None
        why = clean_text(self.body.why, MAX_WHY)
        return ControlDone(what=self.what, by=_name(self.body.by), why=why, via=self.body.via, result=result)


def order_of(path: Sequence[str], request: HttpRequest) -> ControlCommand | None:
    """The command in a request; None if it is none. Raises msgspec.MsgspecError."""
    match path:
        case ["log-level"]:
            level = _body(request, LogLevel)
            return ControlCommand(_words("log-level", level.level), level)
        case ["consumers", name, "pause" | "resume" as verb]:
            target = _body(request, PauseTarget)
            return ControlCommand(_words(verb, name, target.topic, target.partition), target)
        case ["consumers", name, "dead-letter"]:
            record = _body(request, DeadLetterTarget)
            return ControlCommand(_words("dead-letter", name, record.topic, record.partition, record.offset), record)
        case ["consumers", name, "release"]:
            released = _body(request, ReleaseTarget)
            return ControlCommand(_words("release", name, released.hold), released)
        case ["consumers", name, "seek"]:
            wanted = _body(request, SeekRequest)
            words = _words("seek", name, wanted.topic, wanted.partition, wanted.to)
            return ControlCommand("" if wanted.plan else words, wanted)
        case _:
            return None


def order_done(path: Sequence[str], request: HttpRequest, answer: Response) -> ControlDone | None:
    """What is audited about an order that several processes have answered with `answer`; None if nothing changed. An
    order without a reply in time (504) may have been carried out.
    """
    if answer.status not in (HTTPStatus.OK, HTTPStatus.GATEWAY_TIMEOUT):
        return None
    try:
        order = order_of(path, request)
        if answer.status == HTTPStatus.GATEWAY_TIMEOUT:
            refused = msgspec.json.decode(answer.body, type=Problem)
            return None if order is None else order.done(f"not known: {refused.error}")
        shape: type[SeekResult | CommandDone] = SeekResult if path[-1] == "seek" else CommandDone
        result = _result(msgspec.json.decode(answer.body, type=shape))
    except msgspec.MsgspecError:
        return None
    return None if order is None else order.done(result)


def _words(*words: object) -> str:
    return clean_text(" ".join(str(one) for one in words if one is not None), 500)


def _result(done: CommandDone | SeekResult) -> str:
    if isinstance(done, CommandDone):
        return done.text
    return f"Moved from {done.position} to {done.to}{'' if done.committed else ', not committed yet'}."


def _body(request: HttpRequest, shape: type[B]) -> B:
    return msgspec.json.decode(request.body or b"{}", type=shape)


def _name(by: str) -> str:
    """Who ordered something, for events and letters."""
    return clean_text(by)[:MAX_NAME] or OPERATOR


def _time(text: str) -> datetime:
    """Raises msgspec.ValidationError."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        known = "an offset, beginning, end or a time such as 2026-01-31T12:00:00Z"
        raise msgspec.ValidationError(f"`to` is {text!r}; use {known}") from None


def _set_level(level: str) -> CommandDone:
    """Raises msgspec.ValidationError."""
    name = level.lower()
    if name not in logs.LEVELS:
        raise msgspec.ValidationError(f"there is no level {level!r}; there is {', '.join(logs.LEVELS)}")
    logging.getLogger(logs.ROOT).setLevel(logs.LEVELS[name])
    log.warning("log_level_set", to=name, by="hand")
    return CommandDone(text=f"The log level is {name} until the process ends.", changed=1)


def _with_age(thread: LoopThread, now: float) -> ConsumerState:
    """The last recorded state with its age."""
    status = thread.loop.status
    return msgspec.structs.replace(
        thread.state, age_s=max(0.0, now - status.looked_at), turn_age_s=max(0.0, now - status.turned_at)
    )


def counts_of(thread: LoopThread) -> ConsumerCounts:
    loop = thread.loop
    total = loop.counts.total()
    return ConsumerCounts(
        received=sum(loop.intake.received.copy().values()),
        processed=loop.processed,
        errors=total.errors,
        retries=total.retries,
        dead_lettered=total.dead_lettered,
        moved=total.moved,
        discarded=total.discarded,
        filtered=loop.counts.filtered,
        skipped=loop.counts.skipped,
        commits=loop.committer.commits,
        commit_failures=loop.committer.failed,
        handling_s=sum(tally.total_s for own in list(thread.tallies) for tally in list(own.values())),
    )


def keepfast_version() -> str:
    try:
        return version("keepfast")
    except PackageNotFoundError:
        return ""


class AppServer:
    """Serves a `LocalApp`, registers its metrics, and exports them if `metrics.otel` is set. Use it as a context
    manager around the assembly and the run of an app. `health.enabled` switches the server off.
    `beside_own_health`: a server of the user's has that port, and ours listens on `metrics.port`.

    Entering raises ConfigError if the port is taken and the server is required (`health.required`), or if the user has
    registered a metric with one of our names.
    """

    def __init__(self, settings: Settings, *, beside_own_health: bool = False) -> None:
        self._settings = settings
        self._beside_own_health = beside_own_health
        self._server: Server | None = None
        self._open = ExitStack()
        self.app = LocalApp(
            settings.app.name, version=settings.app.version, shutdown_timeout_s=settings.shutdown.timeout_s
        )
        token = settings.control.token
        self.pages = Pages(self.app, token=token.reveal() if token else None)

    @property
    def url(self) -> str:
        """Empty if nothing is served."""
        return self._server.url if self._server else ""

    def __enter__(self) -> Self:
        with ExitStack() as opened, _collision_as_config_error():
            REGISTERED.add(self.app)
            opened.callback(REGISTERED.remove, self.app)
            if self._settings.metrics.otel:
                export = self._export()
                export.start()
                opened.callback(export.stop)
            self._server = self._served()
            if self._server is not None:
                opened.callback(self._server.stop)
            self._open = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def attach(
        self,
        parts: AppParts,
        inboxes: InboxService | None = None,
        more: Callable[[], list[MetricFamily]] = list,
        audit: Callable[[ControlDone], None] | None = None,
    ) -> None:
        """The app is assembled. Raises ConfigError if two metrics would have one name."""
        with _collision_as_config_error():
            self.app.attach(parts, inboxes, more, audit)
            REGISTERED.renew()

    def _served(self) -> Server | None:
        if self._beside_own_health:
            return start_metrics_server(self.pages, self._settings)
        return start_server(self.pages, self._settings.health, required=server_required(self._settings))

    def _export(self) -> MetricsExport:
        return MetricsExport(
            lambda: [*self.app.families(), *all_process_families()],
            app=self.app.app,
            version=self.app.version,
            interval_s=self._settings.metrics.interval_s,
            exporter=exporter_from(dict(os.environ)),
        )


@contextmanager
def _collision_as_config_error() -> Iterator[None]:
    try:
        yield
    except Collision as error:
        raise ConfigError(f"Metrics: {error}.") from error
