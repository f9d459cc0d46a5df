"""What the desk knows about letters, as records of its topic.

Each key has one kind of writer, and the last record of a key is all that compaction keeps:

    mark/<case>           page and command line: discarded, permanently failed, archived, or restored
    sent/<case>/<run>     the replay run, in the transaction of the record itself
    outcome/<case>/<run>  the runtime (`core.replays`)
    run/<run>             the replay run: its selection, policy and status
    plan/<run>/<n>        the replay run: the frozen selection, in chunks
    order/<run>           page and command line: pause, resume or cancel

No fact has a payload. What is read is untrusted input: a record that is no fact is None, and nothing here raises.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeVar, get_args

from keepfast.core.records import Outgoing, Record
from keepfast.core.replays import MAX_N, OUTCOME, OutcomeKind
from keepfast.core.retry_topics import MAX_LONG, MAX_PARTITION, digits, text, utf8, whole
from keepfast.deadletters.inline import from_json

MarkKind = Literal["discarded", "permanently-failed", "archived", "restored"]
OrderKind = Literal["pause", "resume", "cancel"]
RunStatus = Literal["running", "paused", "done", "cancelled", "stopped"]
"""`stopped`: it ended itself, `why` says the reason; it can be resumed."""

MAX_KEY: Final = 4_000
MAX_TEXT: Final = 2_000
CHUNK_BYTES: Final = 500_000
"""Of one chunk of a plan; a record may have 1 MB."""

T = TypeVar("T", bound=str)
_MARKS: Final[tuple[MarkKind, ...]] = get_args(MarkKind)
_ORDERS: Final[tuple[OrderKind, ...]] = get_args(OrderKind)
_STATUSES: Final[tuple[RunStatus, ...]] = get_args(RunStatus)
_OUTCOMES: Final[tuple[OutcomeKind, ...]] = get_args(OutcomeKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a person decided about a case. `restored` takes the decision back; a `note` may stand with any of them."""

    case: str
    kind: MarkKind
    by: str
    at_ms: int
    why: str = ""
    note: str = ""
    url: str = ""
    """Where the archive is."""

    @property
    def key(self) -> str:
        return f"mark/{self.case}"

    def fields(self) -> dict[str, Any]:
        return _filled(mark=self.kind, by=self.by, at=self.at_ms, why=self.why, note=self.note, url=self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A record of this case was sent by this run, as its n-th replay, to this place."""

    case: str
    run: str
    n: int
    at_ms: int
    topic: str
    partition: int | None = None
    offset: int | None = None

    @property
    def key(self) -> str:
        return f"sent/{self.case}/{self.run}"

    def fields(self) -> dict[str, Any]:
        place = {"partition": self.partition, "offset": self.offset} if self.partition is not None else {}
        return {"n": self.n, "at": self.at_ms, "topic": self.topic, **place}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The group that the case belongs to has processed or discarded the record that this run sent."""

    case: str
    run: str
    kind: OutcomeKind
    at_ms: int
    code: str = ""

    @property
    def key(self) -> str:
        return f"{OUTCOME}/{self.case}/{self.run}"

    def fields(self) -> dict[str, Any]:
        return _filled(outcome=self.kind, at=self.at_ms, code=self.code)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFact:
    """A replay run: what it was asked to do, and how far it has got."""

    run: str
    topic: str
    """The dead-letter topic."""
    by: str
    at_ms: int
    status: RunStatus
    updated_ms: int
    total: int
    chunks: int
    sent: int = 0
    skipped: int = 0
    """Left out while it ran: marked, resolved or sent by another run meanwhile, or not there any more."""
    why: str = ""
    selection: str = ""
    """The command-line words that select the same letters."""
    policy: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"run/{self.run}"

    def fields(self) -> dict[str, Any]:
        return _filled(
            topic=self.topic,
            by=self.by,
            at=self.at_ms,
            status=self.status,
            updated=self.updated_ms,
            total=self.total,
            chunks=self.chunks,
            sent=self.sent,
            skipped=self.skipped,
            why=self.why,
            selection=self.selection,
            policy=self.policy,
        )

    def now(self, status: RunStatus, at_ms: int, *, why: str = "", **counts: int) -> RunFact:
        return replace(self, status=status, updated_ms=at_ms, why=why, **counts)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class PlanItem:
    """One record to send: the place of its letter in the dead-letter topic, and the cases that it is sent for, each
    with the number of this replay.
    """

    partition: int
    offset: int
    cases: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class PlanChunk:
    """A part of the frozen selection of a run."""

    run: str
    number: int
    items: tuple[PlanItem, ...]

    @property
    def key(self) -> str:
        return f"plan/{self.run}/{self.number}"

    def fields(self) -> dict[str, Any]:
        return {"items": [[one.partition, one.offset, [list(case) for case in one.cases]] for one in self.items]}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrder:
    """A person asks a run to pause, to resume or to cancel."""

    run: str
    kind: OrderKind
    by: str
    at_ms: int

    @property
    def key(self) -> str:
        return f"order/{self.run}"

    def fields(self) -> dict[str, Any]:
        return {"order": self.kind, "by": self.by, "at": self.at_ms}


@dataclass(frozen=True, slots=True)
class Gone:
    """A tombstone: there is no fact of this key any more."""

    key: str


Fact = Mark | Sent | Outcome | RunFact | PlanChunk | RunOrder


def fact_record(topic: str, fact: Fact) -> Outgoing:
    value = json.dumps(fact.fields(), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return Outgoing(topic, value, key=fact.key.encode("utf-8", "replace"), partition=0)


def tombstone_record(topic: str, key: str) -> Outgoing:
    return Outgoing(topic, None, key=key.encode("utf-8", "replace"), partition=0)


def fact_of(record: Record) -> Fact | Gone | None:
    """The fact in a record of the desk's topic; None if it is none."""
    if record.key is None or len(record.key) > MAX_KEY:
        return None
    key = utf8(record.key, MAX_KEY)
    if record.value is None:
        return Gone(key)
    fields = from_json(record.value)
    kind, _, rest = key.partition("/")
    if fields is None or not rest:
        return None
    match kind:
        case "mark":
            return _mark(rest, fields)
        case "run":
            return _run(rest, fields)
        case "order":
            return _order(rest, fields)
        case "sent" | "outcome" | "plan":
            first, _, last = rest.rpartition("/")
            return _of_run(kind, first, last, fields) if first and last else None
        case _:
            return None


def chunks_of(run: str, items: Iterable[PlanItem]) -> Iterator[PlanChunk]:
    """The selection in chunks that fit into a record."""
    held: list[PlanItem] = []
    size = number = 0
    for item in items:
        size += 40 + sum(len(case) * 2 + 12 for case, _ in item.cases)
        if held and size > CHUNK_BYTES:
            yield PlanChunk(run, number, tuple(held))
            held, number, size = [], number + 1, 0
        held.append(item)
    if held:
        yield PlanChunk(run, number, tuple(held))


def _of_run(kind: str, first: str, last: str, fields: dict[str, Any]) -> Fact | None:
    match kind:
        case "sent":
            return _sent(first, last, fields)
        case "outcome":
            return _outcome(first, last, fields)
        case _:
            return _plan(first, last, fields)


def _mark(case: str, fields: dict[str, Any]) -> Mark | None:
    kind: MarkKind | None = one_of(_MARKS, fields.get("mark"))
    at_ms = whole(fields.get("at"))
    if kind is None or at_ms is None:
        return None
    texts = {name: text(fields.get(name), MAX_TEXT) for name in ("by", "why", "note", "url")}
    return Mark(case=case, kind=kind, at_ms=at_ms, **texts)


def _sent(case: str, run: str, fields: dict[str, Any]) -> Sent | None:
    n, at_ms = whole(fields.get("n"), MAX_N), whole(fields.get("at"))
    if not n or at_ms is None:
        return None
    return Sent(
        case=case,
        run=run,
        n=n,
        at_ms=at_ms,
        topic=text(fields.get("topic"), 300),
        partition=whole(fields.get("partition"), MAX_PARTITION),
        offset=whole(fields.get("offset")),
    )


def _outcome(case: str, run: str, fields: dict[str, Any]) -> Outcome | None:
    kind: OutcomeKind | None = one_of(_OUTCOMES, fields.get("outcome"))
    at_ms = whole(fields.get("at"))
    if kind is None or at_ms is None:
        return None
    return Outcome(case=case, run=run, kind=kind, at_ms=at_ms, code=text(fields.get("code"), 300))


def _run(run: str, fields: dict[str, Any]) -> RunFact | None:
    status: RunStatus | None = one_of(_STATUSES, fields.get("status"))
    policy = fields.get("policy")
    numbers = {name: whole(fields.get(name, 0)) for name in ("at", "updated", "total", "chunks", "sent", "skipped")}
    if status is None or None in numbers.values():
        return None
    known = {name: number or 0 for name, number in numbers.items()}
    return RunFact(
        run=run,
        topic=text(fields.get("topic"), 300),
        by=text(fields.get("by"), MAX_TEXT),
        at_ms=known["at"],
        status=status,
        updated_ms=known["updated"],
        total=known["total"],
        chunks=known["chunks"],
        sent=known["sent"],
        skipped=known["skipped"],
        why=text(fields.get("why"), MAX_TEXT),
        selection=text(fields.get("selection"), MAX_TEXT),
        policy=policy if isinstance(policy, dict) else {},
    )


def _plan(run: str, number: str, fields: dict[str, Any]) -> PlanChunk | None:
    at, listed = digits(number.encode(), MAX_LONG), fields.get("items")
    items = [_item(one) for one in listed] if isinstance(listed, list) else [None]
    if at is None or None in items:
        return None
    return PlanChunk(run, at, tuple(one for one in items if one is not None))


def _item(given: object) -> PlanItem | None:
    match given:
        case [int(partition), int(offset), list(cases)]:
            pairs = tuple((one[0], one[1]) for one in cases if _is_numbered(one))
            return PlanItem(partition, offset, pairs) if pairs and len(pairs) == len(cases) else None
        case _:
            return None


def _is_numbered(one: object) -> bool:
    return isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) and bool(whole(one[1], MAX_N))


def _order(run: str, fields: dict[str, Any]) -> RunOrder | None:
    kind: OrderKind | None = one_of(_ORDERS, fields.get("order"))
    at_ms = whole(fields.get("at"))
    if kind is None or at_ms is None:
        return None
    return RunOrder(run=run, kind=kind, by=text(fields.get("by"), MAX_TEXT), at_ms=at_ms)


def one_of(known: tuple[T, ...], given: object) -> T | None:
    """The known value that was given; None for any other."""
    return next((one for one in known if one == given), None)


def _filled(**fields: Any) -> dict[str, Any]:
    """Without empty texts and mappings."""
    return {name: value for name, value in fields.items() if value not in ("", {})}
