"""The deals and what was done about them, in PostgreSQL: an effect and its idempotency key in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import LiteralString, Protocol

from examples.database import Connection, Database
from examples.deals_escrow.messages import Deadline, Message

_NOTE = """
    INSERT INTO effects (consumer, idempotency_key, deal_id, kind) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING
"""
_PAY = "UPDATE deals SET paid = paid + 1 WHERE id = %s AND funded AND paid + refunded = 0 AND ended_at IS NULL"
_REFUND = "UPDATE deals SET refunded = refunded + 1 WHERE id = %s AND funded AND paid + refunded = 0"
_SETTLED = "SELECT FROM deals WHERE id = %s AND (paid + refunded > 0 OR ended_at IS NOT NULL)"
_SCHEDULE = """
    INSERT INTO deals (id, ends_at) VALUES (%s, to_timestamp(%s))
    ON CONFLICT (id) DO UPDATE SET ends_at = EXCLUDED.ends_at
"""
_FUND = "INSERT INTO deals (id, funded) VALUES (%s, true) ON CONFLICT (id) DO UPDATE SET funded = true"


class NotFunded(Exception):
    """A payout or a refund for a deal without a deposit. The deposit may be on its way."""


class AlreadySettled(Exception):
    """A payout or a refund, by a command of its own, of a deposit that went out before, or of a deal that timed out."""


class Books(Protocol):
    def note(self, consumer: str, message: Message, kind: str) -> None: ...
    def schedule(self, consumer: str, deadline: Deadline) -> None: ...
    def fund(self, consumer: str, message: Message) -> None: ...
    def pay(self, consumer: str, message: Message) -> None: ...
    def refund(self, consumer: str, message: Message) -> None: ...


class PostgresBooks:
    """Each method does its work once for each (consumer, idempotency key), and nothing the other times."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(self, consumer: str, message: Message, kind: str) -> None:
        self._once(consumer, message, kind, lambda _: None)

    def schedule(self, consumer: str, deadline: Deadline) -> None:
        """The deal is ended at its deadline, unless it was settled before."""
        values = (deadline.deal_id, deadline.ends_at)
        self._once(consumer, deadline, "scheduled", lambda connection: connection.execute(_SCHEDULE, values))

    def fund(self, consumer: str, message: Message) -> None:
        self._once(consumer, message, "funded", lambda connection: connection.execute(_FUND, (message.deal_id,)))

    def pay(self, consumer: str, message: Message) -> None:
        """Raises NotFunded or AlreadySettled."""
        self._once(consumer, message, "paid", lambda connection: _moved(connection, _PAY, message))

    def refund(self, consumer: str, message: Message) -> None:
        """Raises NotFunded or AlreadySettled."""
        self._once(consumer, message, "refunded", lambda connection: _moved(connection, _REFUND, message))

    def _once(self, consumer: str, message: Message, kind: str, work: Callable[[Connection], object]) -> None:
        with self._database.transaction() as connection:
            noted = connection.execute(_NOTE, (consumer, message.idempotency_key, message.deal_id, kind))
            if noted.rowcount:
                work(connection)


def _moved(connection: Connection, statement: LiteralString, message: Message) -> None:
    if connection.execute(statement, (message.deal_id,)).rowcount == 0:
        if connection.execute(_SETTLED, (message.deal_id,)).rowcount:
            raise AlreadySettled(f"deal {message.deal_id} was settled before, or timed out")
        raise NotFunded(f"deal {message.deal_id} has no deposit")
