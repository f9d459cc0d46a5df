"""Records on their way to a retry topic: sent, and sent again until they are there. Owner: the loop thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from keepfast.core.errors import Fault, SinkError
from keepfast.core.ordered import OrderedSet
from keepfast.core.ports import Mailbox, Receipt
from keepfast.core.retry_headers import shortened
from keepfast.core.retry_topics import Tiers
from keepfast.core.returned import Returned, moved
from keepfast.core.runs import Case
from keepfast.core.verdicts import Move
from keepfast.deadletters.publisher import Publisher
from keepfast.engine.burying import FIRST_BACKOFF_S, LONGEST_BACKOFF_S, BuryingStatus, Settled, status_of, told
from keepfast.engine.timers import Timers
from keepfast.telemetry.logs import get_logger

log = get_logger("keepfast.consumer")


class Moving:
    """Cases whose verdict is Move. Until its copy is acknowledged a case is in `settling`, as one that is buried.

    `finished` is called when it is: if the process dies before the commit that follows, the record is moved once more.
    `stay` is called for a record that is too large for its retry topic.
    """

    def __init__(
        self,
        tiers: Tiers | None,
        publisher: Publisher,
        mailbox: Mailbox,
        settling: OrderedSet[Case],
        *,
        finished: Callable[[Case], None],
        stay: Callable[[Case, float], None],
    ) -> None:
        self._tiers = tiers or Tiers(group="")
        self._publisher = publisher
        self._mailbox = mailbox
        self._settling = settling
        self._finished = finished
        self._stay = stay
        self.timers: Timers[Case] = Timers(lambda case: not case.dropped)
        self._refused: dict[Case, tuple[float, str]] = {}  # since when, and why the last time
        self.failures = 0

    def way(self, case: Case) -> tuple[int, ...]:
        """The delays that this record may go through."""
        return () if case.stays else self._tiers.delays_s

    @staticmethod
    def behind(case: Case) -> int | None:
        """How many of them it has behind it; None if it is still where it came from."""
        return case.message.past.step if isinstance(case.message, Returned) else None

    def begin(self, case: Case, verdict: Move, wall_s: float) -> None:
        case.outgoing = moved(
            case.message,
            tiers=self._tiers,
            step=verdict.step,
            wall_s=wall_s,
            failures=case.failures,
            attempts=[(attempt.at, attempt.error_type) for attempt in case.attempts],
        )
        self._settling.add(case)
        self._publish(case)

    def step(self, now: float) -> None:
        """Send again what has waited long enough."""
        for case in self.timers.due(now):
            self._publish(case)

    def next_in(self, now: float) -> float:
        return self.timers.next_in(now)

    def drop(self, case: Case) -> None:
        """Its partition goes: word that still comes counts for nothing."""
        self._settling.discard(case)
        self._refused.pop(case, None)

    def status(self) -> BuryingStatus:
        """Records that their retry topic does not take, which hold up their lanes, uncommitted. For health."""
        return status_of(len(self._settling), self._refused)

    def _publish(self, case: Case) -> None:
        if case.outgoing is None:
            raise RuntimeError("a case is being moved without a record")
        mailbox = self._mailbox
        self._publisher.send(case.outgoing, lambda outcome: mailbox.post(Settled(case, outcome)))

    def settled(self, word: Settled, now: float) -> None:
        """The sink answered: finished, or try again; the handler does not run again meanwhile."""
        case = word.case
        if case.dropped:
            return
        match word.outcome:
            case Receipt():
                self.drop(case)
                self._finished(case)
            case SinkError() as error:
                self._failed(case, error, now)
            case _:
                raise RuntimeError("only letters go to the spool")

    def _failed(self, case: Case, error: SinkError, now: float) -> None:
        self.failures += 1
        case.publishes += 1
        delay_s = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(case.publishes - 1, 10))
        about = told(case, self._tiers.group) | {"fault": error.fault, "error": str(error)}
        if error.fault is Fault.TOO_LARGE and case.outgoing is not None:
            shorter = shortened(case.outgoing.headers)
            if shorter is case.outgoing.headers:
                self.drop(case)
                case.stays = True
                case.outgoing = None
                log.error("too_large_to_move", **about, consequence="it is tried once more in place, then buried")
                self._stay(case, now)
                return
            case.outgoing = replace(case.outgoing, headers=shorter)
            delay_s = 0.0
        since, _ = self._refused.get(case, (now, ""))
        self._refused[case] = (since, str(error))
        log.error("not_moved", **about, backoff_delay_ms=round(delay_s * 1000))
        self.timers.add(now + delay_s, case)
