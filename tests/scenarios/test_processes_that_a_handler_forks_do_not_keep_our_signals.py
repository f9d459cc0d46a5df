"""A child that a handler forks gets the signals as if keepfast were not there: it ends by the first one, and the parent
continues.
"""

from __future__ import annotations

import pytest

from tests.scenarios.conftest import MakeScene
from tests.scenarios.scene import Work
from tests.support.waiting import wait_until


@pytest.mark.parametrize(("how", "code"), [(b"terminate", -15), (b"interrupt", 1)])
def test_a_forked_child_ends_by_the_first_signal(make_scene: MakeScene, how: bytes, code: int) -> None:
    scene = make_scene()
    scene.send([Work(value=how)])
    member = scene.member(app="forking.py")
    journal = scene.journal.path
    wait_until(lambda: journal.exists() and len(journal.read_text().splitlines()) == 2, "the handler ends")
    assert journal.read_text().splitlines() == ["child", f"{how.decode()} {code}"]
    scene.wait_committed()
    assert member.stop() == 0, "its own signals are what they were"
