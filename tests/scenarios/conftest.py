"""What the scenarios share: a scene on the broker of the session. See scene.py, member.py and reconcile.py.

Members are classic ones with a short session. Those of UNDER_BOTH_PROTOCOLS run a second time under KIP-848; with `make
test-full` all do, except CLASSIC_ONLY.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from keepfast.testing.broker import KafkaBroker
from keepfast.testing.pytest_plugin import TopicFactory
from tests.scenarios.scene import Scene

UNDER_BOTH_PROTOCOLS = frozenset(
    {
        "test_a_handler_slower_than_max_poll_interval_is_not_evicted",
        "test_a_handler_that_hangs_is_timed_out_and_its_record_dead_lettered",
        "test_a_letter_that_cannot_be_sent_in_time_is_no_clean_end",
        "test_a_member_killed_with_kill_9_mid_work_loses_nothing",
        "test_a_member_stopped_past_its_session_is_fenced_off",
        "test_a_member_that_halts_ends_the_app_with_code_4",
        "test_a_revoke_during_work_waits_for_the_record_in_hand",
        "test_a_second_signal_ends_it_now",
        "test_records_in_flight_beside_a_dead_process_with_completion_map_are_not_repeated",
        "test_sigterm_mid_handler_finishes_it_and_commits",
        "test_two_consumers_of_one_app_run_side_by_side",
        "test_what_a_handler_sends_is_acknowledged_before_its_record_is_finished",
    }
)
CLASSIC_ONLY = {
    # tests/kafka/test_source_membership.py
    "test_a_fenced_static_member_ends_with_code_6": "a name that is taken is waited for",
    "test_a_stop_while_the_group_rebalances_is_clean_if_all_is_committed": "commits do not wait for a join",
    "test_a_static_member_killed_between_two_rounds_leaves_no_partition_without_an_owner": "it has no rounds",
}
"""Why a file says nothing under KIP-848."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    file = metafunc.definition.path.stem
    chosen = file in UNDER_BOTH_PROTOCOLS or (os.environ.get("THOROUGH_TESTS") and file not in CLASSIC_ONLY)
    if chosen and "make_scene" in metafunc.fixturenames:
        metafunc.parametrize("group_protocol", ["classic", "consumer"], indirect=True)


@pytest.fixture
def group_protocol(request: pytest.FixtureRequest) -> str:
    protocol: str = getattr(request, "param", "classic")
    return protocol


MakeScene = Callable[..., Scene]


@pytest.fixture
def make_scene(kafka: KafkaBroker, topic: TopicFactory, tmp_path: Path, group_protocol: str) -> Iterator[MakeScene]:
    """`make_scene(partitions=4)`: a scene with a topic of its own. Its members' logs are shown when the test fails."""
    scenes: list[Scene] = []

    def make(*, partitions: int = 1) -> Scene:
        folder = tmp_path / f"scene-{len(scenes) + 1}"
        folder.mkdir()
        scene = Scene(kafka, folder, topic=topic(partitions=partitions), group_protocol=group_protocol)
        scenes.append(scene)
        return scene

    yield make
    for scene in scenes:
        scene.__exit__(None, None, None)
        sys.stdout.write(scene.logs())
