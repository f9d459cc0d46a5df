"""`keepfast explain`: how an exception is classified, which rule says so, and what happens to its record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from keepfast.classify.classification import NotFound, Unknown
from keepfast.cli import explained
from keepfast.cli.errors import said_plainly
from keepfast.cli.explained import ExplainView


@click.command(short_help="Say how an exception is classified, and by which rule.")
@click.argument("exception", required=False)
@click.option("--app", "target", metavar="MODULE:APP", help="By the rules and settings of this app, too.")
@click.option("--consumer", metavar="NAME", help="Of this consumer of the app alone.")
@click.option(
    "--unknown",
    type=click.Choice(["retry", "dead-letter"]),
    help="What becomes of errors that no rule knows.  [default: retry, or as the app says]",
)
@click.option(
    "--not-found",
    type=click.Choice(["final", "retry"]),
    help="What becomes of HTTP 404 and its like.  [default: final, or as the app says]",
)
@click.option("--list", "list_rules", is_flag=True, help="Show all rules instead.")
@click.option("--json", "as_json", is_flag=True, help="For programs; one object for each consumer.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def explain(
    exception: str | None,
    target: str | None,
    consumer: str | None,
    *,
    unknown: Unknown | None,
    not_found: NotFound | None,
    list_rules: bool,
    as_json: bool,
    debug: bool,
) -> None:
    """Say how an exception is classified, which rule decides, and what happens to its record.

    EXCEPTION is a class or what an error says about itself. A library that is not installed is known by name. With
    --app the answer is that of each consumer, with the rules and retries of its code, keepfast.toml and the
    environment.

    \b
      keepfast explain requests.exceptions.Timeout
      keepfast explain mylib.errors.Busy --app shop.main:app --consumer charge
      keepfast explain http:503
      keepfast explain sqlstate:40P01
      keepfast explain KafkaError:_TRANSPORT
      keepfast explain --list
    """
    if list_rules == (exception is not None):
        raise click.UsageError("Name an exception, such as http:503, or ask for all rules with --list.")
    if consumer is not None and target is None:
        raise click.UsageError("--consumer needs the app: --app MODULE:APP.")
    with said_plainly(debug=debug):
        for number, view in enumerate(_views(target, consumer)):
            view = replace(view, unknown=unknown or view.unknown, not_found=not_found or view.not_found)  # noqa: PLW2901
            if exception is None:
                explained.show_rules(view, as_json=as_json)
                continue
            one = explained.answer(exception, view)
            shown = explained.as_json(one, view) if as_json else explained.as_text(one, view)
            click.echo(shown if as_json or number == 0 else f"\n{shown}")


def _views(target: str | None, consumer: str | None) -> list[ExplainView]:
    if target is None:
        return [ExplainView()]
    from keepfast.cli.loading import load_app

    app = load_app(target, cwd=Path.cwd())
    chosen = app.chosen([consumer] if consumer is not None else ())
    settings = app.settings()
    return [explained.view_of(one.name, settings) for one in chosen]
