"""Loads the settings of an app: reads every source once, checks everything, and reports all problems in one error."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from keepfast.core import checks, names
from keepfast.core.errors import ConfigError
from keepfast.core.policies import RetryPolicy
from keepfast.settings import catalogue
from keepfast.settings.client_properties import timeout_warnings
from keepfast.settings.consumers import ConsumerBuilder
from keepfast.settings.model import AppSettings, ConsumerSettings, KafkaSettings, Settings
from keepfast.settings.resolver import DEFAULT, Resolver, policy_made
from keepfast.settings.sources import (
    RawSettings,
    SettingSource,
    Sourced,
    TreeReader,
    parse_dotenv,
    read_variables,
)

HOST_SECTIONS: Final = (
    "kafka",
    "registry",
    "spool",
    "postgres",
    "state",
    "desk",
    "health",
    "control",
    "metrics",
    "tracing",
)
"""What an app connects to and serves where it is deployed; a test has its own broker and nothing else."""

_FILES = ("ssl_ca_location", "ssl_certificate_location", "ssl_key_location")
_SASL = ("sasl_mechanism", "sasl_username", "sasl_password")


def security_problems(kafka: Mapping[str, Sourced], cwd: Path, *, refused: Callable[[str], bool]) -> list[str]:
    """What does not fit; a value that was `refused` already is not called missing."""
    protocol = kafka["security_protocol"]
    encrypted, login = str(protocol.value).endswith("SSL"), str(protocol.value).startswith("SASL")
    problems = _missing_files(kafka, cwd)
    for name in [key for key in kafka if key.startswith("ssl_")] if not encrypted else []:
        if kafka[name].origin != DEFAULT:
            fitting = "SASL_SSL" if login else "SSL"
            problems.append(
                f"{kafka[name].origin}: {name} has no effect, because kafka.security_protocol is {protocol.value}"
                f" ({protocol.origin}) and nothing is encrypted. Set it to {fitting}, or remove {name}."
            )
    for name in _SASL if not login else ():
        if kafka[name].value is not None:
            problems.append(
                f"{kafka[name].origin}: {name} has no effect, because kafka.security_protocol is {protocol.value}"
                f" ({protocol.origin}) and there is no login. Set it to SASL_SSL, or remove {name}."
            )
    if login:
        problems.extend(_login_problems(kafka, refused))
    if (kafka["ssl_certificate_location"].value is None) != (kafka["ssl_key_location"].value is None):
        given, missing = "ssl_certificate_location", "ssl_key_location"
        if kafka[given].value is None:
            given, missing = missing, given
        problems.append(f"{kafka[given].origin}: {given} needs kafka.{missing}, too. Set both or neither.")
    return problems


def security_warnings(kafka: Mapping[str, Sourced]) -> list[str]:
    if kafka["security_protocol"].value == "SASL_PLAINTEXT" and kafka["sasl_mechanism"].value == "PLAIN":
        return [
            "kafka.security_protocol is SASL_PLAINTEXT: the password crosses the network in the clear; use SASL_SSL."
        ]
    return []


def _login_problems(kafka: Mapping[str, Sourced], refused: Callable[[str], bool]) -> list[str]:
    protocol, mechanism = kafka["security_protocol"], kafka["sasl_mechanism"].value
    if mechanism is None and refused("kafka.sasl_mechanism"):
        return []
    if mechanism is None:
        return [
            f"{protocol.origin}: {protocol.value} needs kafka.sasl_mechanism. Set it, for example to SCRAM-SHA-512."
        ]
    if mechanism in {"OAUTHBEARER", "GSSAPI"}:
        return []
    missing = [f"kafka.{name}" for name in ("sasl_username", "sasl_password") if kafka[name].value is None]
    missing = [key for key in missing if not refused(key)]
    if not missing:
        return []
    return [f"{kafka['sasl_mechanism'].origin}: {mechanism} needs {' and '.join(missing)}. Set what is missing."]


def _missing_files(kafka: Mapping[str, Sourced], cwd: Path) -> list[str]:
    problems = []
    for name in _FILES:
        value, origin = kafka[name]
        if isinstance(value, str) and not (name == "ssl_ca_location" and value == "probe") and not _exists(cwd / value):
            problems.append(f"{origin}: there is no file {checks.shown(value)}. Fix the path, or mount the file.")
    return problems


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # too long for a name
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSpec:
    """What the code says. `settings` and each consumer are trees as in keepfast.toml; None means left out.

    `settings={"kafka": {"brokers": "…"}}`, `consumers={"charge": {"topics": "orders.v1", "retry": "financial"}}`.
    `batches` names the consumers whose handlers take lists, `inboxes` those that have an inbox, each
    with the days for which that knows a processed record.
    `handed_over` is such a tree, too, with `consumers` in it, and goes before every other source.
    """

    name: str
    settings: Mapping[str, object] = field(default_factory=dict)
    consumers: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    batches: Collection[str] = ()
    inboxes: Mapping[str, float] = field(default_factory=dict)
    handed_over: Mapping[str, object] = field(default_factory=dict)


def load(spec: AppSpec, *, environ: Mapping[str, str], cwd: Path, for_tests: bool = False) -> Settings:
    """The settings of the app: environment, then `.env` and `keepfast.toml` in cwd, then code, then defaults.

    `for_tests`: without what is about one host, that is without `.env`, and of `keepfast.toml` without HOST_SECTIONS.
    Raises ConfigError with every problem: where the value came from, what is wrong, what to do.
    """
    raw = RawSettings()
    consumers = tuple(spec.consumers)
    read_variables(
        raw,
        SettingSource.ENVIRONMENT,
        environ,
        consumers=consumers,
        origin=lambda name: f"environment variable {name}",
    )
    if not for_tests:
        _read_dotenv(raw, cwd / ".env", consumers)
    _read_toml(raw, cwd / "keepfast.toml", consumers, without=HOST_SECTIONS if for_tests else ())
    TreeReader(raw, SettingSource.CODE, consumers).read({**spec.settings, "consumers": spec.consumers})
    TreeReader(raw, SettingSource.HANDED_OVER, consumers).read(spec.handed_over)
    return _resolve(spec, raw, cwd)


def retries_of_app(*, environ: Mapping[str, str], cwd: Path) -> RetryPolicy:
    """The retries that are set for all consumers: by the environment, `.env` or keepfast.toml; else the defaults.

    Raises ConfigError if one of them is invalid. What is wrong elsewhere in these sources is not reported.
    """
    raw = RawSettings()
    read_variables(
        raw, SettingSource.ENVIRONMENT, environ, consumers=(), origin=lambda name: f"environment variable {name}"
    )
    _read_dotenv(raw, cwd / ".env", ())
    _read_toml(raw, cwd / "keepfast.toml", (), without=())
    resolver = Resolver(raw, ())
    if any(raw.refused(f"retry.{setting.name}") for setting in catalogue.RETRY.settings):
        raise ConfigError(*raw.problems)
    return policy_made(resolver.retry(""))


def _resolve(spec: AppSpec, raw: RawSettings, cwd: Path) -> Settings:
    consumers = tuple(spec.consumers)
    problem = names.segment_problem(str(spec.name))
    if problem:
        raw.problems.append(f"code: the name of the app {problem}.")
    resolver = Resolver(raw, consumers)
    sections = {section.name: resolver.section(section) for section in catalogue.SECTIONS if not section.per_consumer}
    app = AppSettings(name=str(spec.name), **_values(sections.pop("app")))
    kafka = sections.pop("kafka")
    raw.problems.extend(resolver.misplaced())
    raw.problems.extend(security_problems(kafka, cwd, refused=resolver.refused))
    raw.warnings.extend(security_warnings(kafka))
    built = _build_consumers(spec, app, resolver, raw)
    raw.warnings.extend(resolver.without_effect())
    properties = resolver.properties()
    sessions = [one.timings.session_timeout_ms for one in built.values()] or [None]
    raw.warnings.extend(dict.fromkeys(text for session in sessions for text in timeout_warnings(properties, session)))
    if raw.problems:
        raise ConfigError(*raw.problems)
    connection = _values(kafka)
    connection |= {"client_id": kafka["client_id"].value or app.name, "librdkafka": MappingProxyType(properties)}
    others: dict[str, Any] = {name: catalogue.BY_NAME[name].classes[0](**_values(sections[name])) for name in sections}
    return Settings(
        app=app,
        kafka=KafkaSettings(**connection),
        **others,
        consumers=MappingProxyType(built),
        warnings=tuple(raw.warnings),
        origins=MappingProxyType(resolver.origins),
    )


def _values(section: Mapping[str, Sourced]) -> dict[str, Any]:
    return {name: given.value for name, given in section.items()}


def _build_consumers(
    spec: AppSpec, app: AppSettings, resolver: Resolver, raw: RawSettings
) -> dict[str, ConsumerSettings]:
    built: dict[str, ConsumerSettings] = {}
    problems: dict[str, list[str]] = {}
    warnings: dict[str, list[str]] = {}
    for name in spec.consumers:
        builder = ConsumerBuilder(name, app, resolver, batches=name in spec.batches, inbox_days=spec.inboxes.get(name))
        settings = builder.build()
        for texts, by_text in ((builder.problems, problems), (builder.warnings, warnings)):
            for text in texts:
                by_text.setdefault(text, []).append(name)
        if settings is not None:
            built[name] = settings
    raw.problems.extend(_of_consumers(problems))
    raw.warnings.extend(_of_consumers(warnings))
    raw.problems.extend(_shared_groups(built))
    raw.problems.extend(_shared_retry_topics(built))
    return built


def _of_consumers(consumers_by_text: Mapping[str, list[str]]) -> list[str]:
    """What holds for several consumers, for example by one wrong variable, is reported once."""
    found = consumers_by_text.items()
    return [f"consumer{'s' if len(names) > 1 else ''} {', '.join(names)}: {text}" for text, names in found]


def _shared_groups(built: Mapping[str, ConsumerSettings]) -> list[str]:
    members: dict[str, list[str]] = {}
    for name, settings in built.items():
        members.setdefault(settings.group, []).append(name)
    return [
        f"consumers {', '.join(who)}: all use the group {group!r}, so each would stop the others at every rebalance."
        " Give each a group of its own."
        for group, who in members.items()
        if len(who) > 1
    ]


def _shared_retry_topics(built: Mapping[str, ConsumerSettings]) -> list[str]:
    """Topic `a` with group `b.c` and topic `a.b` with group `c` have the same names."""
    users: dict[str, list[str]] = {}
    for name, settings in built.items():
        for topic in settings.topics:
            for retry_topic in settings.retry_topics.topics(topic, settings.group):
                users.setdefault(retry_topic, []).append(name)
    return [
        f"consumers {', '.join(who)}: all use the retry topic {topic!r}, so each would get the others' retries."
        " Give one of them another group."
        for topic, who in users.items()
        if len(who) > 1
    ]


def _read_dotenv(raw: RawSettings, path: Path, consumers: tuple[str, ...]) -> None:
    text = _text_of(raw, path)
    if text is None:
        return
    lines, problems = parse_dotenv(text)
    raw.problems.extend(f".env {problem}." for problem in problems)
    origin: Callable[[str], str] = lambda name: f"{name} in .env line {lines[name].number}"  # noqa: E731
    values = {name: line.value for name, line in lines.items()}
    read_variables(raw, SettingSource.DOTENV, values, consumers=consumers, origin=origin)


def _read_toml(raw: RawSettings, path: Path, consumers: tuple[str, ...], *, without: Collection[str]) -> None:
    text = _text_of(raw, path)
    if text is None:
        return
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raw.problems.append(f"keepfast.toml: is not TOML: {error}. Fix it there.")
        return
    TreeReader(raw, SettingSource.FILE, consumers).read({name: tree[name] for name in tree if name not in without})


def _text_of(raw: RawSettings, path: Path) -> str | None:
    """The file's text; None if there is no such file, or, with a problem noted, if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raw.problems.append(f"{path.name}: is not UTF-8 text. Save it as UTF-8.")
    except OSError as error:
        raw.problems.append(f"{path.name}: cannot be read ({error.strerror}). Make it readable, or remove it.")
    return None
