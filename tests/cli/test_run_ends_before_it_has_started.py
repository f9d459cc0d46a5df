"""Between the start of the process and the first record there is nothing to drain: a signal is a clean end."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from keepfast.cli import main
from tests.support.command import APP, running
from tests.support.waiting import DEADLINE_S, wait_until

SLOW_IMPORT = "import pathlib, time\npathlib.Path('importing').touch()\ntime.sleep(60)\n" + APP


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_by_a_signal_during_the_import_of_the_app(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "slow.py").write_text(SLOW_IMPORT)
    printed = tmp_path / "printed"
    with running("run", "slow:app", cwd=tmp_path, printed=printed) as process:
        wait_until((tmp_path / "importing").exists, "the import")
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == 0
    assert printed.read_text() == "Stopped before startup finished.\n"


def test_at_once_by_a_second_one_if_the_import_does_not_listen(tmp_path: Path) -> None:
    stubborn = """
import pathlib, time
while True:
    try:
        pathlib.Path("importing").touch()
        time.sleep(60)
    except BaseException:
        pathlib.Path("held").touch()
"""
    (tmp_path / "stubborn.py").write_text(stubborn)
    with running("run", "stubborn:app", cwd=tmp_path, printed=tmp_path / "printed") as process:
        wait_until((tmp_path / "importing").exists, "the import")
        process.send_signal(signal.SIGTERM)
        wait_until((tmp_path / "held").exists, "the first one is caught")
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 143


def test_with_130_if_ctrl_c_comes_before_the_command_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str) -> object:
        raise KeyboardInterrupt(name)

    monkeypatch.setattr("keepfast.cli.importlib.import_module", interrupted)
    done = CliRunner().invoke(main, ["dev", "app:app"])
    assert (done.exit_code, "Stopped." in done.output, "Aborted" in done.output) == (130, True, False)
