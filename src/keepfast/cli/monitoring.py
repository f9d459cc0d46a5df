"""`keepfast monitoring`: writes Prometheus alerting rules and a Grafana dashboard for an app."""

from __future__ import annotations

from pathlib import Path

import click

from keepfast.cli.errors import report_errors


@click.command(short_help="Write alerts for Prometheus and a dashboard for Grafana.")
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("monitoring"),
    show_default=True,
    help="The folder to write into.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be written; write nothing.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def monitoring(target: str, folder: Path, *, dry_run: bool, debug: bool) -> None:
    """Write Prometheus alerts and a Grafana dashboard for the topics, groups and thresholds of this app.

    Existing files of the same names are replaced. Thresholds are settings of the app or of one consumer; each alert
    links to the runbook:

    \b
      [alerts]
      runbook_url = "https://wiki.example/runbook"
      [consumers.charge.alerts]
      kind = "financial"      # or notification, other: sets the lag thresholds
      error_share = 0.02

    \b
    Examples:
      keepfast monitoring app:app -o monitoring
      promtool check rules monitoring/*.rules.yml
    """
    with report_errors(debug=debug):
        from keepfast.cli.app_loader import load_app_or_runner
        from keepfast.monitoring import monitoring_files, write_files

        settings = load_app_or_runner(target, cwd=Path.cwd()).settings()
        files = monitoring_files(settings, target=target)
        if not dry_run:
            write_files(files, folder)
    for name in files:
        click.echo(folder / name)
    if dry_run:
        click.echo(f"{len(files)} files; nothing was written.", err=True)
    elif any("://" not in consumer.alerts.runbook_url for consumer in settings.consumers.values()):
        click.echo("The links to the runbook are relative; set its address with [alerts] runbook_url.", err=True)
