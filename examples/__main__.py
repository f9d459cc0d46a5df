"""`python -m examples [NAME …]`: each service end to end, with faults; each ends with an account by identity."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path

import click

from examples.stage.process import NotInTime
from examples.stage.stage import opened
from keepfast import StartError

NAMES = sorted(path.parent.name for path in Path(__file__).parent.glob("*/story.py"))


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(NAMES), metavar="[NAME]...")
@click.option("--short", is_flag=True, help="Few records and one or two faults each, as `make test` does it.")
def main(names: Sequence[str], *, short: bool) -> None:
    """Run examples against a Kafka and a PostgreSQL that are started for them. Without a name: all of them."""
    wrong: list[str] = []
    began = time.monotonic()
    with ExitStack() as left:
        try:
            stage = left.enter_context(opened())
        except StartError as error:
            raise click.ClickException(str(error)) from error
        for name in names or NAMES:
            at = time.monotonic()
            try:
                account = import_module(f"examples.{name}.story").story(stage, short=short)
            except NotInTime as error:
                click.echo(f"{name}: {error}", err=True)
                wrong.append(name)
                continue
            finally:
                stage.clear()
            for line in account.lines():
                click.echo(line)
            click.echo(f"  took       {time.monotonic() - at:.0f} s\n")
            if not account.is_right:
                wrong.append(name)
    count = len(names or NAMES)
    took = f"{count} example{'s' * (count != 1)} in {time.monotonic() - began:.0f} s"
    click.echo(f"{took}; wrong: {', '.join(wrong) or 'none'}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
