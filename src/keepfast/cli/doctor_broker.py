"""`keepfast doctor`, the way to the brokers: each address is resolved, connected to and logged in to, all at once."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from keepfast.cli.doctor_findings import DoctorFinding
from keepfast.core.errors import KeepfastError, SourceError
from keepfast.kafka.admin import KafkaAdmin
from keepfast.kafka.config import Connection, admin_properties
from keepfast.kafka.probe import ClusterFacts

Check = Callable[[], DoctorFinding]
FIREWALL = "Check the address and the port, that the broker runs, and that no firewall is between."
NONE_HERE = "Start one: `keepfast dev app:app` brings its own, `keepfast broker --port {port}` is one for all."


def addresses(connection: Connection, timeout_s: float) -> list[DoctorFinding]:
    """Every address to begin with. One that answers is enough: then what is wrong with the others is a warning."""
    checks = {one: partial(_reached, connection, one, timeout_s) for one in connection.brokers}
    found = together(checks, 3 * timeout_s)
    if any(one.status == "ok" for one in found):
        return [replace(one, status="warning") if one.status == "problem" else one for one in found]
    return found


def advertised(facts: ClusterFacts, known: Sequence[str], timeout_s: float) -> list[DoctorFinding]:
    """The addresses that the cluster tells its clients, which are the ones that clients use."""
    yet = [address for address in facts.brokers if address not in known]
    found = together({one: partial(_connected, one, timeout_s) for one in yet}, 2 * timeout_s)
    fix = "Put advertised.listeners of that broker right: it must be an address that clients can reach."
    return [
        replace(one, text=f"The cluster sends its clients to another address: {one.text}", fix=fix)
        for one in found
        if one.status != "ok"
    ]


def together(checks: Mapping[str, Check], timeout_s: float) -> list[DoctorFinding]:
    """All at the same time; what has not ended in time is a problem. In the order of the addresses."""
    found: dict[str, DoctorFinding] = {}

    def note(address: str, check: Check) -> None:
        found[address] = check()

    # Daemons: a name server that never answers must not keep the process.
    threads = [threading.Thread(target=note, args=pair, daemon=True) for pair in checks.items()]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = f"gave no answer within {timeout_s:g} s"
    return [found.get(one) or DoctorFinding("broker", "problem", f"{one} {late}", FIREWALL) for one in checks]


def _reached(connection: Connection, address: str, timeout_s: float) -> DoctorFinding:
    found = _connected(address, timeout_s)
    if found.status != "ok":
        return found
    try:
        KafkaAdmin(admin_properties(replace(connection, brokers=(address,)))).check(timeout_s)
    except SourceError as error:
        why = str(error).partition(". ")[0]  # the rest is advice, of which ours is nearer
        return DoctorFinding("broker", "problem", f"{address} does not let us in: {why}", _login_hint(connection))
    except KeepfastError as error:
        return DoctorFinding("settings", "problem", str(error), "Put the client's properties right.")
    login = f" as {connection.sasl_username}" if connection.sasl_username else ""
    return DoctorFinding("broker", "ok", f"{address} answers, by {connection.security_protocol}{login}")


def _connected(address: str, timeout_s: float) -> DoctorFinding:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError, UnicodeError) as error:
        fix = f"Check the spelling of {host}, and the name server of this machine or container."
        return DoctorFinding("broker", "problem", f"{address} cannot be resolved ({error})", fix)
    try:
        socket.create_connection((host, int(port)), timeout=timeout_s).close()
    except OSError as error:
        fix = NONE_HERE.format(port=port) if host in {"localhost", "127.0.0.1", "::1"} else FIREWALL
        return DoctorFinding("broker", "problem", f"{address} cannot be connected to ({error.strerror or error})", fix)
    return DoctorFinding("broker", "ok", f"{address} can be connected to")


def _login_hint(connection: Connection) -> str:
    return (
        f"kafka.security_protocol is {connection.security_protocol}: does that port speak it? Check user name, password"
        " and certificates, too."
    )


def cluster_finding(facts: ClusterFacts) -> Iterator[DoctorFinding]:
    count = len(facts.brokers)
    brokers = f"{count} broker{'s' * (count != 1)}"
    if facts.led:
        yield DoctorFinding("broker", "ok", f"The cluster {facts.cluster_id} has {brokers}")
    else:
        yield DoctorFinding(
            "broker", "unknown", "This is the embedded broker: it has no rights and cannot describe topics"
        )
