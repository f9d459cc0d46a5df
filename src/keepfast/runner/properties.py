"""A dict of the client's own properties, as factories return it, in the words of our settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from keepfast.core.errors import ConfigError
from keepfast.kafka import Connection
from keepfast.settings.passthrough import FORBIDDEN, OWN_SETTING, property_problem

Tree = dict[str, dict[str, Any]]

_RESETS: Final = {"smallest": "earliest", "beginning": "earliest", "largest": "latest", "end": "latest"}
_OFF: Final = (False, "false", "False", 0, "0")
_ON: Final = (True, "true", "True", 1, "1")
_BY_ITSELF: Final = ("enable.auto.commit", "auto.commit.enable", "enable.auto.offset.store")
_OTHERWISE: Final = frozenset({*OWN_SETTING, *FORBIDDEN})
_PYTHONIC: Final = ("max_poll_records", "key_deserializer", "value_deserializer", "consumer_timeout_ms")
_HARMLESS: Final = {
    # what is refused in general, and these values of it, which are ours already
    "acks": ("all", -1, "-1"),
    "request.required.acks": ("all", -1, "-1"),
    "enable.idempotence": _ON,
    "enable.partition.eof": _OFF,
    "allow.auto.create.topics": _OFF,
    "auto.commit.interval.ms": None,
    "partitioner": ("murmur2_random",),
    **dict.fromkeys(_BY_ITSELF, _OFF),
}


def consumer_tree(properties: Mapping[str, Any]) -> Tree:
    """Sections `kafka` and `consumer`. Raises ConfigError for a consumer that would commit by itself."""
    problems = [
        f'consumer_factory: "{name}" is on, so that records would count as done before they are; set it to False, or'
        " leave it out."
        for name in _BY_ITSELF
        if name in properties and properties[name] not in _OFF
    ]
    pythonic = [name for name in properties if name in _PYTHONIC or name.replace("_", ".") in _OTHERWISE - {name}]
    if pythonic:
        problems.append(
            f"consumer_factory: {', '.join(map(repr, pythonic))}: a dict has the names of confluent-kafka, such as"
            ' "bootstrap.servers"; or return a kafka-python consumer.'
        )
    if problems:
        raise ConfigError(*problems)
    tree: Tree = {"kafka": {}, "consumer": {}}
    for name, value in properties.items():
        if _is_harmless(name, value):
            continue
        home = OWN_SETTING.get(name)
        if home is None or name == "group.remote.assignor":
            tree["kafka"].setdefault("librdkafka", {})[name] = value
            continue
        section, _, setting = home.partition(".")
        tree[section][setting] = _RESETS.get(value, value) if setting == "auto_offset_reset" else _number(value)
    return tree


def producer_connection(properties: Mapping[str, Any]) -> Connection:
    """How to reach the brokers for letters. Raises ConfigError."""
    own: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    problems = []
    for name, value in properties.items():
        section, _, setting = OWN_SETTING.get(name, "").partition(".")
        if section == "kafka":
            own[setting] = [part.strip() for part in str(value).split(",")] if setting == "brokers" else value
        elif _is_harmless(name, value):
            continue
        elif section or name in FORBIDDEN or property_problem(name):
            why = property_problem(name) or "belongs to a consumer"
            problems.append(f'producer_factory: "{name}" {why}.')
        else:
            rest[name] = value
    if "brokers" not in own:
        problems.append('producer_factory: the dict does not say where the brokers are; add "bootstrap.servers".')
    if problems:
        raise ConfigError(*problems)
    return Connection(**own, properties=rest)


def _is_harmless(name: str, value: Any) -> bool:
    if name not in _HARMLESS:
        return False
    allowed = _HARMLESS[name]
    return allowed is None or value in allowed


def _number(value: Any) -> Any:
    """The client takes numbers as text, too; our settings take numbers."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value
