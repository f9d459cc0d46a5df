"""Planted bugs: each breaks the engine in one place, the way others broke theirs. The oracle has to notice.

A plant is named after its number in the list of pitfalls (how Kafka consumers lose, repeat, reorder or stall). Those
without a number break a promise that the list does not think of, or are bugs that this engine had.
"""

from __future__ import annotations

# Importing the modules fills the table.
from simulation.plants import (
    batches,
    commits,
    crashes,
    events,
    fetching,
    guards,
    inboxes,
    letters,
    order,
    ownership,
    retry_topics,
    seeks,
    spools,
    timeouts,
    transactions,
    workers,
)
from simulation.plants.plant import PLANTS, plant_for_good, planted

__all__ = [
    "PLANTS",
    "batches",
    "commits",
    "crashes",
    "events",
    "fetching",
    "guards",
    "inboxes",
    "letters",
    "order",
    "ownership",
    "plant_for_good",
    "planted",
    "retry_topics",
    "seeks",
    "spools",
    "timeouts",
    "transactions",
    "workers",
]
