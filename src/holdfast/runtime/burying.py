"""Records on their way to another topic: sent, and sent again until it is a fact. Owner: the loop thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.core.errors import Fault, SinkError
from holdfast.core.ordered import OrderedSet
from holdfast.core.ports import Mailbox, Receipt
from holdfast.core.returned import original
from holdfast.core.runs import Case
from holdfast.deadletter.publisher import Publisher
from holdfast.observe.logs import get_logger
from holdfast.runtime.timers import Timers

log = get_logger("holdfast.consumer")

FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.5, 30.0


@dataclass(frozen=True, slots=True)
class Settled:
    """Word from the sink about a letter."""

    case: Case
    outcome: Receipt | SinkError


class Burying:
    """Cases whose verdict is final: `case.outgoing` is what has to be somewhere else before the record is finished.

    `finished` is called when it is there. Until then the case is in `settling`, and its handler does not run again.
    """

    def __init__(self, publisher: Publisher, mailbox: Mailbox, *, group: str, finished: Callable[[Case], None]) -> None:
        self._publisher = publisher
        self._mailbox = mailbox
        self._group = group
        self._finished = finished
        self._timers: Timers[Case] = Timers()
        self.settling: OrderedSet[Case] = OrderedSet()
        self.failures = 0

    def begin(self, case: Case) -> None:
        """Send what `case.outgoing` holds."""
        self.settling.add(case)
        self._publish(case)

    def drop(self, case: Case) -> None:
        """Its partition goes: word that still comes counts for nothing."""
        self.settling.discard(case)

    def step(self, now: float) -> None:
        """Send again what has waited long enough."""
        for case in self._timers.due(now):
            if not case.dropped:
                self._publish(case)

    def next_in(self, now: float) -> float:
        """Seconds until something is due."""
        return self._timers.next_in(now)

    def _publish(self, case: Case) -> None:
        if case.outgoing is None:
            raise RuntimeError("a case is being buried without a letter")
        mailbox = self._mailbox
        self._publisher.send(case.outgoing, lambda outcome: mailbox.post(Settled(case, outcome)))

    def settled(self, word: Settled, now: float) -> None:
        """The sink answered: finished, or try again; the handler does not run again."""
        case = word.case
        if case.dropped:
            return
        match word.outcome:
            case Receipt():
                self.settling.discard(case)
                self._finished(case)
            case SinkError() as error:
                self.failures += 1
                case.publishes += 1
                if error.fault is Fault.TOO_LARGE and case.outgoing is not None:
                    case.outgoing = self._publisher.shrink(case.outgoing)
                delay_s = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(case.publishes - 1, 10))
                log.error(
                    "letter_not_published",
                    **told(case, self._group),
                    fault=error.fault,
                    error=str(error),
                    backoff_delay_ms=round(delay_s * 1000),
                )
                self._timers.add(now + delay_s, case)


def told(case: Case, group: str) -> dict[str, object]:
    """What every line of the log says about a case: what it failed with, what the rules made of it, and where it is:
    where it came from, wherever it waited.
    """
    record, found = original(case.message), case.found
    known = {} if found is None else {"error_classification": found.kind, "code": found.code, "rule": found.rule}
    waited = {} if record is case.message else {"retry_topic": case.partition.place.topic}
    return {
        "retry_count": max(0, case.failures - 1),
        "error_type": case.attempts[-1].error_type if case.attempts else "",
        **known,
        **waited,
        "consumer_group": group,
        "topic": record.topic(),
        "partition": record.partition(),
        "offset": record.offset(),
    }
