"""Plants in what is done about a partition that the client does not fetch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keepfast.core.runs import Partition
from keepfast.engine.fetch_watch import FetchWatch
from simulation.plants.plant import Patch, plant


@plant
def does_not_notice_a_partition_that_is_not_fetched(patch: Patch) -> None:
    patch.set(FetchWatch, "step", lambda *_: None)


@plant
def fetches_again_and_never_replaces_the_client(patch: Patch) -> None:
    def act(self: FetchWatch, *arguments: Any) -> None:
        self._renew_at = float("inf")
        original(self, *arguments)

    original = patch.set(FetchWatch, "_act", act)


@plant
def takes_a_partition_whose_records_are_all_received_for_one_that_is_not_fetched(patch: Patch) -> None:
    def act(self: FetchWatch, still: Sequence[Partition], now: float) -> None:
        for partition in still:
            watched = self._watched[partition.place]
            watched.missing_s = now - watched.since if watched.end is not None else 0.0
        original(self, still, now)

    original = patch.set(FetchWatch, "_act", act)
