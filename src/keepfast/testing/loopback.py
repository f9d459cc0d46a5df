"""Free ports on the loopback interface that stay free while a broker is down.

A port from the kernel's ephemeral range will not do: while the broker is down, any outgoing connection may be given
that port as its own, and a client that keeps connecting to it can even end up connected to itself. Either way the
broker could not come back on its address.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

from keepfast.core.errors import StartError

_LOWEST = 20_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Different ports that are free at this moment. Another process may still take one before you do."""
    ports = list(range(_LOWEST, max(_ephemeral_start(), _LOWEST + 1_000)))
    random.shuffle(ports)
    found: list[int] = []
    for port in ports:
        if len(found) == count:
            return found
        if is_free(port):
            found.append(port)
    raise StartError(
        f"No {count} free ports between {ports[0]} and {ports[-1]} on 127.0.0.1: end some of what listens there."
    )


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the broker itself binds: connections of the last run that linger in TIME_WAIT do not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _ephemeral_start() -> int:
    try:
        return int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
