"""`App(lifespan=…)`: entered before the first handler, on its event loop, and left after the last, however it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.conftest import MakeScene
from tests.scenarios.member import Member
from tests.scenarios.scene import Scene, Work
from tests.support.waiting import DEADLINE_S, wait_until


class Living:
    """A member with a lifespan, and what it has noted."""

    def __init__(self, scene: Scene, kind: str = "", *, shutdown_s: float = 30) -> None:
        self.journal = scene.folder / "life"
        self.member: Member = scene.member(
            {"shutdown.timeout_s": shutdown_s},
            app="living.py",
            variables={"LIFESPAN_JOURNAL": str(self.journal), "LIFESPAN_KIND": kind},
        )

    @property
    def lines(self) -> list[str]:
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    def wait_for(self, line: str) -> None:
        wait_until(lambda: line in self.lines or not self.member.running, f"it notes {line!r}")
        assert line in self.lines, self.member.log()

    def open_gate(self) -> None:
        Path(self.journal).with_suffix(".gate").touch()


@pytest.mark.parametrize("kind", ["", "sync"])
def test_a_signal_drains_first_and_then_it_is_left(make_scene: MakeScene, kind: str) -> None:
    scene = make_scene()
    scene.send([Work(value=b"1"), Work(value=b"2")])
    living = Living(scene, kind)
    living.wait_for("begun 1")
    living.member.terminate()
    living.member.wait_event("drain_started")
    living.open_gate()
    assert living.member.wait(DEADLINE_S) == 0
    assert living.lines == ["entered", "begun 1", "ended 1", "left"]
    assert scene.committed() == {0: 1}


def test_a_halt_leaves_it_too(make_scene: MakeScene) -> None:
    scene = make_scene()
    scene.send([Work(value=b"halt")])
    living = Living(scene)
    assert living.member.wait(DEADLINE_S) == 4
    assert living.lines == ["entered", "begun halt", "left"]


@pytest.mark.parametrize("value", [b"1", b"block"])
def test_a_drain_past_its_deadline_leaves_it_the_reserved_time(make_scene: MakeScene, value: bytes) -> None:
    scene = make_scene()
    scene.send([Work(value=value)])
    living = Living(scene, shutdown_s=4)
    living.wait_for(f"begun {value.decode()}")
    living.member.terminate()
    assert living.member.wait(DEADLINE_S) == 5
    left = ["left"] if value == b"1" else []  # nothing can run on an event loop that a handler blocks
    assert living.lines == ["entered", f"begun {value.decode()}", *left]


def test_one_that_fails_before_it_yields_starts_nothing(make_scene: MakeScene) -> None:
    living = Living(make_scene(), "fails at its start")
    assert living.member.wait(DEADLINE_S) == 3
    assert "The lifespan of app 'scenario' failed before it yielded: ConnectionError: no database." in (
        living.member.log()
    )
    assert living.lines == []


def test_one_that_fails_at_its_end_is_logged_and_the_exit_code_is_1(make_scene: MakeScene) -> None:
    living = Living(make_scene(), "fails at its end")
    living.wait_for("entered")
    living.member.wait_assigned(1)
    assert living.member.stop() == 1
    assert living.member.wait_event("lifespan_failed")["exc"] == "ConnectionError: no database"


def test_one_that_does_not_end_is_cancelled_at_the_deadline(make_scene: MakeScene) -> None:
    living = Living(make_scene(), "slow", shutdown_s=4)
    living.member.wait_assigned(1)
    assert living.member.stop() == 5
    assert "was not left within" in living.member.wait_event("lifespan_failed")["exc"]
    assert living.lines == ["entered"]
