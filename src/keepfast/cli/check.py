"""`keepfast check`: checks an app against keepfast's own rules, or those of a profile."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from keepfast.cli.connection import exit_on_interrupt
from keepfast.cli.errors import report_errors

if TYPE_CHECKING:
    from keepfast.app import App
    from keepfast.audit import Finding, Profile, Result, SchemaFinding
    from keepfast.audit.rule import Status
    from keepfast.runner import KafkaConsumerRunner
    from keepfast.settings import Settings

MARKS: Final[dict[Status, tuple[str, str]]] = {
    "failed": ("FAILED", "red"),
    "overruled": ("overruled", "cyan"),
    "passed": ("passed", "green"),
    "guaranteed": ("guaranteed", "green"),
    "not checkable": ("unseen", "bright_black"),
    "not applicable": ("n/a", "bright_black"),
}

ID_WIDTH: Final = 30
RULES: Final = "`keepfast check --list` has every rule in words, --all what overrules some."
NEXT_STEPS: Final = """
A violated MUST fails the check, a violated SHOULD is a warning (--strict: both fail). --all shows every rule.
To overrule a rule for this app, record why: docs/decisions/0001-why.md with a line `Overrules: {}`."""


@click.command(short_help="Check an app: its rules, settings, README and image.")
@click.argument("target", metavar="MODULE:APP", required=False)
@click.option(
    "--project",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder of README and Dockerfile.  [default: the one around the code that has them]",
)
@click.option(
    "--profile",
    "profile_names",
    metavar="NAME",
    multiple=True,
    help="The rules of this profile instead of keepfast's own. Repeatable.",
)
@click.option("--ignore", metavar="RULE", multiple=True, help="Skip this rule. Repeatable.")
@click.option("--strict", is_flag=True, help="Count violated SHOULD rules as failures.")
@click.option("--all", "show_all", is_flag=True, help="Show every rule on its own, not only those that are violated.")
@click.option("--list", "list_rules", is_flag=True, help="List the rules; needs no app.")
@click.option("--json", "as_json", is_flag=True, help="Print all rules as one JSON object.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def check(
    target: str | None,
    project: Path | None,
    profile_names: tuple[str, ...],
    ignore: tuple[str, ...],
    *,
    strict: bool,
    show_all: bool,
    list_rules: bool,
    as_json: bool,
    debug: bool,
) -> None:
    """Check an app for what loses records, hides failures or makes an incident longer.

    It reads the options in code, the effective settings, README, Dockerfile and tests, and connects to no broker. Where
    topics have schemas, it asks the registry, and decodes examples of the latest versions as the handlers would.
    A rule is passed, failed (with a fix), overruled by a decision record, or not applicable. A violated MUST fails the
    check; a violated SHOULD is a warning, unless --strict is set. `by trial`: errors were classified as the app would.
    To overrule a rule for this app, record why in docs/decisions (or docs/adr), with a line such as
    `Overrules: keepfast:handler.timeout`.

    A profile is a document with rules of its own, found by the entry point keepfast.profiles of an installed package:
    standard, loop, pattern, fraud and spring come with neotool-common. Some of their rules are guaranteed by keepfast
    for every app, or not checkable because an app does not show them, such as a runbook.

    \b
      keepfast check app:app
      keepfast check app:app --all
      keepfast check app:app --profile standard --strict --json
      keepfast check consumer:runner
      keepfast check --list

    Exit codes: 0 fine, 1 a MUST rule (with --strict a SHOULD rule) is violated, or a schema does not fit, 2 not loaded.
    """
    if list_rules == (target is not None):
        raise click.UsageError("Name an app, such as app:app, or list the rules with --list.")
    with report_errors(debug=debug), exit_on_interrupt():
        from keepfast.audit import OWN, Subject, choose_profiles, examine, exit_code

        profiles = choose_profiles(profile_names, OWN)
        if target is None:
            _list(profiles, as_json=as_json)
            return
        from keepfast.cli.app_loader import load_app_or_runner

        audited = load_app_or_runner(target, cwd=Path.cwd())
        subject = Subject.of(audited, cwd=Path.cwd(), folder=project)
        results, schemas = examine(subject, profiles, ignore=ignore), _schemas(audited, subject.settings)
        code = exit_code(results, strict=strict) or int(any(one.status == "failed" for one in schemas))
        if as_json:
            _as_json(results, schemas, code)
        else:
            _show(results, schemas, show_all=show_all, strict=strict)
    sys.exit(code)


def _list(profiles: Sequence[Profile], *, as_json: bool) -> None:
    rules = [rule for profile in profiles for rule in profile.rules]
    if as_json:
        fields = [{"id": rule.id, "level": rule.level, "text": rule.text} for rule in rules]
        click.echo(json.dumps(fields, ensure_ascii=False, indent=2))
        return
    for rule in rules:
        click.echo(f"{rule.id:<{ID_WIDTH}} {rule.level:<7} {rule.text}")


def _schemas(audited: App | KafkaConsumerRunner, settings: Settings) -> list[SchemaFinding]:
    from keepfast.app import App

    if not isinstance(audited, App):
        return []
    from keepfast.audit import schema_findings

    return schema_findings(audited, settings)


def _show_schemas(schemas: Sequence[SchemaFinding]) -> None:
    for one in schemas:
        word, colour = MARKS[one.status] if one.status != "unknown" else ("unknown", "yellow")
        click.echo(f"{click.style(f'{word:<10}', fg=colour)} schema of {one.topic} for {one.consumer}: {one.reason}")


def _as_json(results: Sequence[Result], schemas: Sequence[SchemaFinding], code: int) -> None:
    from dataclasses import asdict

    from keepfast.audit.report import summary

    fields = {
        "exit_code": code,
        "summary": summary(results),
        "rules": [_as_dict(one) for one in results],
        "schemas": [asdict(one) for one in schemas],
    }
    click.echo(json.dumps(fields, ensure_ascii=False, indent=2))


def _show(results: Sequence[Result], schemas: Sequence[SchemaFinding], *, show_all: bool, strict: bool) -> None:
    from keepfast.audit.report import summary

    groups = [[one] for one in results] if show_all else by_reason([one for one in results if one.status == "failed"])
    for result, *others in groups:
        rule = result.rule
        word, colour = ("warning", "yellow") if _warns(result, strict=strict) else MARKS[result.status]
        click.echo(f"{click.style(f'{word:<10}', fg=colour)} {rule.id:<{ID_WIDTH}} {rule.level:<7} {rule.text}")
        for line in _reasons(result):
            click.echo(f"{'':10} {line}")
        if others:
            click.echo(f"{'':10} Also required by {', '.join(one.rule.id for one in others)}.")
    if groups:
        click.echo("")
    click.echo(f"{_listed(groups, strict=strict)}{summary(results)}")
    click.echo(RULES)
    if any(one.status == "failed" for one in results):
        click.echo(NEXT_STEPS.format(next(one.rule.id for one in results if one.status == "failed")))
    _show_schemas(schemas)


def _warns(result: Result, *, strict: bool) -> bool:
    return result.status == "failed" and result.rule.level == "should" and not strict


def _listed(groups: Sequence[Sequence[Result]], *, strict: bool) -> str:
    """How many failures and warnings are listed, where they stand for more rules."""
    if all(len(group) == 1 for group in groups):
        return ""
    warnings = sum(_warns(first, strict=strict) for first, *_ in groups)
    counts = {"failure": len(groups) - warnings, "warning": warnings}
    shown = " and ".join(f"{count} {word}{'s' * (count != 1)}" for word, count in counts.items() if count)
    return f'{shown}. Counted by rules, with those of "Also required by": '


def by_reason(results: Sequence[Result]) -> list[list[Result]]:
    """Results with the same reasons, grouped; MUST rules come first, within a group and among the groups."""
    groups: dict[tuple[str, ...], list[Result]] = {}
    for one in sorted(results, key=lambda one: one.rule.level != "must"):
        groups.setdefault(_reasons(one), []).append(one)
    return list(groups.values())


def _reasons(result: Result) -> tuple[str, ...]:
    """The reasons for the status, then the fixes, without duplicates."""
    findings = [one for one in result.findings if one.status == result.status]
    reasons = dict.fromkeys(_reason(one, among=len(findings)) for one in findings)
    return (*reasons, *dict.fromkeys(f"→ {one.fix}" for one in findings if one.fix))


def _reason(finding: Finding, *, among: int) -> str:
    from keepfast.telemetry.clean import clean_text

    of = f"{finding.consumer}: " if finding.consumer and among > 1 else ""
    ours = finding.decision is not None and not finding.record
    decision = f" (decision {finding.decision:04})" if ours else ""
    return clean_text(f"{of}{finding.reason}{decision}", 2000)


def _as_dict(result: Result) -> dict[str, object]:
    from dataclasses import asdict

    rule = result.rule
    return {
        "id": rule.id,
        "level": rule.level,
        "text": rule.text,
        "status": result.status,
        "findings": [asdict(one) for one in result.findings],
    }
