"""`keepfast check`: an app against the rules of the consumer standard and its companions, for people and for CI."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from keepfast.cli.errors import said_plainly
from keepfast.cli.where import interrupted_quietly

if TYPE_CHECKING:
    from keepfast.audit import Clause, Finding, Result
    from keepfast.audit.clause import Status

DOCUMENTS: Final = ("standard", "loop", "pattern", "fraud", "spring")
MARKS: Final[dict[Status, tuple[str, str]]] = {
    "failed": ("FAILED", "red"),
    "overruled": ("overruled", "cyan"),
    "passed": ("passed", "green"),
    "kept": ("kept", "green"),
    "not applicable": ("n/a", "bright_black"),
}

HOW_TO_GO_ON: Final = """
A broken MUST fails the check, a broken SHOULD is a warning (--strict: both fail). --all shows every rule.
Where a rule is not for this app, write down why: docs/decisions/0001-why.md with a line `Overrules: standard:9.3.3`."""


@click.command(short_help="Check an app against the rules of the consumer standard.")
@click.argument("target", metavar="MODULE:APP", required=False)
@click.option(
    "--project",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where README and Dockerfile are.  [default: the folder around the code that has them]",
)
@click.option("--only", type=click.Choice(DOCUMENTS), multiple=True, help="The rules of this document. Repeatable.")
@click.option("--ignore", metavar="RULE", multiple=True, help="Leave this rule out. Repeatable.")
@click.option("--strict", is_flag=True, help="Broken SHOULD rules are failures, too.")
@click.option(
    "--all", "show_all", is_flag=True, help="Show every rule, not only those that are broken, and each by itself."
)
@click.option("--list", "list_rules", is_flag=True, help="Show the rules instead; needs no app.")
@click.option("--json", "as_json", is_flag=True, help="All rules as one JSON object, for programs.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def check(
    target: str | None,
    project: Path | None,
    only: tuple[str, ...],
    ignore: tuple[str, ...],
    *,
    strict: bool,
    show_all: bool,
    list_rules: bool,
    as_json: bool,
    debug: bool,
) -> None:
    """Check an app against every MUST and SHOULD of the consumer standard and of the documents beside it.

    Looks at the code's options, the settings that hold here, README, Dockerfile and tests; asks no broker. A rule is
    passed, failed (with what to do), kept by keepfast whatever the app says, overruled by a decision, or not
    applicable. A broken MUST fails the check; a broken SHOULD is a warning, unless --strict. Rules that are broken for
    the same reason are shown as one. What a KafkaConsumerRunner's own functions do is not applicable.

    A rule that is not for this app is overruled by writing down why: a record in docs/decisions (or docs/adr), such as
    0004-no-timeouts.md, with the line `Overrules: standard:9.3.3`.

    \b
    A rule is named by its document and its place in it, such as standard:5.1.4. The documents:
      standard  the consumer standard: errors, retries, letters, commits, groups, logs, tests
      loop      an article about the fetch loop that skips a failed record, and so loses it
      pattern   how a consumer is built, packaged, ended and watched
      fraud     the decision of a fraud service: dead letters, idempotence, no card numbers
      spring    a payment platform's strategy: groups, retry profiles, .DLT topics, lag

    \b
      keepfast check app:app
      keepfast check app:app --all
      keepfast check app:app --only standard --strict --json
      keepfast check consumer:runner
      keepfast check --list

    Exit codes: 0 no MUST rule is broken, 1 some are (with --strict SHOULD rules count, too), 2 the app cannot be loaded
    or its settings are wrong.
    """
    if list_rules == (target is not None):
        raise click.UsageError("Name an app, such as app:app, or ask for the rules with --list.")
    with said_plainly(debug=debug), interrupted_quietly():
        from keepfast.audit import CLAUSES, Subject, examine
        from keepfast.audit.report import exit_code

        clauses = [clause for clause in CLAUSES if not only or clause.document in only]
        if target is None:
            _list(clauses, as_json=as_json)
            return
        from keepfast.cli.loading import load_app_or_runner

        subject = Subject.of(load_app_or_runner(target, cwd=Path.cwd()), cwd=Path.cwd(), folder=project)
        results = examine(subject, ignore=ignore, clauses=clauses)
        code = exit_code(results, strict=strict)
        if as_json:
            _as_json(results, code)
        else:
            _show(results, show_all=show_all, strict=strict)
    sys.exit(code)


def _list(clauses: Sequence[Clause], *, as_json: bool) -> None:
    if as_json:
        told = [{"id": one.id, "level": one.level, "text": one.text} for one in clauses]
        click.echo(json.dumps(told, ensure_ascii=False, indent=2))
        return
    for one in clauses:
        click.echo(f"{one.id:<22} {one.level:<7} {one.text}")


def _as_json(results: Sequence[Result], code: int) -> None:
    from keepfast.audit.report import summary

    told = {"exit_code": code, "summary": summary(results), "rules": [_as_dict(one) for one in results]}
    click.echo(json.dumps(told, ensure_ascii=False, indent=2))


def _show(results: Sequence[Result], *, show_all: bool, strict: bool) -> None:
    from keepfast.audit.report import summary

    groups = [[one] for one in results] if show_all else alike([one for one in results if one.status == "failed"])
    for result, *others in groups:
        clause = result.clause
        warns = result.status == "failed" and clause.level == "should" and not strict
        word, colour = ("warning", "yellow") if warns else MARKS[result.status]
        click.echo(f"{click.style(f'{word:<10}', fg=colour)} {clause.id:<22} {clause.level:<7} {clause.text}")
        for line in _reasons(result):
            click.echo(f"{'':10} {line}")
        if others:
            click.echo(f"{'':10} Also asked for by {', '.join(one.clause.id for one in others)}.")
    if groups:
        click.echo("")
    click.echo(summary(results))
    if any(one.status == "failed" for one in results):
        click.echo(HOW_TO_GO_ON)


def alike(results: Sequence[Result]) -> list[list[Result]]:
    """Results that say the same, together, those of MUST rules first, within a group and among the groups."""
    groups: dict[tuple[str, ...], list[Result]] = {}
    for one in sorted(results, key=lambda one: one.clause.level != "must"):
        groups.setdefault(_reasons(one), []).append(one)
    return list(groups.values())


def _reasons(result: Result) -> tuple[str, ...]:
    """Why it is so, and what to do."""
    told = [one for one in result.findings if one.status == result.status]
    reasons = dict.fromkeys(_said(one, among=len(told)) for one in told)
    return (*reasons, *dict.fromkeys(f"→ {one.fix}" for one in told if one.fix))


def _said(finding: Finding, *, among: int) -> str:
    from keepfast.telemetry.clean import clean_text

    of = f"{finding.consumer}: " if finding.consumer and among > 1 else ""
    ours = finding.decision is not None and not finding.record
    decision = f" (decision {finding.decision:04})" if ours else ""
    return clean_text(f"{of}{finding.reason}{decision}", 2000)


def _as_dict(result: Result) -> dict[str, object]:
    from dataclasses import asdict

    clause = result.clause
    return {
        "id": clause.id,
        "level": clause.level,
        "text": clause.text,
        "status": result.status,
        "code": f"keepfast/{clause.evidence.code}",
        "findings": [asdict(one) for one in result.findings],
    }
