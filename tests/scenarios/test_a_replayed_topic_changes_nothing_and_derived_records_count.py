"""An inbox on a real broker and a real database: a topic that is read again from its beginning, and a record that is
sent again by a replay, change nothing; a record that another service derived from one, all headers forwarded, and the
records of a topic that was created again, are new. The same without an inbox repeats effects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import psycopg
import pytest

from keepfast import App, PostgresInbox
from keepfast.core.inbox import RecordOrigin
from keepfast.core.records import Headers
from keepfast.kafka import KafkaAdmin
from keepfast.kafka.config import admin_properties
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.members import connection
from tests.support.waiting import wait_until

RECORDS = 40
GROUP = "billing.charge"


@pytest.fixture
def effects(postgres: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[psycopg.Connection]:
    """A connection to the database of the app; `effects` has a row for each effect."""
    monkeypatch.setenv("POSTGRES_URL", postgres)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        connection.execute("CREATE TABLE effects (value text)")
        yield connection


class Service:
    """An app that writes a row for each record; with `inbox`, in the inbox's transaction. It is started again for each
    step, and ends when it has committed everything.
    """

    def __init__(self, kafka: TopicAdmin, topic: str, effects: psycopg.Connection, *, inbox: bool) -> None:
        self.topic = topic
        self.client = Client(kafka)
        self._kafka = kafka
        self._effects = effects
        self._inbox = inbox

    def _app(self) -> App:
        app = App("billing", kafka={"brokers": self._kafka.bootstrap}, health={"enabled": False})
        if self._inbox:

            @app.consumer(self.topic, group=GROUP, inbox=PostgresInbox())
            def charge(value: bytes, tx: psycopg.Connection) -> None:
                store(tx, value)
        else:

            @app.consumer(self.topic, group=GROUP)
            def charge_directly(value: bytes) -> None:
                store(self._effects, value)

        return app

    def run(self) -> Counter[str]:
        """Read to the end; returns how often each value had its effect."""
        end = self.client.edges(self.topic)[1]
        with self._app():
            wait_until(lambda: self.client.is_committed(GROUP, self.topic, end), "all is read and committed")
        return Counter(value for (value,) in self._effects.execute("SELECT value FROM effects"))

    def topic_id(self) -> str:
        facts = KafkaAdmin(admin_properties(connection(self._kafka.bootstrap))).topics([self.topic], 30)[self.topic]
        assert facts is not None
        return facts.topic_id or ""


def store(connection: psycopg.Connection, value: bytes) -> None:
    connection.execute("INSERT INTO effects VALUES (%s)", (value.decode(),))


def sent(number: int, headers: Headers = ()) -> NewRecord:
    return NewRecord(b"%d" % number, key=b"k", headers=headers)


@pytest.mark.parametrize("inbox", [True, False], ids=["inbox", "none"])
def test_a_replayed_topic_changes_nothing_and_derived_records_count(
    kafka: TopicAdmin, topic: TopicFactory, effects: psycopg.Connection, *, inbox: bool
) -> None:
    name = topic()
    service, client = Service(kafka, name, effects, inbox=inbox), Client(kafka)
    times = 1 if inbox else 2
    client.produce(name, map(sent, range(RECORDS)))
    first = service.run()
    assert first == Counter(map(str, range(RECORDS)))

    client.commit(GROUP, name, 0)
    assert service.run() == Counter(dict.fromkeys(first, times)), "the whole topic was read again"

    origin = RecordOrigin(service.topic_id(), 0, 7).header(name, b"7")
    client.produce(name, [sent(7, [("trace", b"t"), origin])])
    assert service.run()["7"] == 2 * times - 1, "what a replay sends again is the record that was processed"

    client.produce(name, [NewRecord(b"derived from 7", key=b"k", headers=[("trace", b"t"), origin])])
    assert service.run()["derived from 7"] == 1, "another value: a service has forwarded all headers"

    kafka.delete_topic(name)
    kafka.create_topic(name)
    client.produce(name, [NewRecord(b"new topic %d" % number, key=b"k") for number in range(5)])
    after = service.run()
    assert {value: count for value, count in after.items() if value.startswith("new")} == {
        f"new topic {number}": 1 for number in range(5)
    }, "the same places of another topic"
