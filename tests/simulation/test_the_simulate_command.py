"""`python -m simulation`: what it prints, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from simulation.__main__ import simulate
from tests.simulation.test_the_engine_keeps_its_promises_in_simulation import LATER


def test_it_prints_faults_seeds_events_steps_and_violations_and_ends_with_0() -> None:
    result = CliRunner().invoke(simulate, ["--seeds", "3", "--first", "0", "--verbose"])
    assert result.exit_code == 0, result.output
    for word in ("rebalance", "seeds 3", "from 0 on", "at least", "steps per second", "violations 0", "seed 2: ok"):
        assert word in result.output


def test_seeds_are_fresh_unless_the_first_is_named_and_it_says_which() -> None:
    firsts = [json.loads(CliRunner().invoke(simulate, ["--seeds", "1", "--json"]).output)["first"] for _ in range(2)]
    assert firsts[0] != firsts[1]
    assert max(firsts) > max(LATER), "none of the usual ones"


def test_it_prints_json_for_programs() -> None:
    result = CliRunner().invoke(simulate, ["--seeds", "2", "--first", "7", "--json"])
    summary = json.loads(result.output)
    assert (summary["seeds"], summary["violations"]) == (2, [])
    assert summary["least_events"] >= 500


def test_a_violation_is_reported_with_its_seed_and_its_trace_and_ends_with_1() -> None:
    plant = "p01_commits_the_highest_offset_seen"
    result = CliRunner().invoke(simulate, ["--seeds", "1", "--first", "0", "--plant", plant])
    assert result.exit_code == 1
    assert "seed 0: event broken at" in result.output  # it commits what it has not reported as finished
    assert "CommitSent" in result.output
    assert "violations 1" in result.output


@pytest.mark.parametrize(("plant", "violations"), [((), 0), (("--plant", "p01_commits_the_highest_offset_seen"), 1)])
def test_two_processes_play_it_too_with_the_same_plant(plant: tuple[str, ...], violations: int) -> None:
    program = [sys.executable, "-m", "simulation", "--seeds", "1", "--first", "0", "--jobs", "2", "--json", *plant]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == violations, done.stderr
    assert len(json.loads(done.stdout)["violations"]) == violations


def test_an_unknown_plant_is_a_clear_error() -> None:
    result = CliRunner().invoke(simulate, ["--seeds", "1", "--plant", "no_such_plant"])
    assert result.exit_code == 2
    assert "there is no plant 'no_such_plant'" in result.output
