"""What a factory has made, whatever it is: a dict of configuration, or a client of one of the two libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from keepfast.core.errors import ConfigError
from keepfast.core.ports import Sink, Source
from keepfast.kafka import KafkaSink, sink_properties
from keepfast.kafka.adopting import adopt_consumer, adopt_producer, close_producer, library_of
from keepfast.runner.hooks import Deserialise
from keepfast.runner.properties import Tree, consumer_tree, producer_connection

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
