"""`keepfast schema`: shows schemas of the registry, and compares versions of a subject, or a file with them."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from keepfast.cli.connection import exit_on_interrupt, settings_for
from keepfast.cli.errors import report_errors
from keepfast.core.errors import ConfigError, Fault, RegistryError, StartError
from keepfast.core.schemas import text_of

if TYPE_CHECKING:
    from keepfast.kafka.registry import Registered, Registry

EXIT_INCOMPATIBLE = 1


@click.group()
def schema() -> None:
    """Show schemas of the registry, and compare them.

    \b
    Examples:
      keepfast schema show billing.invoice.v1
      keepfast schema show --id 7
      keepfast schema diff billing.invoice.v1
      keepfast schema diff billing.invoice.v1 --file invoice.avsc

    The registry comes from --registry, KEEPFAST_REGISTRY_URL (SCHEMA_REGISTRY_URL) or --app, its credentials from
    KEEPFAST_REGISTRY_USERNAME and KEEPFAST_REGISTRY_PASSWORD or --app. A subject is named by itself, or by its topic:
    `billing.invoice.v1` is `billing.invoice.v1-value`.
    """


def _options(command: Any) -> Any:
    for option in (
        click.option("--debug", is_flag=True, help="Show tracebacks."),
        click.option("--registry", "url", metavar="URL", help="Overrides the registry of the environment and the app."),
        click.option("--app", "target", metavar="MODULE:APP", help="Read the settings of the registry from this app."),
    ):
        command = option(command)
    return command


@schema.command(short_help="Show a version of a subject, or the schema with an id.")
@click.argument("subject", metavar="SUBJECT|TOPIC", required=False)
@click.option("--version", type=click.IntRange(1), help="The version.  [default: the latest]")
@click.option("--id", "schema_id", type=click.IntRange(0), help="The id that records have, instead of a subject.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@_options
def show(
    subject: str | None,
    version: int | None,
    schema_id: int | None,
    target: str | None,
    url: str | None,
    *,
    as_json: bool,
    debug: bool,
) -> None:
    """Show the latest version of a subject, another one with --version, or the schema with an --id.

    Exit codes: 0 shown, 2 usage or settings, 3 the registry does not answer, or has no such schema.
    """
    if (subject is None) == (schema_id is None):
        raise click.UsageError("Name a subject, such as billing.invoice.v1, or an --id.")
    with report_errors(debug=debug), exit_on_interrupt(), _registry(target, url) as registry:
        if schema_id is not None:
            found = registry.by_id(schema_id)
        else:
            found = _version(registry, subject or "", version or "latest")
        if as_json:
            click.echo(json.dumps(_fields(found), indent=2))
            return
        click.echo(f"{click.style(str(found.ref), bold=True)}")
        for name, of, number in found.references:
            click.echo(f"refers to {name} ({of} version {number})")
        click.echo(pretty(found.text))


@schema.command(short_help="Compare two versions of a subject, or a file with the latest.")
@click.argument("subject", metavar="SUBJECT|TOPIC")
@click.argument("before", type=click.IntRange(1), required=False)
@click.argument("after", type=click.IntRange(1), required=False)
@click.option("--file", "file", type=click.Path(path_type=Path), help="Compare the latest version with this file.")
@_options
def diff(
    subject: str,
    before: int | None,
    after: int | None,
    *,
    file: Path | None,
    target: str | None,
    url: str | None,
    debug: bool,
) -> None:
    """Compare two versions of a subject: the last two, BEFORE and the latest, or BEFORE and AFTER.

    With --file, compare the latest version with a file, and ask the registry whether it would take it as the next one.

    Exit codes: 0 shown, 1 the registry would not take the file, 2 usage or settings, 3 the registry does not answer, or
    has no such version.
    """
    with report_errors(debug=debug), exit_on_interrupt(), _registry(target, url) as registry:
        if file is not None:
            sys.exit(_with_file(registry, subject, file))
        newest = _version(registry, subject, after or "latest")
        number = newest.ref.version or 1
        if before is None and number == 1:
            click.echo(f"{newest.ref} is the only version.")
            return
        oldest = _version(registry, subject, before or number - 1)
        _show_diff(oldest.text, newest.text, str(oldest.ref), str(newest.ref))


def _with_file(registry: Registry, subject: str, file: Path) -> int:
    text = text_of(file) or ""
    known = _version(registry, subject, "latest")
    _show_diff(known.text, text, str(known.ref), str(file))
    level = registry.compatibility(known.ref.subject)
    if registry.is_compatible(known.ref.subject, text, known.ref.format):
        click.echo(f"The registry would take it as the next version ({level}).")
        return 0
    click.echo(f"The registry would not take it as the next version: it breaks {level}.", err=True)
    return EXIT_INCOMPATIBLE


def _show_diff(before: str, after: str, old: str, new: str) -> None:
    lines = list(difflib.unified_diff(pretty(before).splitlines(), pretty(after).splitlines(), old, new, lineterm=""))
    colours = {"+": "green", "-": "red", "@": "cyan"}
    for line in lines:
        click.echo(click.style(line, fg=colours.get(line[:1])))
    if not lines:
        click.echo(f"{new} is the same as {old}.")


@contextmanager
def _registry(target: str | None, url: str | None) -> Iterator[Registry]:
    """Raises StartError for what the registry does not answer or does not have."""
    from dataclasses import replace

    from keepfast.app.schemas import source_of

    settings = settings_for(target).registry
    if url is not None:
        settings = replace(settings, url=url)
    if settings.url is None:
        raise ConfigError("No registry is named; use --registry, KEEPFAST_REGISTRY_URL or --app.")
    source = source_of(settings)
    try:
        yield source.registry
    except RegistryError as error:
        raise StartError(str(error)) from error
    finally:
        source.close()


def _version(registry: Registry, subject: str, version: Any) -> Registered:
    """A subject of this name, or that of a topic of this name."""
    try:
        return registry.version(subject, version)
    except RegistryError as error:
        if error.fault is not Fault.MISSING or subject.endswith("-value"):
            raise
    return registry.version(f"{subject}-value", version)


def _fields(found: Registered) -> dict[str, Any]:
    ref = found.ref
    return {
        "format": ref.format,
        "subject": ref.subject,
        "version": ref.version,
        "id": ref.id,
        "references": [{"name": name, "subject": of, "version": number} for name, of, number in found.references],
        "schema": found.text,
    }


def pretty(text: str) -> str:
    """JSON over several lines; other text as it is."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text
