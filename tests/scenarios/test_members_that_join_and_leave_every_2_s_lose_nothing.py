"""P1-P6: three members, one of which joins or leaves every 2 s for a minute (with `make test`: half of one), while
there is always work in flight.
"""

from __future__ import annotations

import time

import pytest

from tests.scenarios.conftest import MakeScene
from tests.scenarios.member import Member
from tests.scenarios.reconcile import reconcile
from tests.scenarios.scene import Work
from tests.support.thorough import THOROUGH
from tests.support.waiting import wait_until

PARTITIONS, KEYS, PLACES = 6, 12, 3
EVERY_S, FOR_S = 2.0, 60.0 if THOROUGH else 30.0
RECORDS_A_TICK, HANDLER_S = 120, 0.1  # half of what all keys together can take


@pytest.mark.timeout(360)
def test_members_that_join_and_leave_every_2_s_lose_nothing(make_scene: MakeScene) -> None:
    scene = make_scene(partitions=PARTITIONS)
    places: list[Member | None] = [scene.member({"consumer.order": "key"}) for _ in range(PLACES)]
    left: list[Member] = []
    began = time.monotonic()
    ticks = int(FOR_S / EVERY_S)

    def in_motion() -> bool:
        return len(scene.history().generations) >= ticks / 2

    for tick in range(2 * ticks):
        if tick >= ticks and in_motion():  # on a busy machine processes take their time to join
            break
        records = RECORDS_A_TICK if tick < ticks else KEYS
        scene.send(Work(key=b"key-%d" % (number % KEYS), sleep_s=HANDLER_S) for number in range(records))
        time.sleep(max(0.0, began + (tick + 1) * EVERY_S - time.monotonic()))  # the pace, not a wait for something
        leaving = places[tick % PLACES]
        if leaving is not None:
            wait_until(leaving.events, "it has begun, and hears signals")
            leaving.terminate()
            left.append(leaving)
            places[tick % PLACES] = None
        else:
            places[tick % PLACES] = scene.member({"consumer.order": "key"})
    if not any(places):
        places[0] = scene.member({"consumer.order": "key"})

    scene.wait_all_ended(timeout_s=120)
    scene.wait_committed()
    assert [member.wait() for member in left] == [0] * len(left)
    assert [member.stop() for member in places if member is not None] == [0] * sum(map(bool, places))
    findings = reconcile(scene, order="key")
    findings.assert_exactly_once()
    findings.assert_committed_each()
    assert in_motion(), "the group was in motion indeed"
