"""`keepfast new`: creates a project for a consumer, ready to run, test and deploy."""

from __future__ import annotations

from pathlib import Path

import click

from keepfast.cli.errors import report_errors


@click.command(short_help="Create a project for a consumer, with tests and a Dockerfile.")
@click.argument("name")
@click.option("--topic", help="The topic that it consumes.  [default: NAME.event.v1]")
@click.option("--into", type=click.Path(path_type=Path), help="The folder to create.  [default: NAME]")
@click.option(
    "--wheel",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The keepfast wheel that it installs.  [default: a wheel of the keepfast that runs this command]",
)
@click.option("--dry-run", is_flag=True, help="Show what would be written; write nothing.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def new(name: str, topic: str | None, into: Path | None, wheel: Path | None, *, dry_run: bool, debug: bool) -> None:
    """Create a project for a consumer: code, tests, settings, a Dockerfile, a compose file and a README.

    Existing files are never overwritten. The project installs keepfast from a wheel in its own folder wheels/,
    checked by its hash, and never from a package index.

    \b
      keepfast new payments --topic orders.payment.v1
      cd payments
      python -m pip install -e '.[dev]'
      python -m pytest
      cp .env.example .env
      docker compose up --detach --wait postgres
      keepfast dev payments.app:app
    """
    with report_errors(debug=debug):
        from keepfast.scaffold import ProjectNames, render, wheel_at

        project = render(ProjectNames.of(name, topic), wheel_at(wheel) if wheel else None)
        folder = into or Path(name)
        if not dry_run:
            project.write(folder)
    for path in project.paths:
        click.echo(folder / path)
    if dry_run:
        click.echo(f"{len(project.paths)} files; nothing was written.", err=True)
        return
    names = project.names
    click.echo(
        f"\nCreated {folder} with {len(project.paths)} files. Next:\n"
        f"  cd {folder}\n"
        "  python -m pip install -e '.[dev]'\n"
        "  python -m pytest\n"
        "  cp .env.example .env\n"
        "  docker compose up --detach --wait postgres  # or a PostgreSQL of your own, named in .env\n"
        f"  keepfast dev {names.package}.app:app\n"
        "and in another terminal:\n"
        f'  keepfast send {names.topic} \'{{"id": "a1", "amount": 12}}\'',
        err=True,
    )
