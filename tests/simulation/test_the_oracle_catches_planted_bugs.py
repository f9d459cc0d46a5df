"""The oracle is calibrated: every planted bug is caught, and the engine without it is clean on the same seeds."""

from __future__ import annotations

import pytest

from simulation.plants import PLANTS, planted
from simulation.plants.seen_at import SEEN_AT
from simulation.scenario import run_seed
from tests.simulation.test_the_engine_keeps_its_promises_in_simulation import LATER, SEEDS

WITHIN = 60
"""So many seeds are enough for nearly every plant; most need fewer than ten. The others need a rare seed."""


def test_there_are_plants_enough_and_the_seeds_are_those_on_which_the_engine_is_clean() -> None:
    assert len(PLANTS) >= 15
    assert {*SEEN_AT.values(), *range(WITHIN)} <= {*SEEDS, *LATER}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_caught(name: str) -> None:
    begin = SEEN_AT.get(name, 0)
    with planted(name):
        seeds = [begin] if begin >= WITHIN else [seed % WITHIN for seed in range(begin, begin + WITHIN)]
        violations = (run_seed(seed).violation for seed in seeds)
        caught = next((violation for violation in violations if violation is not None), None)
    assert caught is not None, f"{name} was not caught within {WITHIN} seeds"


def test_a_plant_leaves_nothing_behind() -> None:
    with planted("p01_commits_the_highest_offset_seen"):
        assert run_seed(0).violation is not None
    assert run_seed(0).violation is None
