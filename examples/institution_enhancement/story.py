"""The service against a registry that limits, is down, is slow and answers garbage; with poison and a kill -9."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from examples.institution_enhancement.fake_registry import RETRY_AFTER_S, FakeRegistry
from examples.stage.account import Account
from examples.stage.postgres import rows
from examples.stage.process import Process, until
from examples.stage.stage import Stage
from keepfast.testing.loopback import free_ports

TOPIC = "financial_data.institution.v1"
GROUP = "financial_data.parent_institution.v1"
LETTERS = "financial_data.institution.dlq"
INSTITUTIONS, FEW = 30, 7
RATE_LIMIT_S = 0.25
"""In production 12 s; the same code, and a run that ends today."""
LATE_S = 0.5
"""So much later than it was sent a busy machine may let the registry see a request."""
SCHEMA = Path(__file__).with_name("schema.sql")
ENDS = {"4": "dead-lettered HTTPStatusError", "5": "dead-lettered UnreadableAnswer"}
POISON = {"not JSON": b"not JSON", "p1": b'{"bacen_cod_inst": "p1"}'}


def institution(number: int) -> dict[str, str]:
    return {"bacen_cod_inst": f"{number:05}", "cnpj": f"{number:014}", "name": f"Bank {number}"}


def story(stage: Stage, *, short: bool = False) -> Account:
    """Short: without the kill, and one company for each answer of the registry."""
    account = Account("institution_enhancement")
    database = stage.postgres.create("institutions", SCHEMA.read_text())
    stage.topics(TOPIC, LETTERS)
    sent = [institution(number) for number in range(FEW if short else INSTITUTIONS)]
    for one in sent:
        account.expect(one["bacen_cod_inst"], ENDS.get(one["cnpj"][-1], "stored"))
    for name in POISON:
        account.expect(name, "dead-lettered ValueError" if name == "p1" else "dead-lettered DecodeError")
    records = [(one["bacen_cod_inst"], json.dumps(one).encode()) for one in [*sent, *sent[:2]]]
    stage.send(TOPIC, [*records, *POISON.items()])

    (port,) = free_ports(1)
    with FakeRegistry() as registry:
        service = stage.process(
            ["examples.institution_enhancement.consumer"],
            "institution_enhancement",
            **stage.postgres.variables("institutions"),
            REGISTRY_URL=registry.url,
            REGISTRY_RATE_LIMIT_S=str(RATE_LIMIT_S),
            REGISTRY_TIMEOUT_S="1",
            RETRY_INITIAL_DELAY_MS="50",
            HEALTH_CHECK_ENABLED="true",
            HEALTH_CHECK_PORT=str(port),
            KEEPFAST_CONSUMER_GROUP_INSTANCE_ID="institution-0",
        )
        service.start()
        until(lambda: service.check() and len(registry.asked) > len(sent) / 2, "half of them are asked for")
        account.check("health did not say that it runs", right=_asked(port, "/health") == "running\n")
        if not short:
            service.kill()
            service.start()
        stage.until_read(service, (GROUP, TOPIC))
        name = "financial_data_institution_retry_count_total"
        account.check(f"/metrics has no {name}", right=name in _asked(port, "/metrics"))
        account.check("the service did not end cleanly", right=service.stop() == 0)
    return reconcile(stage, account, database, registry, service)


def reconcile(stage: Stage, account: Account, database: str, registry: FakeRegistry, service: Process) -> Account:
    query = "SELECT bacen_cod_inst, parent_name = 'Parent of ' || cnpj FROM institution"
    for code, right in rows(database, query):
        account.note("stored", [code])
        account.check(f"{code} has the wrong parent", right=right)
    for record in stage.records(LETTERS):
        letter = json.loads(record.value or b"{}")
        original = letter["original_message"]
        code = original["bacen_cod_inst"] if isinstance(original, dict) else original
        account.note(f"dead-lettered {letter['error_type']}", [code])
    gaps = registry.gaps_s()
    took, mean = sum(gaps), sum(gaps) / len(gaps)
    account.check(f"{len(gaps) + 1} requests within {took:.2f} s", right=took >= RATE_LIMIT_S * len(gaps) - LATE_S)
    limited = [asked[1] - asked[0] for cnpj, asked in registry.asked.items() if cnpj[-1] == "1"]
    account.check(f"Retry-After was not obeyed: {limited}", right=min(limited) >= RETRY_AFTER_S - LATE_S)
    account.check("the pool was not closed", right="closed: pool and registry" in service.log())
    account.remarks.append(f"the registry was asked every {mean:.2f} s, its limit is {RATE_LIMIT_S:g} s")
    return account


def _asked(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return str(answer.read().decode())
