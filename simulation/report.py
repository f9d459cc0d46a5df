"""Results of many seeds, as a table or as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from simulation.scenario import Outcome


class Report:
    """Adds up outcomes."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.seeds = 0
        self.events = 0
        self.least_events = 0
        self.steps = 0
        self.records = 0
        self.simulated_s = 0.0
        self.faults: Counter[str] = Counter()
        self.violations: list[Outcome] = []

    def add(self, outcome: Outcome) -> None:
        self.least_events = outcome.events if self.seeds == 0 else min(self.least_events, outcome.events)
        self.seeds += 1
        self.events += outcome.events
        self.steps += outcome.steps
        self.records += outcome.records
        self.simulated_s += outcome.simulated_s
        self.faults.update(outcome.faults)
        if outcome.violation is not None:
            self.violations.append(outcome)

    def lines(self, took_s: float) -> Iterator[str]:
        """The summary."""
        yield f"{'fault or disturbance':<48}times"
        for kind, count in sorted(self.faults.items()):
            yield f"  {kind:<44} {count:>6}"
        mean = self.events / max(1, self.seeds)
        hours = self.simulated_s / 3600
        yield f"seeds {self.seeds} from {self.first} on, records {self.records}, simulated time {hours:.1f} h"
        yield f"events {self.events}; a seed has {self.least_events} at least, {mean:.0f} on average"
        yield f"steps {self.steps} in {took_s:.1f} s: {self.steps / max(took_s, 1e-9):.0f} steps per second"
        yield f"violations {len(self.violations)}"

    def as_json(self, took_s: float) -> dict[str, Any]:
        return {
            "first": self.first,
            "seeds": self.seeds,
            "records": self.records,
            "simulated_s": round(self.simulated_s, 1),
            "events": self.events,
            "least_events": self.least_events,
            "steps": self.steps,
            "took_s": round(took_s, 2),
            "faults": dict(sorted(self.faults.items())),
            "violations": [
                {"seed": o.seed, "rule": o.violation.rule, "at": round(o.violation.at, 4), "what": o.violation.what}
                for o in self.violations
                if o.violation is not None
            ],
        }


def account(outcome: Outcome) -> Iterator[str]:
    """A violation with what led to it."""
    violation = outcome.violation
    if violation is None:
        return
    yield f"seed {outcome.seed}: {violation.rule} broken at {violation.at:.4f}: {violation.what}"
    yield f"  {outcome.setup}"
    for line in outcome.excerpt:
        yield f"  {line}"
    yield f"  see it again: python -m simulation --first {outcome.seed} --seeds 1"
