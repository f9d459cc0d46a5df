"""Records fail, are replayed, and the consumer tells the desk what became of each before it commits it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from keepfast import App, Discard, Reject
from keepfast.core.records import RecordPlace
from keepfast.desk import CaseFilter, CaseState, Desk, DeskOptions, ReplayPolicy, desk
from keepfast.engine import counts, outcomes
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client, NewRecord
from tests.support.members import connection
from tests.support.running_app import RunningApp
from tests.support.waiting import wait_until

COUNT = 40


class Shop:
    """An app whose handler refuses everything until it is repaired, and a desk."""

    def __init__(self, kafka: TopicAdmin, topic: TopicFactory, *, desk_topic: bool = True) -> None:
        self.client, self.source = Client(kafka), topic(partitions=2)
        self.dlq = topic(partitions=2, suffix=".dlq")
        self.desk_topic = topic(partitions=1, suffix=".desk") if desk_topic else f"{self.source}.desk"
        options = DeskOptions(topics=(self.dlq,), by="ada", desk_topic=self.desk_topic)
        self.desk = Desk(connection(kafka.bootstrap), options)
        self.repaired = False
        self.kafka = kafka

    def handle(self, order: dict[str, Any]) -> None:
        if not self.repaired or order["n"] % 10 == 9:
            raise Reject("not yet")
        if order["n"] % 10 == 8:
            raise Discard("not wanted")

    def states(self) -> dict[CaseState, int]:
        self.desk.refresh()
        return dict(self.desk.summary().counts)


@pytest.mark.parametrize("to", ["topic", "group"])
@pytest.mark.parametrize("order", ["key", "partition"])
def test_a_replayed_record_reports_what_became_of_it(
    kafka: TopicAdmin, topic: TopicFactory, to: Any, order: Any
) -> None:
    shop = Shop(kafka, topic)
    group = f"{shop.source}.group"
    if to == "group":
        kafka.create_topic(f"{shop.source}.{group}.replay", partitions=2, config={"retention.ms": str(8 * 86_400_000)})
    app = App("scenario", kafka={"brokers": kafka.bootstrap}, desk={"topic": shop.desk_topic})
    app.consumer(shop.source, dead_letter=shop.dlq, group=group, order=order)(shop.handle)
    records = [NewRecord(json.dumps({"n": n}).encode(), b"k%d" % (n % 4), (), n % 2) for n in range(COUNT)]
    try:
        with RunningApp(app):
            shop.client.produce(shop.source, records)
            wait_until(lambda: shop.states() == {CaseState.OPEN: COUNT}, "all are dead")
            shop.repaired = True
            plan = shop.desk.plan(CaseFilter(), ReplayPolicy(to=to))
            assert plan.records == COUNT
            fact = shop.desk.replayer(shop.desk.start(plan)).execute()
            assert (fact.status, fact.sent) == ("done", COUNT)
            bad = COUNT // 10
            wait_until(
                lambda: shop.states() == {CaseState.RESOLVED: COUNT - bad, CaseState.OPEN: bad}, "outcomes are there"
            )
            [case, *_] = shop.desk.cases(CaseFilter(states=frozenset([CaseState.OPEN]))).cases
            assert (case.letters, case.failed_again, case.badges) == (2, 1, ("failed again ×1",))
            found = shop.desk.case(case.id)
            assert found is not None
            assert [one.run for one in found.letters] == ["", fact.run]
            discarded = [
                one
                for case in shop.desk.index.selected(CaseFilter(states=frozenset([CaseState.RESOLVED])))
                for one in (shop.desk.case(case.id) or found).outcomes
                if one.kind == "discarded"
            ]
            assert len(discarded) == bad
            stored = shop.desk.letter(RecordPlace(*found.letters[-1].place))
            assert stored is not None
            assert stored.letter.replay_count == 1
    finally:
        shop.desk.close()


def test_a_run_that_its_canary_stopped_repeats_nothing_that_another_run_got_through(
    kafka: TopicAdmin, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NOTICED_S", "LETTERS_NOTICED_S"):  # the consumer knows the desk's topic from its start on
        monkeypatch.setattr(desk, name, 0.0)
    shop, effects = Shop(kafka, topic), list[int]()

    def handle(order: dict[str, Any]) -> None:
        if not shop.repaired:
            raise Reject("not yet")
        effects.append(order["n"])

    app = App("scenario", kafka={"brokers": kafka.bootstrap}, desk={"topic": shop.desk_topic})
    app.consumer(shop.source, dead_letter=shop.dlq, group=f"{shop.source}.group")(handle)
    records = [NewRecord(json.dumps({"n": n}).encode(), b"k%d" % n, (), n % 2) for n in range(5)]
    try:
        with RunningApp(app) as running:
            shop.client.produce(shop.source, records)
            wait_until(lambda: shop.states() == {CaseState.OPEN: 5}, "all are dead")
            fact = shop.desk.replayer(shop.desk.start(shop.desk.plan(CaseFilter(), ReplayPolicy(canary=1)))).execute()
            assert (fact.status, fact.sent, fact.why.partition(";")[0]) == (
                *("stopped", 1),
                "1 of the first 1 records failed again",
            )
            shop.repaired = True
            shop.desk.replayer(shop.desk.start(shop.desk.plan(CaseFilter(), ReplayPolicy()))).execute()
            wait_until(lambda: shop.states() == {CaseState.RESOLVED: 5}, "outcomes are there")
            resumed = shop.desk.replayer(shop.desk.resume(fact.run))
            fact = resumed.execute()
            assert (fact.status, fact.sent, fact.skipped) == ("done", 1, 4)
            assert {text.partition(": ")[2] for text in resumed.errors} == {"resolved since the run was planned"}
            shop.client.produce(shop.source, [NewRecord(b'{"n": 5}', b"k", (), partition) for partition in (0, 1)])
            wait_until(lambda: running.loop.counts.processed >= 7 and effects.count(5) == 2, "what was sent is read")
        assert sorted(effects) == [*range(5), 5, 5]
    finally:
        shop.desk.close()


@pytest.mark.long
def test_a_canary_goes_through_also_where_the_consumer_reports_nothing(kafka: TopicAdmin, topic: TopicFactory) -> None:
    shop = Shop(kafka, topic)
    kafka.delete_topic(shop.desk_topic)
    app = App("scenario", kafka={"brokers": kafka.bootstrap}, desk={"topic": shop.desk_topic})
    app.consumer(shop.source, dead_letter=shop.dlq, group=f"{shop.source}.group")(shop.handle)
    records = [NewRecord(json.dumps({"n": n % 8}).encode(), b"k", (), n % 2) for n in range(COUNT)]
    try:
        with RunningApp(app):
            shop.client.produce(shop.source, records)
            wait_until(lambda: shop.states() == {CaseState.OPEN: COUNT}, "all are dead")
            shop.repaired = True
            [case, *_] = shop.desk.cases().cases
            shop.desk.note(case.id, "the first action, which makes the topics")
            plan = shop.desk.plan(CaseFilter(), ReplayPolicy(canary=5))
            fact = shop.desk.replayer(shop.desk.start(plan)).execute()
            assert (fact.status, fact.sent) == ("done", COUNT)
            resolved = {CaseState.RESOLVED: COUNT}
            wait_until(lambda: shop.desk.infer_outcomes() >= 0 and shop.states() == resolved, "all are through")
    finally:
        shop.desk.close()


@pytest.mark.parametrize("options", [{"order": "key"}, {"order": "queue", "configure_group": True}])
def test_the_first_replay_to_a_group_needs_no_restart(
    kafka: TopicAdmin, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch, options: Any
) -> None:
    """When the consumer starts, there is neither a desk nor a topic for replays."""
    for place, name in ((outcomes, "SOON_S"), (counts, "ASK_S"), (desk, "NOTICED_S"), (desk, "LETTERS_NOTICED_S")):
        monkeypatch.setattr(place, name, 2.0)
    shop = Shop(kafka, topic, desk_topic=False)
    group = f"{shop.source}.group"
    app = App("scenario", kafka={"brokers": kafka.bootstrap}, desk={"topic": shop.desk_topic})
    app.consumer(shop.source, dead_letter=shop.dlq, group=group, **options)(shop.handle)
    records = [NewRecord(json.dumps({"n": n}).encode(), b"k%d" % (n % 4), (), n % 2) for n in range(7)]
    try:
        with RunningApp(app) as running:
            shop.client.produce(shop.source, records)
            wait_until(lambda: shop.states() == {CaseState.OPEN: 7}, "all are dead")
            shop.repaired = True
            fact = shop.desk.replayer(shop.desk.start(shop.desk.plan(CaseFilter(), ReplayPolicy(to="group")))).execute()
            assert (fact.status, fact.sent) == ("done", 7)
            wait_until(lambda: shop.states() == {CaseState.RESOLVED: 7}, "outcomes are there", timeout_s=60)
            assert running.loop.subscription.every == (shop.source, f"{shop.source}.{group}.replay")
            shop.client.produce(shop.source, records[:1])  # its own topic is still read
            wait_until(lambda: running.loop.counts.processed == 8, "another record is processed")
    finally:
        shop.desk.close()
