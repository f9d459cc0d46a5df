"""The numbers of a simulated world."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSettings:
    """Timings and sizes; pairs are the bounds of a uniform choice."""

    latency_s: tuple[float, float] = (0.0003, 0.004)
    fetch_delay_s: tuple[float, float] = (0.0005, 0.05)
    edges_delay_s: tuple[float, float] = (0.001, 0.5)
    fetch_records: int = 25
    prefetch_records: int = 60
    session_s: float = 6.0
    heartbeat_s: float = 1.0
    max_poll_interval_s: float = 20.0
    request_timeout_s: float = 15.0
    ack_delay_s: tuple[float, float] = (0.001, 0.05)
    output_delay_s: tuple[float, float] = (0.05, 0.8)
    """Latency of records sent by handlers: long enough to be in flight when the record ends."""
    max_message_bytes: int = 1_000_000
