"""`keepfast doctor`: everything that an app needs, looked at before it starts, with what to do where it is wrong."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from keepfast.cli.errors import LoadError, said_plainly
from keepfast.cli.where import brokers_option, connection_for, interrupted_quietly

if TYPE_CHECKING:
    from keepfast.cli.doctor_findings import DoctorFinding, Status
    from keepfast.cli.doctor_topics import Told, TopicSeen
    from keepfast.kafka.admin import KafkaAdmin
    from keepfast.kafka.config import Connection
    from keepfast.kafka.probe import ClusterFacts, KafkaProbe
    from keepfast.settings import Settings

MAX_QUESTIONS: Final = 4
MARKS: Final[dict[Status, tuple[str, str]]] = {
    "ok": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "problem": ("PROBLEM", "red"),
    "unknown": ("unknown", "cyan"),
}


@click.command(short_help="Check the environment, the brokers, the topics and the rights of an app.")
@click.argument("target", metavar="[MODULE:APP]", required=False)
@click.option("--app", "named", hidden=True, help="As other commands have it.")
@brokers_option
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=5.0,
    show_default=True,
    help="Seconds that one question may take.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def doctor(
    target: str | None, named: str | None, brokers: str | None, *, timeout_s: float, as_json: bool, debug: bool
) -> None:
    """Look at everything that an app needs, and say what to do where something is wrong. Nothing is changed.

    Without an app: the environment and the way to the brokers. With one: its settings, its topics, what this login may
    do with them and with the groups, the dead-letter topics, and the clocks, too.

    \b
      keepfast doctor
      keepfast doctor --brokers kafka-1:9092,kafka-2:9092
      keepfast doctor app:app
      keepfast doctor app:app --json

    Exit codes: 0 nothing or only warnings, 2 a problem with the environment or the settings, 3 with the brokers, a
    topic or a right.
    """
    with said_plainly(debug=debug), interrupted_quietly():
        from keepfast.cli.doctor_findings import exit_code, summary

        found: list[DoctorFinding] = []
        for finding in _examine(target or named, brokers, timeout_s):
            if not as_json:
                _say(finding, first=not found or found[-1].section != finding.section)
            found.append(finding)
        code = exit_code(found)
        if as_json:
            told = {"exit_code": code, "summary": summary(found), "findings": [asdict(one) for one in found]}
            click.echo(json.dumps(told, ensure_ascii=False, indent=2))
        else:
            click.echo(f"\n{summary(found)}")
    sys.exit(code)


def _say(finding: DoctorFinding, *, first: bool) -> None:
    from keepfast.telemetry.clean import clean_text

    if first:
        click.secho(f"{finding.section.capitalize()}", bold=True)
    word, colour = MARKS[finding.status]
    click.echo(f"  {click.style(f'{word:<8}', fg=colour)} {clean_text(finding.text, 2000)}")
    if finding.fix:
        click.echo(f"           → {clean_text(finding.fix, 2000)}")


def _examine(target: str | None, brokers: str | None, timeout_s: float) -> Iterator[DoctorFinding]:
    from keepfast.cli import doctor_broker, doctor_environment
    from keepfast.cli.doctor_findings import DoctorFinding

    yield from doctor_environment.environment()
    problems, opened = _opened(target, brokers)
    yield from (DoctorFinding("settings", "problem", problem) for problem in problems)
    if opened is None:
        yield DoctorFinding(
            "broker", "unknown", "Not looked at: which brokers is a matter of settings. --brokers names some."
        )
        return
    connection, settings = opened
    if not problems:
        yield from doctor_environment.settings_findings(settings)
    reached = doctor_broker.addresses(connection, timeout_s)
    yield from reached
    if not any(one.status == "ok" for one in reached):
        return
    yield from _cluster(connection, settings, timeout_s)


def _opened(target: str | None, brokers: str | None) -> tuple[list[str], tuple[Connection, Settings] | None]:
    """The settings of the app; if they are wrong, their problems and what can be had without them."""
    from keepfast.core.errors import ConfigError

    problems: list[str] = []
    for one in (target, None) if target is not None else (None,):
        try:
            return problems, connection_for(one, brokers)
        except (ConfigError, LoadError) as error:
            problems = problems or (list(error.problems) if isinstance(error, ConfigError) else [str(error)])
    return problems, None


def _cluster(connection: Connection, settings: Settings, timeout_s: float) -> Iterator[DoctorFinding]:
    from keepfast.cli import doctor_broker, doctor_topics
    from keepfast.cli.doctor_findings import DoctorFinding
    from keepfast.core.errors import SourceError
    from keepfast.kafka.config import admin_properties
    from keepfast.kafka.probe import KafkaProbe

    probe = KafkaProbe(admin_properties(connection))
    try:
        facts = probe.cluster(timeout_s)
    except SourceError as error:
        yield DoctorFinding("broker", "problem", str(error), "Try again; if it stays, look at the broker's log.")
        return
    yield from doctor_broker.cluster_finding(facts)
    yield from doctor_broker.advertised(facts, connection.brokers, timeout_s)
    if not settings.consumers:
        return
    seen = _look(probe, facts, connection, settings, timeout_s)
    now_ms = int(time.time() * 1000)
    found = [one for own in settings.consumers.values() for one in doctor_topics.findings(own, seen, now_ms)]
    order = ("topics", "rights", "dead letters", "clock")
    yield from sorted(dict.fromkeys(found), key=lambda one: order.index(one.section))


def _look(
    probe: KafkaProbe, facts: ClusterFacts, connection: Connection, settings: Settings, timeout_s: float
) -> TopicSeen:
    from keepfast.cli.doctor_topics import TopicSeen
    from keepfast.core.errors import SourceError
    from keepfast.kafka.admin import KafkaAdmin
    from keepfast.kafka.config import admin_properties
    from keepfast.kafka.probe import GroupFacts, RetainedRecords, TopicProbe
    from keepfast.wiring.clients import topics_of

    names = sorted(topics_of(settings))
    admin = KafkaAdmin(admin_properties(connection))
    topics = probe.topics(names, timeout_s) if facts.led else _listed(admin, names, timeout_s)
    groups: dict[str, GroupFacts | SourceError] = {}
    held: dict[str, RetainedRecords] = {}
    configs: dict[str, dict[str, str]] = {}
    deadline = time.monotonic() + MAX_QUESTIONS * timeout_s  # each may take its time, but not all of them
    for own in settings.consumers.values() if facts.led else ():
        if time.monotonic() >= deadline:
            break
        try:
            groups[own.group] = probe.group(own.group, timeout_s)
        except SourceError as error:
            groups[own.group] = error
    for name, told in topics.items():
        if isinstance(told, TopicProbe) and time.monotonic() < deadline:
            try:
                configs[name] = admin.topic_config(name, timeout_s)
                held[name] = probe.held(name, told.partitions, timeout_s)
            except SourceError:
                continue  # a right that is missing is told by the rights
    return TopicSeen(
        topics=topics,
        configs=configs,
        groups=groups,
        held=held,
        cluster=facts.operations,
        brokers=len(facts.brokers),
        user=connection.sasl_username or "…",
    )


def _listed(admin: KafkaAdmin, names: list[str], timeout_s: float) -> dict[str, Told]:
    """What the embedded broker can tell."""
    from keepfast.core.errors import Fault, SourceError
    from keepfast.kafka.probe import TopicProbe

    missing = SourceError("There is no such topic.", fault=Fault.MISSING)
    return {
        name: missing if told is None else TopicProbe(name, told.partitions, 1, None)
        for name, told in admin.topics(names, timeout_s).items()
    }
