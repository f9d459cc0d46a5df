"""P7: a record that ends the process whenever it is handled is found and dead-lettered; those beside it are not, and a
process that is killed from outside dead-letters nobody.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from keepfast.core import commit_metadata
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.scenarios.conftest import MakeScene
from tests.scenarios.journal import Id, Journal
from tests.scenarios.member import Member
from tests.scenarios.reconcile import reconcile
from tests.scenarios.scene import Scene, Sent, Work
from tests.support.broker_client import Client
from tests.support.running_app import RunningApp, app_for
from tests.support.waiting import DEADLINE_S, wait_until

BEFORE_ANYBODY_COUNTS = 2
"""Deaths of a killer that leave only marks behind."""

KILLER = Work(key=b"\xfe\x00", failures=99, error="exit", code=9, headers=[("how", b"\xff\x00"), ("how", None)])


def settings(scene: Scene, **more: object) -> dict[str, object]:
    """A static member gets its partitions back at once when it is started again."""
    return {
        "consumer.group_instance_id": f"static-{scene.topic}",
        "dead_letter.topic": "{topic}.dlq",
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def live_on(start: Callable[[], Member], is_done: Callable[[], bool], *, most: int) -> int:
    """Start it again whenever it has died, until it is done; stops the last one. Returns how often it died."""
    for deaths in range(most + 1):
        member = start()
        wait_until(lambda one=member: not one.running or is_done(), "it is done, or dies")  # type: ignore[misc]
        if member.running:
            assert member.stop() == 0
            return deaths
    raise AssertionError(f"it died {most + 1} times")


def dead_lettered(scene: Scene) -> dict[Id, dict[str, object]]:
    """What is in the letters, by record."""
    client = Client(scene.broker)
    name = f"{scene.topic}.dlq"
    found = {}
    for partition in range(len(scene.broker.admin.list_topics(name, timeout=DEADLINE_S).topics[name].partitions)):
        for number in range(client.edges(name, partition)[1]):
            letter = client.read(name, number + 1, partitions=partition + 1)[-1]
            fields = json.loads(letter.value())
            origin = Id(fields["original_topic"], fields["original_partition"], fields["original_offset"])
            found[origin] = fields | {"key": letter.key(), "headers": letter.headers()}
    return found


def assert_buried_as_it_was(scene: Scene, killer: Sent) -> None:
    letters = dead_lettered(scene)
    assert list(letters) == [killer.id]
    fields = letters[killer.id]
    assert fields["error_code"] == "CRASHED"
    number = scene.sent.index(killer)
    payload = killer.work.payload(number) or b""
    assert fields["original_message"] == json.loads(payload)
    if "original_bytes" in fields:
        assert b64decode(str(fields["original_bytes"])) == payload
    assert fields["key"] == killer.key
    assert list(fields["headers"])[: len(killer.work.headers)] == list(killer.work.headers)  # type: ignore[call-overload]


def assert_nothing_else_lost(scene: Scene, killer: Sent) -> None:
    """Order aside: to the journal, what follows the killer in its lane starts before the killer has ended."""
    reconcile(scene, order="none", finished_otherwise=[killer.id]).assert_nothing_lost()


def is_through(scene: Scene, *but: Sent) -> bool:
    """Whether all others have ended and everything is committed."""
    wanted = {one.id for one in scene.sent} - {one.id for one in but}
    if not wanted <= scene.journal.ended():
        return False
    ends = Counter(one.id.partition for one in scene.sent)
    return {p: offset for p, offset in scene.committed().items() if offset} == dict(ends)


def starts_of(journal: Journal, record: Id) -> int:
    return sum(entry.id == record for entry in journal.of("start"))


def test_the_supervisor_restarts_until_it_is_dead_lettered(make_scene: MakeScene) -> None:
    scene = make_scene()
    *_, killer = scene.send([Work(), Work(), KILLER])
    scene.send([Work(), Work()])
    member = scene.member(settings(scene, consumer__max_deliveries=1), arguments=["--processes", "1"])
    wait_until(lambda: is_through(scene, killer), "all others are done, and everything is committed")
    assert member.stop() == 0
    assert starts_of(scene.journal, killer.id) == BEFORE_ANYBODY_COUNTS + 1
    assert_buried_as_it_was(scene, killer)
    assert_nothing_else_lost(scene, killer)


def test_those_in_flight_beside_it_are_not_dead_lettered(make_scene: MakeScene) -> None:
    """Key order, 8 workers, the default of 3 counted starts: it is dead-lettered after its fifth death."""
    scene = make_scene(partitions=2)
    scene.send(Work(key=b"%d" % number, partition=number % 2, sleep_s=0.15) for number in range(6))
    [killer] = scene.send([replace(KILLER, partition=0, sleep_s=0.1)])
    scene.send(Work(key=b"%d" % number, partition=number % 2, sleep_s=0.15) for number in range(10, 30))
    own = settings(scene, consumer__order="key", consumer__concurrency=8)
    deaths = live_on(lambda: scene.member(own), lambda: is_through(scene, killer), most=5)
    assert deaths == starts_of(scene.journal, killer.id) == BEFORE_ANYBODY_COUNTS + 3
    cut_off = [span for span in scene.journal.spans() if span.outcome is None]
    assert cut_off, "some were in flight beside it when it killed"
    assert_buried_as_it_was(scene, killer)
    assert_nothing_else_lost(scene, killer)


def test_a_killer_in_a_batch_is_found_alone(make_scene: MakeScene) -> None:
    """Batches of 10: the others of its batch die with it twice, and never again."""
    scene = make_scene()
    scene.send(Work(key=b"%d" % number) for number in range(14))
    [killer] = scene.send([KILLER])
    scene.send(Work(key=b"%d" % number) for number in range(20, 40))
    own = settings(scene, consumer__max_deliveries=2, consumer__order="key")
    deaths = live_on(lambda: scene.member(own, app="batched.py"), lambda: is_through(scene, killer), most=4)
    assert deaths == starts_of(scene.journal, killer.id) == BEFORE_ANYBODY_COUNTS + 2
    cut_off = Counter(span.id for span in scene.journal.spans() if span.outcome is None)
    assert cut_off, "some were in its batch"
    assert max(cut_off.values()) <= BEFORE_ANYBODY_COUNTS
    assert_buried_as_it_was(scene, killer)
    assert_nothing_else_lost(scene, killer)


def test_five_kills_from_outside_dead_letter_no_record(make_scene: MakeScene) -> None:
    scenes, rng = {order: make_scene(partitions=2) for order in ("partition", "key")}, Random(7)
    for scene in scenes.values():
        scene.send(Work(key=b"%d" % (number % 20), partition=number % 2, sleep_s=0.02) for number in range(200))

    def start(order: str) -> Member:
        return scenes[order].member(settings(scenes[order], consumer__order=order, consumer__concurrency=2))

    def kill_when_due(victims: dict[str, tuple[Member, int]]) -> bool:
        for order, (victim, least) in list(victims.items()):
            if len(scenes[order].journal.ended()) >= least:
                victim.kill()
                del victims[order]
        return not victims

    for _ in range(5):
        done = {order: len(scene.journal.ended()) for order, scene in scenes.items()}
        victims = {order: (start(order), done[order] + rng.randint(3, 25)) for order in scenes}
        wait_until(lambda those=victims: kill_when_due(those), "both have done some more")  # type: ignore[misc]
    for order, scene in scenes.items():
        assert live_on(lambda own=order: start(own), lambda own=scene: is_through(own), most=0) == 0  # type: ignore[misc]
        assert dead_lettered(scene) == {}
        reconcile(scene, order=order).assert_nothing_lost()


def test_a_suspect_runs_alone_in_the_process_beside_no_other_consumer(make_scene: MakeScene) -> None:
    left, right = make_scene(), make_scene()
    [killer] = left.send([replace(KILLER, sleep_s=0.1)])
    right.send(Work(sleep_s=0.2) for _ in range(20))
    own: dict[str, object] = {
        "consumer.topics": None,
        "consumer.group": None,
        "dead_letter.topic": "{topic}.dlq",
        "consumer.max_deliveries": 2,
    }
    for name, scene in (("left", left), ("right", right)):
        own |= {
            f"consumers.{name}.topics": scene.topic,
            f"consumers.{name}.group": scene.group,
            f"consumers.{name}.group_instance_id": f"static-{scene.topic}",
        }
    right_is_done = {one.id for one in right.sent}
    deaths = live_on(
        lambda: left.member(own, app="pair.py"),
        lambda: right_is_done <= left.journal.ended() and left.committed() == {0: 1},
        most=4,
    )
    assert deaths == BEFORE_ANYBODY_COUNTS + 2
    spans = left.journal.spans()
    deadly = [span for span in spans if span.id == killer.id]
    beside = [
        [other.id for other in spans if other.start.pid == one.start.pid and other.start.at < one.until < other.until]
        for one in deadly
    ]
    assert any(beside[:BEFORE_ANYBODY_COUNTS]), "the other consumer was at work when nobody was suspected"
    assert beside[BEFORE_ANYBODY_COUNTS:] == [[], []], "and not beside a suspect"
    assert list(dead_lettered(left)) == [killer.id]
    assert dead_lettered(right) == {}


def guard(metadata: str) -> str:
    """What the crash guard says in a commit at offset 2."""
    return commit_metadata.read(metadata, offset=2)[1]


@pytest.mark.parametrize(("most", "words"), [(3, True), (0, False), (None, False)])
def test_the_commit_has_records_in_flight_until_an_orderly_end(
    kafka: TopicAdmin, topic: TopicFactory, most: int | None, words: bool
) -> None:
    name, client, app, seen = topic(), Client(kafka), app_for(kafka), list[bytes]()

    @app.consumer(name, max_deliveries=most)
    def work(value: bytes) -> None:
        seen.append(value)

    client.produce(name, [b"1", b"2"])
    with RunningApp(app):
        wait_until(lambda: client.committed("scenario.work", name)[0] == 2, "both are committed")
        assert bool(guard(client.committed("scenario.work", name)[1])) is words
    offset, metadata = client.committed("scenario.work", name)
    assert (offset, guard(metadata)) == (2, "")
