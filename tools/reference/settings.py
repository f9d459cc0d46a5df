"""The settings, from their catalogue."""

from __future__ import annotations

from collections.abc import Iterator

from keepfast.core.fields import PolicyField
from keepfast.settings import catalogue, client_properties
from keepfast.settings.catalogue import Section, variable
from tools.reference.markdown import MADE, code, codes, escaped, table

INTRODUCTION = """# Settings

Every setting has one name. The more specific value wins first, then the source:

| | wins first → last |
|---|---|
| for whom | one consumer, its [retry profile](#retry-profiles), the whole app |
| source | environment variables, `.env` and then `keepfast.toml` in the working folder, code, the default |

So a variable for all consumers, such as `RETRY_MAX_RETRIES`, is the default of the consumers that are not configured
otherwise: it does not overrule `@app.consumer(…, retry="financial")`. A variable for this consumer does. What has no
effect, because everything it could change is set more specifically, is warned of at the start.

All sources are read once, at the start, and checked whole: `keepfast run` lists every problem, with what to do, and
starts nothing (exit code 2). A name that no setting has is a problem, too, with the nearest one that exists.

A section marked **per consumer** may be set for all consumers or for one of them. Of one consumer, here `charge`:

| where | for all | for `charge` |
|---|---|---|
| environment | `KEEPFAST_RETRY_MAX_RETRIES=5` | `KEEPFAST_CONSUMERS_CHARGE_RETRY_MAX_RETRIES=5` |
| `keepfast.toml` | `[retry]` `max_retries = 5` | `[consumers.charge.retry]` `max_retries = 5` |
| code | `App(…, retry={"max_retries": 5})` | `@app.consumer(…, retry=RetryPolicy(max_retries=5))` |

What is in the section `consumer` is, in code and in `[consumers.charge]`, an option of its own: `order = "key"`. In
code, sections for all are arguments of the app: `App("payments", kafka={"brokers": "kafka-1:9092"})`. In an app with
one consumer, `KAFKA_INPUT_TOPIC` and `KAFKA_CONSUMER_GROUP` mean that consumer, so they win over the code.

In variables, lists are separated by commas, and true and false may be written as `true`, `1`, `yes`, `on` and
`false`, `0`, `no`, `off`. A blank variable counts as not set.
"""


def page() -> str:
    parts = [MADE + INTRODUCTION]
    parts += [section_text(section) for section in catalogue.SECTIONS]
    parts += [profiles(), refused_properties(), others()]
    return "\n".join(parts)


def section_text(section: Section) -> str:
    where = "Per consumer." if section.per_consumer else "For the whole app."
    lines = [f"## {section.name}", "", f"{escaped(section.doc)} {where}", ""]
    lines += [f"{sentence}\n" for sentence in _ways(section)]
    rows = [_row(section, setting) for setting in section.settings]
    lines.append(table(("setting", "default", "takes", "what it is for", "environment"), rows))
    return "\n".join(lines)


def _ways(section: Section) -> Iterator[str]:
    if section.policy is not None:
        yield f"In code: `{section.name}={section.policy.__name__}(…)`."
    if section.shorthand is not None:
        yield f'A text alone means `{section.shorthand}`: `{section.name} = "…"`.'
    if section.switch is not None:
        yield f"True or false alone means `{section.switch}`: `{section.name}=True`. A policy in code switches it on."


def _row(section: Section, setting: PolicyField) -> tuple[str, ...]:
    doc, takes = setting.doc, setting.kind.expects
    if setting.floor is not None:
        takes += f"; at least {setting.floor.low:,} unless `unsafe_timings` (`{setting.floor.rule}`)"
    if setting.name in section.one_consumer:
        doc += " Set for the whole app, it needs an app with one consumer."
    if setting.name in section.merged:
        doc += " What all places say holds together, the nearest asked first."
    names = codes((variable(section.name, setting.name), *setting.aliases))
    if setting.name in section.code_only:
        names = "only in code"
    return code(setting.name), default_of(setting), takes, doc, names


def default_of(setting: PolicyField) -> str:
    word = getattr(setting.kind, "none_word", None)
    if setting.default is None and word:
        return code(word)
    return setting.derived or shown(setting.default)


def shown(value: object) -> str:
    match value:
        case None | () | "":
            return "–"
        case dict():
            return "–"
        case bool():
            return code(str(value).lower())
        case tuple():
            return code(", ".join(map(str, value)))
        case float() if value == int(value):
            return code(str(int(value)))
        case _:
            return code(str(value))


def profiles() -> str:
    rows = [(code(name), codes(f"{key} = {value}" for key, value in values.items()) or "the defaults above")
            for name, values in catalogue.PROFILES.items()]  # fmt: skip
    return (
        '## Retry profiles\n\nNamed sets of retry settings: `retry = "financial"`. Tables `[retry.profiles.<name>]` in'
        " `keepfast.toml`\nadd more, or change these. A setting beside the name of a profile changes it there:"
        ' `retry = {profile = "financial", max_retries = 7}`.\n\n' + table(("profile", "says"), rows)
    )


def refused_properties() -> str:
    own = [(code(name), f"use {code(setting)}") for name, setting in client_properties.OWN_SETTING.items()]
    forbidden = [(code(name), why) for name, why in client_properties.FORBIDDEN.items()]
    return (
        "## Properties of the client\n\nAny other property of librdkafka goes into `[kafka.librdkafka]` by its own name"
        ' (`"socket.keepalive.enable" = true`), or into\na variable `KEEPFAST_KAFKA_LIBRDKAFKA_<NAME>`.'
        " `socket.timeout.ms` is 10 s: a request or a\nreply that needs longer, as on a link below 4 Mbit/s, needs"
        " more. These are refused:\n\n" + table(("property", "why"), [*own, *forbidden])
    )


def others() -> str:
    return (
        "## Variables that are no settings\n\n"
        f"{codes(sorted(catalogue.OTHER_VARIABLES))}: the folder for what `keepfast broker` and the test fixtures"
        f" download. Those that begin with {codes(catalogue.OTHER_PREFIXES)} are for tests.\n"
    )
