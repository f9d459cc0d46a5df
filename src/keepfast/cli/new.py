"""`keepfast new`: a package for a consumer of one's own, ready to run, test and ship."""

from __future__ import annotations

from pathlib import Path

import click

from keepfast.cli.errors import said_plainly


@click.command(short_help="Make a package for a consumer of your own, with tests and an image.")
@click.argument("name")
@click.option("--topic", help="What it consumes.  [default: NAME.event.v1]")
@click.option("--into", type=click.Path(path_type=Path), help="The folder to make.  [default: NAME, here]")
@click.option("--dry-run", is_flag=True, help="Only say what would be written.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def new(name: str, topic: str | None, into: Path | None, *, dry_run: bool, debug: bool) -> None:
    """Make a package for a consumer of your own: code, tests, settings, a Dockerfile, a compose file and a README.

    Nothing that exists is overwritten.

    \b
      keepfast new payments --topic orders.payment.v1
      cd payments
      pytest
      keepfast dev payments.app:app
    """
    with said_plainly(debug=debug):
        from keepfast.scaffold import Names, planned

        project = planned(Names.of(name, topic))
        folder = into or Path(name)
        if not dry_run:
            project.write(folder)
    for path in project.files:
        click.echo(folder / path)
    if dry_run:
        click.echo(f"{len(project.files)} files; nothing was written.", err=True)
        return
    names = project.names
    click.echo(
        f"\nMade {folder} with {len(project.files)} files. Next:\n"
        f"  cd {folder}\n"
        "  python -m pip install -e '.[dev]'\n"
        "  python -m pytest\n"
        f"  keepfast dev {names.package}.app:app\n"
        "and in another terminal:\n"
        f'  keepfast send {names.topic} \'{{"id": "a1", "amount": 12}}\'',
        err=True,
    )
