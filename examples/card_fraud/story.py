"""The service with everything that goes wrong in production: bad events, duplicates, card numbers, kill -9, a database
that hangs and one that goes away, reference data that is missing; and at the end a replay.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from examples.stage.account import Account
from examples.stage.postgres import change, rows
from examples.stage.process import Process, until
from examples.stage.proxy import TcpProxy
from examples.stage.stage import Place, Stage

TOPIC = "fraud.card.decisions.v1"
LETTERS = "fraud.card.decisions.v1.dlq.local"
GROUP = "card-fraud-transaction-management.local"
TRANSACTIONS, FEW = 300, 30
HANG_S = 60.0
"""So long the database accepts connections and statements, and answers none."""
SCHEMA = Path(__file__).with_name("schema.sql")
FIELDS = ("card_token", "amount", "currency", "decision", "decision_reason")


def event(number: int, kind: str = "PREAUTH", **fields: object) -> dict[str, object]:
    """An event that is right, but for what `fields` say."""
    decided = {"decision": "APPROVE", "decision_reason": "low risk"} if kind == "PREAUTH" else {}
    return {
        "transaction_id": f"tx-{number:04}",
        "evaluation_type": kind,
        "transaction_timestamp": f"2026-01-27T10:{number // 60 % 60:02}:{number % 60:02}Z",
        "card_token": f"tok_{number % 40:04}",
        "amount": f"{number}.50",
        "currency": "EUR",
        **decided,
        **fields,
    }


POISON: dict[str, tuple[bytes, str]] = {
    "cut short": (b'{"transaction_id": "tx-', "DECODE_FAILED"),
    "no card": (
        json.dumps({k: v for k, v in event(9001).items() if k != "card_token"}).encode(),
        "MISSING_REQUIRED_FIELD",
    ),
    "unknown decision": (json.dumps(event(9002, decision="MAYBE")).encode(), "ENUM_INVALID"),
    "negative amount": (json.dumps(event(9003, amount="-1.00")).encode(), "SCHEMA_INVALID"),
    "PREAUTH without decision": (json.dumps(event(9004, decision=None)).encode(), "SCHEMA_INVALID"),
    "POSTAUTH with decision": (json.dumps(event(9005, "POSTAUTH", decision="APPROVE")).encode(), "SCHEMA_INVALID"),
}


class Sent:
    """What goes into the topic, and who is who: an event is known by its bytes, or by where it stands."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self.records: list[tuple[str, bytes]] = []
        self.identities: dict[bytes, str] = {}
        self.first: dict[str, dict[str, object]] = {}

    def add(self, key: str, value: bytes, identity: str, *ends: str) -> None:
        self.records.append((key, value))
        self.identities[value] = identity
        if ends:
            self._account.expect(identity, *ends)

    def add_event(self, fields: dict[str, object], *ends: str) -> None:
        identity = f"{fields['transaction_id']}/{fields['evaluation_type']}"
        self.first.setdefault(identity, fields)
        self.add(str(fields["transaction_id"]), json.dumps(fields).encode(), identity, *ends)


def everything(account: Account, transactions: int) -> Sent:
    sent = Sent(account)
    for number in range(transactions):
        sent.add_event(event(number), "stored")
        sent.add_event(event(number, "POSTAUTH"), "stored")
        if number % 10 == 0:  # the same evaluation again, with another outcome: the first one holds
            sent.add_event(event(number, decision="DECLINE", decision_reason="sent again"))
        if number % 50 == 7:
            card = {"note": "customer read out 4111 1111 1111 1111", "n": number}
            sent.add("pan", json.dumps(event(number) | card).encode(), f"card number {number}", "discarded")
    for name, (value, code) in POISON.items():
        sent.add(name, value, name, f"dead-lettered {code}")
    for number in range(8000, 8005):
        sent.add_event(event(number, currency="CHF"), "dead-lettered DB_CONSTRAINT_VIOLATION", "stored")
    return sent


def story(stage: Stage, *, short: bool = False) -> Account:
    """Short: without the kill, the database hangs until the breaker opens, and the letters are replayed once."""
    account = Account("card_fraud")
    database = stage.postgres.create("card_fraud", SCHEMA.read_text())
    stage.topics(TOPIC)
    sent = everything(account, FEW if short else TRANSACTIONS)
    with TcpProxy(("127.0.0.1", stage.postgres.port)) as proxy:
        service = stage.app(
            "examples.card_fraud.service:app",
            DATABASE_URL=stage.postgres.url("card_fraud", port=proxy.port),
            DATABASE_TIMEOUT_S="0.5" if short else "4",
            KEEPFAST_CONSUMERS_INGEST_BREAKER_OPEN_S="1",  # so that the run need not wait 10 s for a probe
        )
        where = outages(stage, account, service, sent, proxy, short=short)
        replay(stage, service, database, times=1 if short else 2)
        account.check("the service did not end cleanly", right=service.stop() == 0)
    discarded = [
        (one["topic"], one["partition"], one["offset"]) for one in service.log_entries("sensitive_data_discarded")
    ]
    return reconcile(stage, account, sent, database, [where[place] for place in discarded])


def outages(
    stage: Stage, account: Account, service: Process, sent: Sent, proxy: TcpProxy, *, short: bool
) -> dict[Place, tuple[str, bytes]]:
    """A third of the records each: while it works, while the database hangs, while it is stopped. Returns their places.

    Valid events that became letters are in the account: none is expected.
    """
    database, third = stage.postgres.url("card_fraud"), len(sent.records) // 3
    early, middle, late = sent.records[:third], sent.records[third : 2 * third], sent.records[2 * third :]
    where = dict(zip(stage.send(TOPIC, early), early, strict=True))

    def stored() -> int:
        return int(rows(database, "SELECT count(*) FROM fraud_gov.transactions")[0][0])

    def opened() -> int:
        service.check()
        return len(list(service.log_entries("breaker_opened")))

    service.start()
    if not short:
        until(lambda: service.check() and stored() > third / 3, "a third of the first decisions is stored")
        service.kill()
        service.start()
    until(lambda: service.check() and stored() > third / 2, "half of the first decisions is stored")

    proxy.hang()
    hanging_at = time.monotonic()
    where |= zip(stage.send(TOPIC, middle), middle, strict=True)
    until(lambda: opened() > 0, "the breaker opens because nothing is answered")
    until(lambda: service.check() and (short or time.monotonic() - hanging_at > HANG_S), "it hung", 2 * HANG_S)
    account.remarks.append(f"the database hung for {time.monotonic() - hanging_at:.0f} s")
    proxy.restore()
    stage.until_read(service, (GROUP, TOPIC))

    before = opened()
    stage.postgres.stop()
    where |= zip(stage.send(TOPIC, late), late, strict=True)
    until(lambda: opened() > before, "the breaker opens because nothing is there")
    stage.postgres.start()
    stage.until_read(service, (GROUP, TOPIC))
    return where


def replay(stage: Stage, service: Process, database: str, *, times: int) -> None:
    """Twice, because an operator will: it must do no harm."""
    change(database, "INSERT INTO fraud_gov.currencies VALUES ('CHF')")
    for again in ([], ["--again"])[:times]:
        stage.keepfast("dlq", "replay", LETTERS, "--code", "DB_CONSTRAINT_VIOLATION", *again, "--yes")
        stage.until_read(service, (GROUP, TOPIC))


def reconcile(stage: Stage, account: Account, sent: Sent, database: str, discarded: list[tuple[str, bytes]]) -> Account:
    """From the database, the letters and the log."""
    account.note("discarded", (sent.identities[value] for _, value in discarded))
    for letter in stage.letters(LETTERS):
        identity = sent.identities.get(letter.value or b"", f"letter about {letter.topic}[{letter.partition}]")
        account.note(f"dead-lettered {letter.error_code}", [identity])
        account.check(f"a card number is in the letter of {identity}", right=b"1111" not in (letter.value or b""))
    query = f"SELECT transaction_id, evaluation_type, {', '.join(FIELDS)} FROM fraud_gov.transactions"  # noqa: S608
    for transaction, kind, *found in rows(database, query):
        identity = f"{transaction}/{kind}"
        account.note("stored", [identity])
        meant = [sent.first.get(identity, {}).get(name) for name in FIELDS]
        fields = [value if value is None else str(value) for value in found]
        account.check(f"{identity} is not what was decided first: {fields}", right=fields == meant)
    return account
