"""`keepfast doctor`: checks everything that an app needs before it starts, and says how to fix what is wrong."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from keepfast.cli.connection import brokers_option, connection_for, exit_on_interrupt
from keepfast.cli.errors import LoadError, report_errors

if TYPE_CHECKING:
    from keepfast.cli.doctor_findings import DoctorFinding, Status
    from keepfast.cli.doctor_topics import ClusterView, TopicAnswer
    from keepfast.core.errors import SourceError
    from keepfast.kafka.admin import KafkaAdmin
    from keepfast.kafka.config import Connection
    from keepfast.kafka.probe import KafkaProbe, ProbedCluster
    from keepfast.settings import Settings

MAX_REQUESTS: Final = 4
MARKS: Final[dict[Status, tuple[str, str]]] = {
    "ok": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "problem": ("PROBLEM", "red"),
    "unknown": ("unknown", "cyan"),
}


@click.command(short_help="Check the environment, brokers, topics and permissions of an app.")
@click.argument("target", metavar="[MODULE:APP]", required=False)
@click.option("--app", "named", hidden=True, help="As for other commands.")
@brokers_option
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=5.0,
    show_default=True,
    help="Seconds that one request may take.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def doctor(
    target: str | None, named: str | None, brokers: str | None, *, timeout_s: float, as_json: bool, debug: bool
) -> None:
    """Check everything that an app needs, and say how to fix what is wrong. Changes nothing.

    Without an app: the environment and the connection to the brokers. With an app: also its settings, its topics, the
    permissions of this login for topics and groups, the dead-letter topics, and the clocks.

    \b
      keepfast doctor
      keepfast doctor --brokers kafka-1:9092,kafka-2:9092
      keepfast doctor app:app
      keepfast doctor app:app --json

    Exit codes: 0 no problem (warnings allowed), 2 a problem with the environment or the settings, 3 with a broker, a
    topic or a permission.
    """
    with report_errors(debug=debug), exit_on_interrupt():
        from keepfast.cli.doctor_findings import exit_code, summary

        found: list[DoctorFinding] = []
        for finding in _examine(target or named, brokers, timeout_s):
            if not as_json:
                _print(finding, first=not found or found[-1].section != finding.section)
            found.append(finding)
        code = exit_code(found)
        if as_json:
            fields = {"exit_code": code, "summary": summary(found), "findings": [asdict(one) for one in found]}
            click.echo(json.dumps(fields, ensure_ascii=False, indent=2))
        else:
            click.echo(f"\n{summary(found)}")
    sys.exit(code)


def _print(finding: DoctorFinding, *, first: bool) -> None:
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
    problems, loaded = _load_settings(target, brokers)
    yield from (DoctorFinding("settings", "problem", problem) for problem in problems)
    if loaded is None:
        yield DoctorFinding(
            "broker", "unknown", "Not checked, because the settings cannot be loaded. Name brokers with --brokers."
        )
        return
    connection, settings = loaded
    if not problems:
        yield from doctor_environment.settings_findings(settings)
    app = target if target is not None and not problems else "app:app"
    reached = doctor_broker.addresses(connection, timeout_s, target=app)
    yield from reached
    if not any(one.status == "ok" for one in reached):
        return
    yield from _cluster(connection, settings, timeout_s)


def _load_settings(target: str | None, brokers: str | None) -> tuple[list[str], tuple[Connection, Settings] | None]:
    """The app's settings; if they are invalid, their problems and the settings of the environment alone, if valid."""
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
    from keepfast.kafka.admin import KafkaAdmin
    from keepfast.kafka.config import admin_properties
    from keepfast.kafka.probe import KafkaProbe
    from keepfast.wiring.topic_discovery import with_matched_topics

    probe = KafkaProbe(admin_properties(connection))
    try:
        facts = probe.cluster(timeout_s)
    except SourceError as error:
        yield DoctorFinding("broker", "problem", str(error), "Try again; if it persists, check the broker's log.")
        return
    yield from doctor_broker.cluster_finding(facts)
    yield from doctor_broker.advertised(facts, connection.brokers, timeout_s)
    if not settings.consumers:
        return
    admin = KafkaAdmin(admin_properties(connection))
    if facts.has_controller:
        yield doctor_broker.retention(_offsets_retention(admin, timeout_s))
    try:
        settings = with_matched_topics(settings, lambda: admin.names(timeout_s))
    except SourceError as error:
        yield DoctorFinding("topics", "unknown", f"The topics of patterns could not be looked up: {error}")
    seen = _inspect(probe, facts, connection, settings, timeout_s)
    now_ms = int(time.time() * 1000)
    found = [one for own in settings.consumers.values() for one in doctor_topics.findings(own, seen, now_ms)]
    order = ("groups", "topics", "permissions", "dead letters", "clock")
    yield from sorted(dict.fromkeys(found), key=lambda one: order.index(one.section))


def _offsets_retention(admin: KafkaAdmin, timeout_s: float) -> float | None:
    from keepfast.core.errors import SourceError

    try:
        return admin.offsets_retention_s(timeout_s)
    except SourceError:
        return None


def _inspect(
    probe: KafkaProbe, facts: ProbedCluster, connection: Connection, settings: Settings, timeout_s: float
) -> ClusterView:
    from keepfast.cli.doctor_topics import ClusterView
    from keepfast.core.errors import SourceError
    from keepfast.kafka.admin import KafkaAdmin
    from keepfast.kafka.config import admin_properties
    from keepfast.kafka.probe import GroupFacts, RetainedRecords, TopicProbe
    from keepfast.wiring.cluster import topics_of

    names = sorted(topics_of(settings))
    admin = KafkaAdmin(admin_properties(connection))
    topics = probe.topics(names, timeout_s) if facts.has_controller else _listed(admin, names, timeout_s)
    groups: dict[str, GroupFacts | SourceError] = {}
    share_groups: dict[str, dict[str, str]] = {}
    held: dict[str, RetainedRecords] = {}
    configs: dict[str, dict[str, str]] = {}
    deadline = time.monotonic() + MAX_REQUESTS * timeout_s  # each request may take its time, but not all of them
    for own in settings.consumers.values() if facts.has_controller else ():
        if time.monotonic() >= deadline:
            break
        try:
            if own.order == "queue":
                share_groups[own.group] = admin.group_config(own.group, timeout_s)
                continue
            groups[own.group] = probe.group(own.group, timeout_s)
        except SourceError as error:
            groups[own.group] = error
    transactions = _transactions(connection, settings, timeout_s) if facts.has_controller else {}
    for name, topic in topics.items():
        if isinstance(topic, TopicProbe) and time.monotonic() < deadline:
            try:
                configs[name] = admin.topic_config(name, timeout_s)
                held[name] = probe.held(name, topic.partitions, timeout_s)
            except SourceError:
                continue  # a missing permission is reported as such
    return ClusterView(
        topics=topics,
        configs=configs,
        groups=groups,
        transactions=transactions,
        share_groups=share_groups,
        held=held,
        creatable=_creatable(probe, topics, settings, timeout_s) if facts.has_controller else {},
        new_protocol=admin.has_new_protocol(timeout_s) if facts.has_controller else None,
        brokers=len(facts.brokers),
        user=connection.sasl_username or "…",
        bootstrap=admin.bootstrap,
        embedded=not facts.has_controller,
    )


def _creatable(
    probe: KafkaProbe, topics: Mapping[str, TopicAnswer], settings: Settings, timeout_s: float
) -> dict[str, SourceError | None]:
    """Of each topic that the start would create: why this login may not create it, or None."""
    from keepfast.core.errors import SourceError
    from keepfast.kafka.probe import TopicProbe

    wanted: set[str] = set()
    for own in settings.consumers.values():
        if own.dead_letter.create_topic:
            wanted.update(own.dead_letter_topics.values())
        if own.retry_topics.create_topics:
            wanted.update(retry for topic in own.topics for retry in own.retry_topics.topics(topic, own.group))
    names = sorted(name for name in wanted if not isinstance(topics.get(name), TopicProbe))
    try:
        return probe.creatable(names, timeout_s)
    except SourceError as error:
        return dict.fromkeys(names, error)


def _transactions(connection: Connection, settings: Settings, timeout_s: float) -> dict[str, SourceError | None]:
    """Of each group whose commits are transactions: why it may not begin one, or None. The id is one of its own: that
    of a running member would end what it has open.
    """
    from keepfast.core.errors import SourceError
    from keepfast.kafka.config import transaction_properties
    from keepfast.kafka.probe import KafkaProbe

    found: dict[str, SourceError | None] = {}
    for own in settings.consumers.values():
        if own.exactly_once:
            try:
                KafkaProbe.transactions(transaction_properties(connection, own.group, "doctor"), timeout_s)
                found[own.group] = None
            except SourceError as error:
                found[own.group] = error
    return found


def _listed(admin: KafkaAdmin, names: list[str], timeout_s: float) -> dict[str, TopicAnswer]:
    """The topics as the embedded broker lists them; it cannot describe them."""
    from keepfast.core.errors import Fault, SourceError
    from keepfast.kafka.probe import TopicProbe

    missing = SourceError("There is no such topic.", fault=Fault.MISSING)
    return {
        name: missing if facts is None else TopicProbe(name, facts.partitions, 1, None)
        for name, facts in admin.topics(names, timeout_s).items()
    }
