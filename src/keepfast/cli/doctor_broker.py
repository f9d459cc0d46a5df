"""`keepfast doctor`, the brokers: resolves, connects and logs in to each address, in parallel."""

from __future__ import annotations

import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

from keepfast.cli.doctor_findings import DoctorFinding
from keepfast.core.errors import Fault, KeepfastError, SourceError
from keepfast.engine.renewals import renewed_every_s
from keepfast.kafka.admin import OFFSETS_RETENTION, KafkaAdmin
from keepfast.kafka.config import Connection, admin_properties
from keepfast.kafka.probe import ProbedCluster

Check = Callable[[], DoctorFinding]

SHORT_RETENTION_S = 3 * 86_400.0
"""A consumer that is down for longer, over a weekend, begins by its auto_offset_reset."""
SHORT_RETENTION = (
    "A consumer that is down for longer reads everything again (auto_offset_reset earliest) or skips what came"
    f" meanwhile (latest): raise {OFFSETS_RETENTION} on the brokers."
)
FIREWALL = "Check the address and port, that the broker runs, and that no firewall blocks the connection."
SILENT = (
    "Check that the broker is neither frozen nor overloaded, and that the port is one of Kafka that uses {protocol}"
    " (kafka.security_protocol)."
)
NO_LOCAL_BROKER = "Start one with `keepfast broker --port {port}`; `keepfast dev {target}` starts its own."


def addresses(connection: Connection, timeout_s: float, *, target: str = "app:app") -> list[DoctorFinding]:
    """Check every bootstrap address. If one answers, problems with the others are warnings. `target`: the app."""
    checks = {one: partial(_reached, connection, one, timeout_s, target) for one in connection.brokers}
    found = run_parallel(checks, 3 * timeout_s)
    if any(one.status == "ok" for one in found):
        return [replace(one, status="warning") if one.status == "problem" else one for one in found]
    return found


def advertised(facts: ProbedCluster, known: Sequence[str], timeout_s: float) -> list[DoctorFinding]:
    """Check the addresses that the cluster advertises, which are those that clients connect to."""
    others = [address for address in facts.brokers if address not in known]
    found = run_parallel({one: partial(_connected, one, timeout_s) for one in others}, 2 * timeout_s)
    fix = "Fix advertised.listeners of that broker: it must be an address that clients can reach."
    return [
        replace(one, text=f"The cluster advertises another address: {one.text}", fix=fix)
        for one in found
        if one.status != "ok"
    ]


def run_parallel(checks: Mapping[str, Check], timeout_s: float) -> list[DoctorFinding]:
    """Run all checks in parallel; one that does not end in time is a problem. Results are in the order of addresses."""
    found: dict[str, DoctorFinding] = {}

    def note(address: str, check: Check) -> None:
        found[address] = check()

    # Daemon threads: a name server that never answers must not block the exit.
    threads = [threading.Thread(target=note, args=pair, daemon=True) for pair in checks.items()]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = f"did not answer within {timeout_s:g} s"
    return [found.get(one) or DoctorFinding("broker", "problem", f"{one} {late}", FIREWALL) for one in checks]


def _reached(connection: Connection, address: str, timeout_s: float, target: str) -> DoctorFinding:
    found = _connected(address, timeout_s, target)
    if found.status != "ok":
        return found
    try:
        KafkaAdmin(admin_properties(replace(connection, brokers=(address,)))).check(timeout_s)
    except SourceError as error:
        if error.fault is Fault.RETRY:
            text = f"{address} accepts connections, but has given no answer within {timeout_s:g} s"
            return DoctorFinding("broker", "problem", text, SILENT.format(protocol=connection.security_protocol))
        why = str(error).partition(". ")[0]  # the rest is advice; ours is more specific
        return DoctorFinding("broker", "problem", f"{address} refused the connection: {why}", _login_hint(connection))
    except KeepfastError as error:
        return DoctorFinding("settings", "problem", str(error), "Fix the client's properties.")
    login = f" as {connection.sasl_username}" if connection.sasl_username else ""
    return DoctorFinding("broker", "ok", f"{address} answers over {connection.security_protocol}{login}")


def _connected(address: str, timeout_s: float, target: str = "app:app") -> DoctorFinding:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError, UnicodeError) as error:
        fix = f"Check the spelling of {host}, and the DNS configuration of this machine or container."
        return DoctorFinding("broker", "problem", f"{address} cannot be resolved ({error})", fix)
    try:
        socket.create_connection((host, int(port)), timeout=timeout_s).close()
    except OSError as error:
        local = host in {"localhost", "127.0.0.1", "::1"}
        fix = NO_LOCAL_BROKER.format(port=port, target=shlex.quote(target)) if local else FIREWALL
        return DoctorFinding("broker", "problem", f"{address} cannot be connected to ({error.strerror or error})", fix)
    return DoctorFinding("broker", "ok", f"{address} can be connected to")


def _login_hint(connection: Connection) -> str:
    return (
        f"Check that the port uses {connection.security_protocol} (kafka.security_protocol). Check user name, password"
        " and certificates."
    )


def retention(kept_s: float | None) -> DoctorFinding:
    """How long positions of groups are kept. `kept_s`: as the brokers say; None: they do not."""
    every = f"every {timedelta(seconds=renewed_every_s(kept_s))}".removesuffix(", 0:00:00")
    running = f"running consumers commit theirs again {every}"
    if kept_s is None:
        text = f"The brokers do not say how long they keep a group's position ({OFFSETS_RETENTION}); {running}"
        return DoctorFinding("broker", "ok", text)
    kept = str(timedelta(seconds=kept_s)).removesuffix(", 0:00:00")
    text = f"A group's position is kept for {kept} after its last commit ({OFFSETS_RETENTION}); {running}"
    if kept_s < SHORT_RETENTION_S:
        return DoctorFinding("broker", "warning", text, SHORT_RETENTION)
    return DoctorFinding("broker", "ok", text)


def cluster_finding(facts: ProbedCluster) -> Iterator[DoctorFinding]:
    count = len(facts.brokers)
    brokers = f"{count} broker{'s' * (count != 1)}"
    if facts.has_controller:
        yield DoctorFinding("broker", "ok", f"The cluster {facts.cluster_id} has {brokers}")
    else:
        yield DoctorFinding(
            "broker", "unknown", "This is the embedded broker: it has no ACLs and cannot describe topics"
        )
