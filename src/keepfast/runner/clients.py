"""What a factory has made, whatever it is: a dict of configuration, or a client of one of the two libraries.

A dict of the client's own properties, as factories return it, in the words of our settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from keepfast.core.errors import ConfigError
from keepfast.core.ports import Sink, Source
from keepfast.kafka import Connection, KafkaSink, sink_properties
from keepfast.kafka.adopted import adopt_consumer, adopt_producer, close_producer, library_of
from keepfast.runner.hooks import Deserialise
from keepfast.settings.client_properties import FORBIDDEN, OWN_SETTING, property_problem

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
    "enable.partition.eof": None,
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
        problems.append('producer_factory: the dict has no brokers; add "bootstrap.servers".')
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


RESETS: Final = ("earliest", "latest")


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeConsumer:
    """The consuming side. `source` None: it is made from the settings; `tree` is what goes before all other settings.

    `partitions` asks the client itself how many partitions a topic has, where there is a client.
    """

    source: Source | None = None
    tree: Tree = field(default_factory=dict)
    deserialise: Deserialise | None = None
    partitions: Callable[[str, float], int] | None = None


def made_consumer(made: object) -> MadeConsumer:
    """Raises ConfigError for a consumer that commits by itself, and for what is none."""
    if isinstance(made, Mapping):
        return MadeConsumer(tree=consumer_tree(made))
    adopted = adopt_consumer(made)
    if adopted is None:
        raise _neither("consumer_factory", made, "consumer")
    own: dict[str, Any] = {"group": adopted.group, "max_poll_records": adopted.max_poll_records}
    own["topics"] = list(adopted.topics) or None
    if adopted.reset is not None:
        own["auto_offset_reset"] = adopted.reset if adopted.reset in RESETS else "error"
    return MadeConsumer(
        source=adopted.source,
        tree={"kafka": {}, "consumer": {name: value for name, value in own.items() if value is not None}},
        deserialise=adopted.deserialise,
        partitions=adopted.partitions,
    )


def sink_of(made: object) -> Sink:
    """For letters of ours. Raises ConfigError."""
    if isinstance(made, Mapping):
        return KafkaSink(sink_properties(producer_connection(made)))
    sink = adopt_producer(made)
    if sink is None:
        raise _neither("producer_factory", made, "producer")
    return sink


def check_producer(made: object) -> None:
    """A producer that only the user's own functions use. Raises ConfigError for what is none."""
    if not isinstance(made, Mapping) and library_of(made) is None and not hasattr(made, "flush"):
        raise _neither("producer_factory", made, "producer")


def end_producer(made: object, timeout_s: float) -> None:
    """Send what it still has; for a producer that only the user's own functions use. Never raises."""
    if not isinstance(made, Mapping):
        close_producer(made, timeout_s)


def _neither(factory: str, made: object, what: str) -> ConfigError:
    return ConfigError(
        f"{factory} returned something of type {type(made).__name__}; return a dict of configuration, a confluent-kafka"
        f" {what} or a kafka-python {what}."
    )
