"""The service: wiring alone. Run it with `python -m examples.institution_enhancement.consumer`."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from confluent_kafka import Producer

from examples.institution_enhancement.config import Config
from examples.institution_enhancement.health import Health
from examples.institution_enhancement.letters import LetterPublisher, Produces
from examples.institution_enhancement.message import InstitutionUpserted
from examples.institution_enhancement.processor import Companies, Institutions, PooledInstitutions, Processor
from examples.institution_enhancement.registry import Registry
from keepfast import StartError
from keepfast.runner import KafkaConsumerRunner

logger = logging.getLogger("institution_enhancement")

START_S = 30.0


def make_runner(
    config: Config, companies: Companies, institutions: Institutions, letters: Produces
) -> KafkaConsumerRunner:
    def create_consumer() -> dict[str, Any]:
        return {"bootstrap.servers": config.brokers, "group.id": config.group}

    def close() -> None:
        companies.close()
        institutions.close()
        logger.info("closed: pool and registry")

    def metrics() -> str:
        return runner.metrics()

    health = Health(config.health_port if config.health_enabled else None, metrics)
    runner = KafkaConsumerRunner(
        consumer_factory=create_consumer,
        producer_factory=letters,
        topics=config.topic,
        retry_config=config.retry,
        message_factory=InstitutionUpserted.from_dict,
        process_message=Processor(companies, institutions),
        dlq_publisher=LetterPublisher(letters, config.letters),
        rate_limit_min_delay_ms=lambda: config.rate_limit_s * 1000,
        health_server_start=health.start,
        health_server_stop=health.stop,
        running_flag_setter=health.set_running,
        cleanup_callback=close,
        message_context=lambda message: f"bacen_cod_inst={message.bacen_cod_inst}",
        logger=logger,
        name="institution_enhancement",
        # The upsert takes a record as often as it comes; one at a time, because the registry's limit is one queue.
        settings={
            "consumer": {"idempotent": True, "max_poll_records": 1, "timeout_s": config.record_s},
            "shutdown": {"timeout_s": config.record_s + 5},  # so that the record in flight can be finished
        },
    )
    return runner


def wired(config: Config) -> KafkaConsumerRunner:
    """With the real registry, database and producer. None of them is opened before it is needed."""

    @cache
    def create_producer() -> Producer:
        """The runner calls it at the start. Raises StartError: without a place for letters nothing may begin."""
        producer = Producer({"bootstrap.servers": config.brokers, "acks": "all", "enable.idempotence": True})
        if producer.list_topics(config.letters, timeout=START_S).topics[config.letters].error is not None:
            raise StartError(f"Topic {config.letters} does not exist, or may not be seen; create it for dead letters.")
        return producer

    return make_runner(
        config,
        Registry(config.registry_url, rate_limit_s=config.rate_limit_s, timeout_s=config.registry_timeout_s),
        PooledInstitutions(config),
        create_producer,
    )


runner = wired(Config.from_environment())


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    runner.run()


if __name__ == "__main__":
    main()
