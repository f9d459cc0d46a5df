"""People into the database, one after another, with the runner of the consumer pattern. Run it with
`python -m examples.swapi_people.consumer`.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from neotool_common.consumer_base import KafkaConsumerRunner
from neotool_common.retry_utils import RetryConfig

from examples.database import Database
from examples.swapi_people.people import Person, upsert_into

TOPIC = "swapi.people.v1"
GROUP = "swapi.people.v1"

logger = logging.getLogger("swapi.people")

database = Database(os.environ.get("DATABASE_URL", "postgresql://localhost/swapi"))
upsert = upsert_into(database)


def create_consumer() -> dict[str, Any]:
    return {"bootstrap.servers": os.environ.get("KAFKA_BROKERS", "localhost:9092"), "group.id": GROUP}


def process_message(person: Person) -> dict[str, Any]:
    try:
        row = person.row
    except ValueError as error:
        return {"success": False, "error": error}  # final, as all ValueErrors are
    upsert([row])  # what it raises is classified: a refused row is final, an unavailable database is not
    return {"success": True, "error": None}


runner = KafkaConsumerRunner(
    consumer_factory=create_consumer,
    topics=TOPIC,
    retry_config=RetryConfig(),
    message_factory=Person.from_dict,
    process_message=process_message,
    cleanup_callback=database.close,
    message_context=lambda person: f"person={person.id}",
    logger=logger,
    settings={"consumer": {"idempotent": True, "timeout_s": 20}},
)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    database.open()
    runner.run()


if __name__ == "__main__":
    main()
