"""The service under load: clients that post invoices and repeat what was not accepted, a gateway that is not ready,
answers 503 or hangs, poison in the topic; and meanwhile kill -9 and orderly restarts.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx

from examples.invoices.service import CHARGED, INVOICES, REPORT
from examples.stage.account import Account
from examples.stage.http import Answer, HttpServer
from examples.stage.postgres import rows
from examples.stage.process import Process, until
from examples.stage.stage import Stage
from keepfast.testing.loopback import free_ports

LETTERS = "billing.invoice.dlq"
GROUPS = (("invoices.charge", INVOICES), ("invoices.total", CHARGED))
COUNT, FEW = 600, 60
CLIENTS = 8
POISON = {
    "no invoice": (b"[]", "SCHEMA_INVALID"),
    "nothing to pay": (b'{"id": "nothing to pay", "cents": 0}', "SCHEMA_INVALID"),
    "cut short": (b'{"id": "cut sh', "DECODE_FAILED"),
}
SCHEMA = Path(__file__).with_name("schema.sql")


class Gateway:
    """Charges each invoice once, by its id, and is often not well. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()
        self.charged: dict[str, int] = {}

    def answer(self, _: str, body: bytes) -> Answer:
        invoice = json.loads(body)
        with self._lock:
            self._calls[invoice["id"]] += 1
            first, number = self._calls[invoice["id"]] == 1, len(self._calls)
            if first and number % 20 == 3:
                return Answer(425)
            if first and number % 20 == 9:
                return Answer(503)
            self.charged.setdefault(invoice["id"], invoice["cents"])
        receipt = json.dumps({"receipt": f"r-{invoice['id']}"}).encode()
        return Answer(200, receipt, {"Content-Type": "application/json"}, wait_s=0.005)


@contextmanager
def clients(url: str, identities: list[str], accepted: list[str]) -> Iterator[None]:
    """Post these invoices until each is accepted, also while the service is down; done when the block ends."""
    stop = threading.Event()

    def post(identity: str) -> None:
        body = {"id": identity, "cents": cents_of(identity)}
        while not stop.is_set():
            try:
                if client.post("/invoices", json=body).status_code == 202:
                    accepted.append(identity)
                    return
            except httpx.HTTPError:
                pass
            stop.wait(0.1)

    with httpx.Client(base_url=url, timeout=10) as client, ThreadPoolExecutor(CLIENTS) as pool:
        try:
            for identity in identities:
                pool.submit(post, identity)
            yield
        except BaseException:
            stop.set()
            raise


def cents_of(identity: str) -> int:
    return 1 + int(identity.removeprefix("invoice ")) % 97


def story(stage: Stage, *, short: bool = False) -> Account:
    """Short: one orderly restart and no kill."""
    account = Account("invoices")
    database = stage.postgres.create("invoices", SCHEMA.read_text())
    stage.topics(INVOICES, CHARGED, REPORT)
    identities = [f"invoice {number:04}" for number in range(FEW if short else COUNT)]
    for identity in identities:
        account.expect(identity, "charged", "reported")
    for name, (_, code) in POISON.items():
        account.expect(name, f"dead-lettered {code}", "in Sentry")
    gateway, sentry = Gateway(), stage.folder / "sentry.jsonl"
    (port,) = free_ports(1)
    url, accepted = f"http://127.0.0.1:{port}", list[str]()
    with HttpServer(gateway.answer) as server:
        service = stage.process(
            ["uvicorn", "examples.invoices.service:web", "--port", str(port), "--log-level", "warning"],
            "invoices",
            DATABASE_URL=database,
            GATEWAY_URL=server.url,
            SENTRY_FILE=str(sentry),
            KEEPFAST_CONSUMER_GROUP_INSTANCE_ID="invoices-0",
        )
        service.start()
        with clients(url, identities, accepted):
            for number, kill in enumerate((False,) if short else (True, False, True, False), start=2):
                until(
                    lambda n=number: service.check() and len(accepted) > len(identities) * n / 7,  # type: ignore[misc]
                    "more invoices are accepted",
                    timeout_s=180,
                )
                if kill:
                    service.kill()
                else:
                    account.check("the service did not end by the signal", right=service.stop() in (0, -15))
                service.start()
        stage.send(INVOICES, [(name, value) for name, (value, _) in POISON.items()])
        stage.until_read(service, *GROUPS)
        check_pages(account, url)
        account.check("the service did not end by the signal", right=service.stop() in (0, -15))
    check_ends(account, service, orderly=2 if short else 3)
    return reconcile(stage, account, database, sentry, gateway)


def check_pages(account: Account, url: str) -> None:
    """What is mounted in the service: our health, and the service's metrics beside ours."""
    until(lambda: httpx.get(f"{url}/kafka/health/ready").status_code == 200, "it is ready", timeout_s=30)
    page = httpx.get(f"{url}/kafka/metrics").text
    for name in ("invoices_charged_cents_total", "kafka_consumer_lag", "billing_invoice_processed_total"):
        account.check(f"{name} is not on the page of metrics", right=f"\n{name}" in page)


def check_ends(account: Account, service: Process, *, orderly: int) -> None:
    """Each orderly end left the lifespan, closed the pools, and left the host's signal handlers as they were."""
    left = list(service.log_entries("lifespan_left"))
    account.check(f"the lifespan was left {len(left)} times, not {orderly}", right=len(left) == orderly)
    account.check("a pool was not closed", right=all(one["pool_closed"] and one["gateway_closed"] for one in left))
    ends = list(service.log_entries("service_left"))
    account.check(f"the app was drained {len(ends)} times, not {orderly}", right=len(ends) == orderly)
    account.check("the host's signal handlers were changed", right=all(one["signals_untouched"] for one in ends))
    account.remarks.append(f"drained    {orderly} times, with the pools closed and the host's signals untouched")


def reconcile(stage: Stage, account: Account, database: str, sentry: Path, gateway: Gateway) -> Account:
    """From the database, the topics, the letters, and what Sentry got."""
    charges = rows(database, "SELECT id, cents, receipt FROM charges")
    for identity, cents, receipt in charges:
        account.note("charged", [identity])
        right = cents == gateway.charged.get(identity) == cents_of(identity) and receipt == f"r-{identity}"
        account.check(f"{identity} was not charged as it should be", right=right)
    account.note("reported", {(record.key or b"").decode() for record in stage.records(REPORT)})
    letters = {(one.topic, one.partition, one.offset): one for one in stage.letters(LETTERS)}
    names = {value: name for name, (value, _) in POISON.items()}
    for letter in letters.values():
        identity = names.get(letter.value or b"", f"letter about offset {letter.offset}")
        account.note(f"dead-lettered {letter.error_code}", [identity])
    lines = sentry.read_text().splitlines() if sentry.exists() else []
    reported: list[dict[str, str]] = [json.loads(line)["tags"] for line in lines]
    for tags in reported:
        place, _, offset = tags["record"].rpartition(" ")
        topic, _, partition = place.rstrip("]").rpartition("[")
        found = letters.get((topic, int(partition), int(offset)))
        account.note("in Sentry", [names.get(found.value or b"", place) if found is not None else place])
    return account
