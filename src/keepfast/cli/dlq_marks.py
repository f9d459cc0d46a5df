"""`keepfast dlq discard`, `fail`, `restore`, `export`, `archive` and `purge`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import click

from keepfast.cli import dlq_view as view
from keepfast.cli.connection import connection_options, exit_on_interrupt, reach_options
from keepfast.cli.dlq_options import (
    filter_of,
    filter_options,
    open_desk,
    print_empty,
    refuse_unknown_causes,
    selection_of,
    topics_argument,
)
from keepfast.cli.errors import report_errors
from keepfast.cli.terminal import confirmed
from keepfast.desk import CaseFilter, CaseState, Desk, MarkKind, archives
from keepfast.desk.desk import PURGED
from keepfast.redact.urls import shown

EXIT_NOT_CONFIRMED = 1
CLOSED = (CaseState.DISCARDED, CaseState.PERMANENTLY_FAILED, CaseState.ARCHIVED)
why_option = click.option("--why", default="", help="The reason, for the audit.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Say how many, and change nothing.")
all_option = click.option("--all", "everything", is_flag=True, help="All of them.")


def _options(command: Any) -> Any:
    for option in (
        yes_option,
        dry_run_option,
        why_option,
        all_option,
        filter_options,
        connection_options,
        topics_argument,
    ):
        command = option(command)
    return command


@click.command(short_help="Mark cases as discarded.")
@_options
def discard(topics: tuple[str, ...], target: str | None, brokers: str | None, *, debug: bool, **options: Any) -> None:
    """Mark open cases as discarded: nothing is to be done about them. `restore` takes it back.

    \b
      keepfast dlq discard orders.payment.dlq --cause 77c0 --why "test data"
    """
    with report_errors(debug=debug), exit_on_interrupt(), open_desk(topics, target, brokers) as desk:
        _mark(desk, "discarded", "Discard", (CaseState.OPEN,), options)


@click.command(short_help="Mark cases as permanently failed.")
@_options
def fail(topics: tuple[str, ...], target: str | None, brokers: str | None, *, debug: bool, **options: Any) -> None:
    """Mark open cases as permanently failed, with who and why in the audit. Needs --why; `restore` takes it back.

    \b
      keepfast dlq fail orders.payment.dlq --offsets 3:17 --why "the account was closed, refunded by hand"
    """
    if not options["why"]:
        raise click.UsageError("Marking as permanently failed needs a reason: --why.")
    with report_errors(debug=debug), exit_on_interrupt(), open_desk(topics, target, brokers) as desk:
        _mark(desk, "permanently-failed", "Mark as permanently failed", (CaseState.OPEN,), options)


@click.command(short_help="Take discard, fail or archive back.")
@_options
@click.option("--archive", "url", metavar="URL", help="Bring back what is in this archive, also if it was purged.")
@click.option("--sha256", metavar="HASH", default="", help="Trust the archive if this is its hash; see below.")
def restore(
    topics: tuple[str, ...],
    target: str | None,
    brokers: str | None,
    *,
    debug: bool,
    url: str | None,
    sha256: str,
    **options: Any,
) -> None:
    """Open discarded, permanently failed and archived cases again.

    With --archive, letters of an archive that are not in the dead-letter topic any more are written to it again.
    Only letters of the named dead-letter topics are, and only of an archive whose hash is in the audit of these
    brokers; --sha256 names the hash that `archive` printed elsewhere.
    """
    with report_errors(debug=debug), exit_on_interrupt(), open_desk(topics, target, brokers) as desk:
        if url is None:
            _mark(desk, "restored", "Restore", CLOSED, options)
        else:
            _restore_archive(desk, url, sha256, options)


def _mark(desk: Desk, kind: MarkKind, verb: str, states: tuple[CaseState, ...], options: dict[str, Any]) -> None:
    where = _selected(options, states)
    refuse_unknown_causes(desk, where)
    cases = [case.id for case in desk.index.selected(desk.own(where))]
    if not cases:
        print_empty(desk)
    elif _agreed(verb, _cases(len(cases)), options):
        count = desk.mark(cases, kind, why=options["why"])
        click.echo(f"{verb}: {_cases(count)}.")
        topics = " ".join(desk.options.topics)
        click.echo(f"Who did what: keepfast dlq audit {topics}{reach_options()}", err=True)


def _selected(options: dict[str, Any], states: tuple[CaseState, ...]) -> CaseFilter:
    """Those of the options, in these states unless they name others."""
    where = selection_of(options, everything=options["everything"])
    return replace(where, states=where.states or frozenset(states))


def _agreed(verb: str, what: str, options: dict[str, Any]) -> bool:
    """Says what is changed; asks unless --yes. Exits if the answer is no."""
    if options["dry_run"]:
        click.echo(f"{verb}: {what}. Dry run: nothing was changed.")
        return False
    if not options["yes"] and not confirmed(f"{verb}: {what}?"):
        click.echo("Nothing was changed.", err=True)
        raise click.exceptions.Exit(EXIT_NOT_CONFIRMED)
    return True


def _cases(count: int) -> str:
    return f"{count:,} case{'s' * (count != 1)}"


@click.command(short_help="Write letters as JSON lines.")
@topics_argument
@connection_options
@filter_options
@click.option("--reveal", is_flag=True, help="With key, value and headers (base64). This is audited.")
@click.option(
    "--output", "-o", metavar="URL", default="-", help="A file or fsspec URL, `.gz` compresses; - is standard output."
)
def export(
    topics: tuple[str, ...],
    target: str | None,
    brokers: str | None,
    *,
    debug: bool,
    reveal: bool,
    output: str,
    **filters: Any,
) -> None:
    """Write letters as JSON lines, masked unless --reveal. Nothing is marked."""
    with report_errors(debug=debug), exit_on_interrupt(), open_desk(topics, target, brokers) as desk:
        where = desk.own(filter_of(filters))
        if reveal:
            desk.note_action("export", count=desk.cases(where, size=1).total, what=shown(output))
        with archives.opened_text(output) as out:
            for case in desk.index.selected(where):
                stored = desk.letter(case.letter)
                if stored is not None:
                    fields = {**view.letter_fields(stored, reveal=reveal), "state": str(case.state), "case": case.id}
                    out.write(json.dumps(fields) + "\n")


@click.command(short_help="Write letters to an archive and mark them.")
@_options
@click.option("--output", "-o", metavar="URL", required=True, help="A file or fsspec URL ending in .jsonl.gz.")
def archive(
    topics: tuple[str, ...], target: str | None, brokers: str | None, *, debug: bool, output: str, **options: Any
) -> None:
    """Write open cases, with their bytes, to a gzipped file of JSON lines, and mark them as archived.

    `purge` may then delete their letters; `restore --archive URL` brings them back.
    """
    with report_errors(debug=debug), exit_on_interrupt(), open_desk(topics, target, brokers) as desk:
        where = _selected(options, (CaseState.OPEN,))
        refuse_unknown_causes(desk, where)
        cases = list(desk.index.selected(desk.own(where)))
        if not cases:
            print_empty(desk)
        elif _agreed("Archive", _cases(len(cases)), options):
            count, digest = archives.archive(desk, cases, output, why=options["why"])
            click.echo(f"Archived {_cases(count)} to {shown(output)}, SHA-256 {digest}.")


def _restore_archive(desk: Desk, url: str, digest: str, options: dict[str, Any]) -> None:
    found = archives.LetterArchive(desk, url, digest)
    if _agreed("Restore", f"{_cases(found.cases)}, writing {found.gone:,} letters to their topic again", options):
        count = found.restore(why=options["why"])
        click.echo(f"Restored {_cases(count)} from {shown(url)}; {found.gone:,} letters were written again.")


@click.command(short_help="Delete letters of resolved cases for good.")
@topics_argument
@connection_options
@click.option("--discarded", is_flag=True, help="Also those of discarded and permanently failed cases.")
@why_option
@dry_run_option
@yes_option
def purge(
    topics: tuple[str, ...],
    target: str | None,
    brokers: str | None,
    *,
    debug: bool,
    discarded: bool,
    **options: Any,
) -> None:
    """Delete letters of resolved and archived cases: of each partition all before the first of another case.

    Dead-letter topics have no retention time, so they grow until this is done. Facts about cases without letters are
    deleted, too; the audit stays.
    """
    with report_errors(debug=debug), exit_on_interrupt(), open_desk(topics, target, brokers) as desk:
        states = (*PURGED, *(CLOSED if discarded else ()))
        count = sum(desk.purgeable_letters(name, states) for name in desk.options.topics)
        if not count:
            click.echo("Nothing can be purged.")
        elif _agreed("Delete for good", f"{count:,} letter{'s' * (count != 1)}", options):
            done = desk.purge(states, why=options["why"])
            click.echo(f"Deleted {sum(done.values()):,} letters.")
