"""The service: wiring alone. Run it with `python -m examples.institution_enhancement.consumer`."""

from __future__ import annotations

import logging
from typing import Any

from confluent_kafka import Producer
from psycopg2.pool import ThreadedConnectionPool

from examples.institution_enhancement.config import Config
from examples.institution_enhancement.health import Health
from examples.institution_enhancement.letters import LetterPublisher
from examples.institution_enhancement.message import InstitutionUpserted
from examples.institution_enhancement.processor import PooledInstitutions, Processor
from examples.institution_enhancement.registry import Registry
from holdfast.runner import KafkaConsumerRunner

logger = logging.getLogger("institution_enhancement")


def make_runner(config: Config) -> KafkaConsumerRunner:
    pool = ThreadedConnectionPool(config.pool_min, config.pool_max, config.database_url)
    registry = Registry(config.registry_url, rate_limit_s=config.rate_limit_s, timeout_s=config.registry_timeout_s)
    health = Health(config.health_port)
    producer = Producer({"bootstrap.servers": config.brokers, "acks": "all", "enable.idempotence": True})

    def create_consumer() -> dict[str, Any]:
        return {"bootstrap.servers": config.brokers, "group.id": config.group}

    def close() -> None:
        registry.close()
        pool.closeall()
        logger.info("closed: pool and registry")

    return KafkaConsumerRunner(
        consumer_factory=create_consumer,
        producer_factory=lambda: producer,
        topics=config.topic,
        retry_config=config.retry,
        message_factory=InstitutionUpserted.from_dict,
        process_message=Processor(registry, PooledInstitutions(pool)),
        dlq_publisher=LetterPublisher(producer, config.letters),
        rate_limit_min_delay_ms=lambda: config.rate_limit_s * 1000,
        health_server_start=health.start,
        health_server_stop=health.stop,
        running_flag_setter=health.set_running,
        cleanup_callback=close,
        message_context=lambda message: f"bacen_cod_inst={message.bacen_cod_inst}",
        logger=logger,
    )


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    make_runner(Config.from_environment()).run()


if __name__ == "__main__":
    main()
