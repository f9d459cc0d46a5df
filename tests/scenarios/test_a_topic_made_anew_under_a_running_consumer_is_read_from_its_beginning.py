"""P1: a topic that is deleted and made again while a consumer runs, and filled beyond the old offset before the client
notices, looks to the client as if nothing had happened. All of its records are processed all the same.
"""

from __future__ import annotations

import pytest

from holdfast import App
from holdfast.runtime import identities
from holdfast.testing.pytest_plugin import TopicFactory
from holdfast.testing.topics import TopicAdmin
from tests.scenarios.inside import Client, Inside, app_for, until

OLD, NEW = 100, 150


def app_of(kafka: TopicAdmin, name: str, seen: list[bytes], **options: object) -> App:
    app = app_for(kafka)

    @app.consumer(name, **options)  # type: ignore[arg-type]
    def work(value: bytes) -> None:
        seen.append(value)

    return app


def make_anew(kafka: TopicAdmin, client: Client, name: str) -> None:
    kafka.delete_topic(name)
    kafka.create_topic(name)
    client.produce(name, [b"new-%d" % number for number in range(NEW)])


def new_ones(seen: list[bytes]) -> set[bytes]:
    return {value for value in seen if value.startswith(b"new")}


ALL_NEW = {b"new-%d" % number for number in range(NEW)}


def test_all_of_it_is_processed_while_the_consumer_runs_on(
    kafka: TopicAdmin, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identities, "LOOK_EVERY_S", 1.0)
    name, client, seen = topic(), Client(kafka), list[bytes]()
    client.produce(name, [b"old-%d" % number for number in range(OLD)])
    with Inside(app_of(kafka, name, seen)) as inside:
        until(lambda: client.committed("scenario.work", name)[0] == OLD, 20, "the old topic is done")
        make_anew(kafka, client, name)
        until(lambda: new_ones(seen) == ALL_NEW, 30, "every record of the new topic is processed")
        until(lambda: client.committed("scenario.work", name)[0] == NEW, 20, "and committed")
        (said,) = inside.log.of("topic_made_anew")
        assert said.level == "error"
        (moved,) = inside.log.of("position_in_a_topic_that_is_gone")
        assert moved.fields["policy"] == "earliest"
    first = [seen.index(value) for value in sorted(ALL_NEW, key=lambda value: int(value[4:]))]
    assert first[:OLD] == sorted(first[:OLD]), "what was below the old offset is read in order"


def test_the_next_member_does_not_trust_what_was_committed_for_the_old_topic(
    kafka: TopicAdmin, topic: TopicFactory
) -> None:
    name, client, seen = topic(), Client(kafka), list[bytes]()
    client.produce(name, [b"old-%d" % number for number in range(OLD)])
    with Inside(app_of(kafka, name, seen)):
        until(lambda: client.committed("scenario.work", name)[0] == OLD, 20, "the old topic is done")
        make_anew(kafka, client, name)
        until(lambda: client.committed("scenario.work", name)[0] == NEW, 20, "it went on at the old offset")
    assert new_ones(seen) != ALL_NEW, "nobody has noticed, for nobody has looked yet"

    with Inside(app_of(kafka, name, seen)) as second:
        until(lambda: new_ones(seen) == ALL_NEW, 20, "every record of the new topic is processed")
        until(lambda: client.committed("scenario.work", name)[0] == NEW, 20, "and committed")
        assert second.log.of("commit_of_a_topic_that_is_gone")


def test_with_auto_offset_reset_error_the_consumer_halts_instead_of_choosing(
    kafka: TopicAdmin, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identities, "LOOK_EVERY_S", 0.5)
    name, client, seen = topic(), Client(kafka), list[bytes]()
    client.produce(name, [b"old-%d" % number for number in range(OLD)])
    client.commit("scenario.work", name, 0)
    with Inside(app_of(kafka, name, seen, auto_offset_reset="error"), code=4) as inside:
        until(lambda: client.committed("scenario.work", name)[0] == OLD, 20, "the old topic is done")
        make_anew(kafka, client, name)
        until(lambda: inside.ended, 30, "it stops")


def test_a_topic_that_stays_the_same_is_left_alone(
    kafka: TopicAdmin, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identities, "LOOK_EVERY_S", 0.1)
    name, client, seen = topic(), Client(kafka), list[bytes]()
    client.produce(name, [b"old-%d" % number for number in range(OLD)])
    with Inside(app_of(kafka, name, seen)) as inside:
        until(lambda: client.committed("scenario.work", name)[0] == OLD, 20, "it is done")
        heard = inside.loop.identities._heard_at
        until(lambda: inside.loop.identities._heard_at > heard + 0.3, 20, "it was looked at again, more than once")
    with Inside(app_of(kafka, name, seen)):
        client.produce(name, [b"one more"])
        until(lambda: client.committed("scenario.work", name)[0] == OLD + 1, 20, "it goes on where it was")
    assert len(seen) == OLD + 1
