"""P7, P8: a downstream hangs for long, the breaker is open, and no more of the handlers that hang may be abandoned:
liveness fails, and the process is restarted again and again, each time past its deadline. No record is to blame:
nothing is dead-lettered as CRASHED, and when the downstream answers everything is processed.
"""

from __future__ import annotations

from pathlib import Path

from keepfast.testing.topics import TopicAdmin
from tests.scenarios.conftest import MakeScene
from tests.scenarios.dead_letter_topic import letters
from tests.scenarios.member import Member
from tests.scenarios.scene import Scene, Work
from tests.support.waiting import DEADLINE_S

BEFORE_ANYBODY_COUNTS, MOST = 2, 1
RECORDS, WORKERS, ABANDONED = 8, 4, 2


def start(scene: Scene, folder: Path) -> Member:
    return scene.member(
        {
            "consumer.group_instance_id": f"static-{scene.topic}",
            "consumer.max_deliveries": MOST,
            "consumer.order": "none",
            "consumer.concurrency": WORKERS,
            "consumer.timeout_s": 1.0,
            "consumer.max_abandoned": ABANDONED,
            "breaker.enabled": "true",
            "breaker.failures": ABANDONED,
            "breaker.open_s": 60,
            "dead_letter.topic": "{topic}.dlq",
            "shutdown.timeout_s": 2.0,
            "state.dir": folder,
        }
    )


def test_records_that_hang_in_an_outage_are_not_taken_for_killers(
    kafka: TopicAdmin, make_scene: MakeScene, tmp_path: Path
) -> None:
    scene = make_scene()
    downstream = scene.gate()
    sent = scene.send([Work(gate=downstream) for _ in range(RECORDS)])
    for life in range(BEFORE_ANYBODY_COUNTS + MOST + 1):
        member = start(scene, tmp_path)
        member.wait_event("breaker_opened")
        member.wait_event("handler_overdue")  # nothing more can be abandoned: only a restart helps
        assert member.stop() == 5, life
        assert member.events("handlers_never_ended") == [], life
    scene.open_gate(downstream)
    last = start(scene, tmp_path)
    scene.wait_committed()
    assert last.stop() == 0
    name = f"{scene.topic}.dlq"
    partitions = len(kafka.admin.list_topics(name, timeout=DEADLINE_S).topics[name].partitions)
    assert [letter.error_code for letter in letters(kafka, name, partitions)] == []
    assert {one.id for one in sent} <= scene.journal.ended()
