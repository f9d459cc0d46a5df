"""The service against a registry that limits, is down, is slow and answers garbage; with poison, a letter that is older
than what is stored, and a kill -9. Its consumer and producer are kafka-python's.
"""

from __future__ import annotations

import json
import os
import re
import urllib.request
from pathlib import Path

from examples.institution_enhancement.fake_registry import RETRY_AFTER_S, FakeRegistry
from examples.stage.account import Account
from examples.stage.postgres import rows
from examples.stage.process import ROOT, Process, until
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
HERE = Path(__file__).parent
ENDS = {"4": "dead-lettered HTTPError", "5": "dead-lettered UnreadableAnswer"}
RETRIED = "123"
"""Last digits of companies whose first request fails."""
POISON = {"not JSON": b"not JSON", "p1": b'{"bacen_cod_inst": "p1"}'}
INSTALLED = [ROOT / "src", ROOT / "packages" / "neotool-common" / "src", HERE / "src"]
"""What `pip install` makes importable."""


def institution(number: int, name: str = "Bank", version: int = 2) -> dict[str, object]:
    code = f"{number:05}"
    return {"bacen_cod_inst": code, "cnpj": f"{number:014}", "name": f"{name} {number}", "version": version}


def story(stage: Stage, *, short: bool = False) -> Account:
    """Short: without the kill, and one company for each answer of the registry."""
    account = Account("institution_enhancement")
    database = stage.postgres.create("institutions", (HERE / "schema.sql").read_text())
    stage.topics(TOPIC, LETTERS)
    sent = [institution(number) for number in range(FEW if short else INSTITUTIONS)]
    for one in sent:
        account.expect(str(one["bacen_cod_inst"]), ENDS.get(str(one["cnpj"])[-1], "stored"))
    for name in POISON:
        account.expect(name, "dead-lettered ValueError" if name == "p1" else "dead-lettered DecodeError")
    old = institution(0, "Former bank", version=1)
    records = [(str(one["bacen_cod_inst"]), json.dumps(one).encode()) for one in [*sent, *sent[:2], old]]
    stage.send(TOPIC, [*records, *POISON.items()])

    health, metrics = free_ports(2)
    with FakeRegistry() as registry:
        service = stage.process(
            ["institution_enhancement.flows.consumer"],
            "institution_enhancement",
            **stage.postgres.variables("institutions"),
            PYTHONPATH=os.pathsep.join(map(str, INSTALLED)),
            CNPJA_URL=registry.url,
            CNPJA_RATE_LIMIT_SECONDS=str(RATE_LIMIT_S),
            CNPJA_TIMEOUT_SECONDS="1",
            RETRY_INITIAL_DELAY_MS="50",
            HEALTH_CHECK_ENABLED="true",
            HEALTH_CHECK_PORT=str(health),
            KEEPFAST_METRICS_PORT=str(metrics),
            KAFKA_GROUP_INSTANCE_ID="institution-0",
        )
        service.start()
        until(lambda: service.check() and len(registry.asked) > len(sent) / 2, "half of them are asked for")
        account.check("health did not say that it runs", right=_asked(health, "/health") == "running\n")
        if not short:
            service.kill()
            service.start()
        stage.until_read(service, (GROUP, TOPIC))
        page = _asked(metrics, "/metrics")
        if short:  # a killed process takes its counts with it
            check_metrics(account, page)
        account.check("the service did not end cleanly", right=service.stop() == 0)
    check_log(account, service, [str(one["bacen_cod_inst"]) for one in sent])
    return reconcile(stage, account, database, registry, service)


def check_metrics(account: Account, page: str) -> None:
    """Those that the standard requires, with the counts of this run."""
    counts = {"processed_total": 12, "retry_count_total": 3, "dlq_count_total": 4, "error_count_total": 7}
    counts["processing_duration_seconds_count"] = 15
    for name, expected in counts.items():
        samples = re.findall(rf"^financial_data_institution_{name}(?:{{.*}})? (\S+)$", page, re.MULTILINE)
        found = sum(map(float, samples))
        account.check(f"{name} is {found:g}, not {expected}", right=found == expected)
    account.check("no retry_delay", right="financial_data_institution_retry_delay_seconds_count" in page)


def check_log(account: Account, service: Process, codes: list[str]) -> None:
    """The statements of the standard, on the service's own logger, about the institution that they concern."""
    lines = [line for line in service.log().splitlines() if " institution_enhancement " in line]
    fields = (
        "retry_count=",
        "error_type=",
        "error_classification=",
        f"consumer_group={GROUP}",
        "partition=",
        "offset=",
    )
    for code in codes:
        own = [line for line in lines if f'context="bacen_cod_inst={code}"' in line or f"bacen_cod_inst={code}" in line]
        if code[-1] in RETRIED:
            retries = [line for line in own if "WARNING" in line and "retry_scheduled" in line]
            account.check(f"the log has no retry of {code}", right=any("backoff_delay_ms=" in line for line in retries))
        if code[-1] in ENDS:
            final = [line for line in own if "WARNING" in line and "dead_lettering" in line]
            routed = [line for line in own if "INFO" in line and "dead_lettered" in line]
            account.check(f"the log does not say that {code} is final", right=bool(final and routed))
        incomplete = [line for line in own if not all(field in line for field in fields)]
        account.check(f"fields are missing: {incomplete[:1]}", right=not incomplete)


def reconcile(stage: Stage, account: Account, database: str, registry: FakeRegistry, service: Process) -> Account:
    query = "SELECT bacen_cod_inst, starts_with(name, 'Bank ') AND parent_name = 'Parent of ' || cnpj FROM institution"
    for code, right in rows(database, query):
        account.note("stored", [code])
        account.check(f"{code} has the wrong parent, or an old name", right=right)
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
    account.check("the pool was not closed", right="pool_closed" in service.log())
    account.remarks.append(f"the registry was asked every {mean:.2f} s, its limit is {RATE_LIMIT_S:g} s")
    return account


def _asked(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return str(answer.read().decode())
