"""What one measured process hands back, and how the clock around it is read."""

from __future__ import annotations

import json
import resource
import time
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of one contender: from the first record handled to the last one handled and committed."""

    records: int
    seconds: float
    cpu_s: float
    peak_mb: float
    order_violations: int = 0
    notes: dict[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.records / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.records * 1e6

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Stopwatch:
    """Starts at the first record; `stop` after the last commit."""

    def __init__(self) -> None:
        self._begun: tuple[float, float] | None = None

    @property
    def running(self) -> bool:
        return self._begun is not None

    def start(self) -> None:
        self._begun = time.perf_counter(), time.process_time()

    def stop(self, records: int, *, order_violations: int = 0, notes: dict[str, float] | None = None) -> Measured:
        if self._begun is None:
            raise RuntimeError("nothing was handled")
        wall, cpu = self._begun
        return Measured(
            records=records,
            seconds=time.perf_counter() - wall,
            cpu_s=time.process_time() - cpu,
            peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            order_violations=order_violations,
            notes=notes or {},
        )


class OrderCheck:
    """Counts records that ran before an earlier one of their key. Records are `{"key": …, "n": …}` with n ascending
    per key.
    """

    def __init__(self) -> None:
        self._last: dict[bytes, int] = {}
        self.violations = 0

    def saw(self, key: bytes, number: int) -> None:
        if number < self._last.get(key, -1):
            self.violations += 1
        self._last[key] = number
