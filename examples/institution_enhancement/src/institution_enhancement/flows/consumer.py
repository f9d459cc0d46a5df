"""The consumer: wiring alone. Run it with `institution-enhancement-consumer`."""

from __future__ import annotations

import logging
from functools import cache

from kafka import KafkaConsumer, KafkaProducer
from neotool_common.consumer_base import KafkaConsumerRunner

from institution_enhancement.flows.health import set_consumer_running, start_health_server, stop_health_server
from institution_enhancement.tasks.config import Config
from institution_enhancement.tasks.db_connection import close_pool
from institution_enhancement.tasks.dlq_publisher import publish_to_dlq
from institution_enhancement.tasks.message import InstitutionUpsertedMessage
from institution_enhancement.tasks.processor import process_message

logger = logging.getLogger("institution_enhancement")

_config = Config.from_environment()


def create_consumer() -> KafkaConsumer:
    kafka = _config.kafka
    return KafkaConsumer(
        kafka.input_topic,
        bootstrap_servers=kafka.brokers.split(","),
        group_id=kafka.consumer_group,
        group_instance_id=kafka.group_instance_id,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=1,  # one after another: the limit of the registry is one queue
        session_timeout_ms=60_000,
        heartbeat_interval_ms=10_000,
        max_poll_interval_ms=600_000,
    )


@cache
def create_kafka_producer() -> KafkaProducer:
    return KafkaProducer(bootstrap_servers=_config.kafka.brokers.split(","), acks="all")


def _publish_to_dlq(message: object, error: Exception, retry_count: int) -> object:
    """The future of the letter: the runner awaits it, and commits the record when the brokers have the letter."""
    return publish_to_dlq(create_kafka_producer(), _config.kafka.dlq_topic, message, error, retry_count)


runner = KafkaConsumerRunner(
    consumer_factory=create_consumer,
    producer_factory=create_kafka_producer,
    retry_config=_config.retry,
    message_factory=InstitutionUpsertedMessage.from_dict,
    process_message=process_message,
    dlq_publisher=_publish_to_dlq,
    rate_limit_min_delay_ms=lambda: _config.cnpja.rate_limit_seconds * 1000,
    health_server_start=lambda: start_health_server(_config.health_check),
    health_server_stop=stop_health_server,
    running_flag_setter=set_consumer_running,
    cleanup_callback=close_pool,
    message_context=lambda message: f"bacen_cod_inst={message.bacen_cod_inst}",
    logger=logger,
)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    runner.run()


if __name__ == "__main__":
    main()
