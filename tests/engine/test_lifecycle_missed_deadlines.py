"""A shutdown that took too long is counted by the next process of the app, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from keepfast.core.exit_codes import EXIT_DEADLINE
from keepfast.engine.lifecycle import Lifecycle, MissedDeadlines
from tests.engine.test_lifecycle import StandIn
from tests.support.log_capture import LogCapture


def test_what_one_process_notes_the_next_one_takes_once(tmp_path: Path) -> None:
    with LogCapture() as log:
        assert MissedDeadlines(str(tmp_path), "shop").take() == 0
        for _ in range(2):
            MissedDeadlines(str(tmp_path), "shop").note()
        MissedDeadlines(str(tmp_path), "another/app").note()
        assert MissedDeadlines(str(tmp_path), "shop").take() == 2
        assert MissedDeadlines(str(tmp_path), "shop").take() == 0
        assert MissedDeadlines(str(tmp_path), "another/app").take() == 1
    assert [line.fields["times"] for line in log.of("previous_shutdown_timed_out")] == [2, 1]
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_used_counts_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    missed = MissedDeadlines(str(tmp_path / "file"), "shop")
    missed.note()
    assert missed.take() == 0


def test_a_deadline_that_passes_is_noted_whether_the_process_ends_hard_or_not(tmp_path: Path) -> None:
    missed, left = MissedDeadlines(str(tmp_path), "shop"), list[int]()

    def stopped(stuck: StandIn, timeout_s: float) -> int:
        threads: Any = [stuck]
        lifecycle = Lifecycle(threads, shutdown_timeout_s=timeout_s, leave=left.append, missed=missed.note)
        lifecycle.start()
        lifecycle.stop()
        return lifecycle.wait()

    assert stopped(StandIn(stuck=True), 0.2) == EXIT_DEADLINE
    assert left == [EXIT_DEADLINE]
    assert missed.take() == 1
    assert stopped(StandIn(), 30.0) == 0
    assert missed.take() == 0
