"""`python -m simulation`: play many seeds of the simulated world and say what broke.

Ends with code 1 if a promise was broken, else 0.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from multiprocessing import get_context
from random import randrange

import click

from simulation.plants import PLANTS, plant_for_good, planted
from simulation.report import Report, account
from simulation.scenario import Outcome, run_seed

CHUNK = 10
FRESH = 10**9
"""Fresh seeds are drawn below this."""


def fresh_seed() -> int:
    """The first of some seeds that hardly anyone has played."""
    return randrange(FRESH)


@click.command()
@click.option("--seeds", type=click.IntRange(1), default=100, show_default=True, help="How many seeds to play.")
@click.option("--first", type=click.IntRange(0), default=fresh_seed, help="The first of them; by default a fresh one.")
@click.option("--jobs", type=click.IntRange(1, 2), default=1, show_default=True, help="Processes to play them in.")
@click.option("--verbose", is_flag=True, help="A line for every seed.")
@click.option("--json", "as_json", is_flag=True, help="The summary as JSON.")
@click.option("--plant", metavar="NAME", help="Break the engine first, as the tests do.")
def simulate(*, seeds: int, first: int, jobs: int, verbose: bool, as_json: bool, plant: str | None) -> None:
    """Play seeds of the simulated world: the real engine under faults, watched by the oracle."""
    if plant is not None and plant not in PLANTS:
        raise click.UsageError(f"there is no plant {plant!r}; there are: {', '.join(PLANTS)}")
    report = Report(first)
    begun = time.monotonic()
    for outcome in _play(range(first, first + seeds), jobs, plant):
        report.add(outcome)
        if verbose:
            verdict = outcome.violation.rule if outcome.violation else "ok"
            click.echo(f"seed {outcome.seed}: {verdict}, {outcome.events} events, {outcome.steps} steps", err=as_json)
        if outcome.violation is not None and not as_json:
            click.echo("\n".join(account(outcome)))
    took_s = time.monotonic() - begun
    click.echo(json.dumps(report.as_json(took_s), indent=2) if as_json else "\n".join(report.lines(took_s)))
    sys.exit(1 if report.violations else 0)


def _play(seeds: Iterable[int], jobs: int, plant: str | None) -> Iterator[Outcome]:
    if jobs == 1:
        with planted(plant) if plant is not None else nullcontext():
            yield from map(run_seed, seeds)
        return
    with get_context("spawn").Pool(jobs, initializer=plant_for_good, initargs=(plant,)) as pool:
        yield from pool.imap(run_seed, seeds, chunksize=CHUNK)


if __name__ == "__main__":
    simulate()
