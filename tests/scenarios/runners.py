"""A KafkaConsumerRunner inside the test's own process, on a consumer of any kind."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, Self

from confluent_kafka import Consumer

from keepfast.runner import KafkaConsumerRunner, RetryConfig
from keepfast.testing.topics import TopicAdmin
from tests.support.log_capture import LogCapture
from tests.support.running_app import DeadlinePassed
from tests.support.waiting import wait_until

Kind = Literal["dict", "confluent-kafka", "kafka-python"]
KINDS: tuple[Kind, ...] = ("dict", "confluent-kafka", "kafka-python")
BEHAVED = {"enable.auto.commit": False, "enable.auto.offset.store": False}
QUICK = RetryConfig(max_retries=2, initial_retry_delay_ms=50, max_retry_delay_ms=400, retry_jitter=False)


def decode(value: bytes) -> Any:
    return json.loads(value.decode())


def factory_of(kind: Kind, broker: TopicAdmin, topic: str, **more: Any) -> Callable[[], Any]:
    """As a user writes it: for kafka-python with the topic, and with a deserialiser that does not take every record."""
    group = f"group-of-{topic}"
    config = {"bootstrap.servers": broker.bootstrap, "group.id": group, **more}

    def kafka_python() -> Any:
        from kafka import KafkaConsumer
        from kafka.serializer.wrapper import DeserializeWrapper

        return KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            value_deserializer=DeserializeWrapper(decode),
            max_poll_records=1,
            **more,
        )

    made: dict[Kind, Callable[[], Any]] = {
        "dict": lambda: config,
        "confluent-kafka": lambda: Consumer({**config, **BEHAVED, "log_level": 0}),
        "kafka-python": kafka_python,
    }
    return made[kind]


class Running:
    """The runner in a thread, from entering to leaving; leaving stops it and demands a clean end."""

    def __init__(self, kind: Kind, broker: TopicAdmin, topic: str, **hooks: Any) -> None:
        reported: dict[str, Any] = {
            "consumer_factory": factory_of(kind, broker, topic),
            "retry_config": QUICK,
            "topics": None if kind == "kafka-python" else topic,
            "settings": {"shutdown": {"timeout_s": 10}},
        }
        self.runner = KafkaConsumerRunner(**reported | hooks)
        self.runner._leave = self._would_exit  # type: ignore[method-assign]
        self.log = LogCapture()
        self.outcome: list[Any] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self.log.attach()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.log.detach()
        if kind is None:
            assert self.outcome == [0]

    def stop(self) -> None:
        self.runner.stop()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the runner did not end"

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        wait_until(lambda: condition() or self.outcome, what)
        assert not self.outcome or condition(), f"{what}: it ended with {self.outcome}"

    def _run(self) -> None:
        try:
            self.outcome.append(self.runner.run())
        except BaseException as error:  # noqa: BLE001 - the thread's edge
            self.outcome.append(error)

    @staticmethod
    def _would_exit(code: int) -> None:
        raise DeadlinePassed(code)
