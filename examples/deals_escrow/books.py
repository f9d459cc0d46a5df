"""The deals and what was done about them, in PostgreSQL. Each method writes in the transaction of the consumer's inbox,
which has the idempotency key of the message: it is called once for each key.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import LiteralString, Protocol

from examples.database import Connection
from examples.deals_escrow.messages import Deadline, Message
from keepfast import upsert

_NOTE = "INSERT INTO effects (consumer, idempotency_key, deal_id, kind) VALUES (%s, %s, %s, %s)"
_PAY = "UPDATE deals SET paid = paid + 1 WHERE id = %s AND funded AND paid + refunded = 0 AND ended_at IS NULL"
_REFUND = "UPDATE deals SET refunded = refunded + 1 WHERE id = %s AND funded AND paid + refunded = 0"
_SETTLED = "SELECT FROM deals WHERE id = %s AND (paid + refunded > 0 OR ended_at IS NOT NULL)"


class NotFunded(Exception):
    """A payout or a refund for a deal without a deposit. The deposit may be on its way."""


class AlreadySettled(Exception):
    """A payout or a refund, by a command of its own, of a deposit that went out before, or of a deal that timed out."""


class Books(Protocol):
    def note(self, tx: Connection, consumer: str, message: Message, kind: str) -> None: ...
    def schedule(self, tx: Connection, consumer: str, deadline: Deadline) -> None: ...
    def fund(self, tx: Connection, consumer: str, message: Message) -> None: ...
    def pay(self, tx: Connection, consumer: str, message: Message) -> None: ...
    def refund(self, tx: Connection, consumer: str, message: Message) -> None: ...


class PostgresBooks:
    """A message that was noted before is an error of the database: the inbox lets none through."""

    def note(self, tx: Connection, consumer: str, message: Message, kind: str) -> None:
        tx.execute(_NOTE, (consumer, message.idempotency_key, message.deal_id, kind))

    def schedule(self, tx: Connection, consumer: str, deadline: Deadline) -> None:
        """The deal is ended at its deadline, unless it was settled before."""
        self.note(tx, consumer, deadline, "scheduled")
        _set(tx, deadline, ends_at=datetime.fromtimestamp(deadline.ends_at, UTC))

    def fund(self, tx: Connection, consumer: str, message: Message) -> None:
        self.note(tx, consumer, message, "funded")
        _set(tx, message, funded=True)

    def pay(self, tx: Connection, consumer: str, message: Message) -> None:
        """Raises NotFunded or AlreadySettled."""
        self.note(tx, consumer, message, "paid")
        _moved(tx, _PAY, message)

    def refund(self, tx: Connection, consumer: str, message: Message) -> None:
        """Raises NotFunded or AlreadySettled."""
        self.note(tx, consumer, message, "refunded")
        _moved(tx, _REFUND, message)


def _set(tx: Connection, message: Message, **column: object) -> None:
    """In the row of the deal, which may not be there yet."""
    statement, values = upsert("deals", {"id": message.deal_id, **column}, key="id", update=[*column])
    tx.execute(statement.encode(), values)


def _moved(connection: Connection, statement: LiteralString, message: Message) -> None:
    if connection.execute(statement, (message.deal_id,)).rowcount == 0:
        if connection.execute(_SETTLED, (message.deal_id,)).rowcount:
            raise AlreadySettled(f"deal {message.deal_id} was settled before, or timed out")
        raise NotFunded(f"deal {message.deal_id} has no deposit")
