"""The tutorial, done by a machine: the same files, the same commands in the same order, the same output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.blocks import ROOT, blocks_of
from tests.docs.commands import Command, commands
from tests.support.waiting import wait_until

TIMEOUT_S = 60.0
_VARIES = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:]+Z|\b[0-9a-f]{12}\b|(?<=partition )\d|127\.0\.0\.1:\d+|(?<=Watching )\S+"
    r"|(?<=\. Run )\d{8}-\d{6}-[0-9a-f]{6}|(?<=--cause )\w{6}|(?<=orders\.payment\.dlq )1:\d"
    r"|(?<=So far )\d+ processed|\d+ under way|(?<=token=)\S+|\S+/(?=app\.py:)|(?<=oldest )\d+ \w+"
)


def alike(text: str) -> list[str]:
    """Without times, fingerprints of paths, partitions and addresses; spaces between columns do not count."""
    return [" ".join(_VARIES.sub("*", line).split()) for line in text.strip().splitlines()]


class Terminal:
    """Where `keepfast dev` runs, and where the other commands are typed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {
            name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "KEEPFAST_"))
        }
        self._output = folder / "dev.log"
        self._dev: subprocess.Popen[bytes] | None = None

    def start(self, command: Command) -> None:
        with self._output.open("wb") as output:
            self._dev = subprocess.Popen(
                [sys.executable, "-u", "-m", *command.words],
                cwd=self.folder,
                env=self.environ,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def run(self, command: Command) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *command.words],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # a reader sees both
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def see(self, text: str, times: int = 1) -> str:
        """Wait until `keepfast dev` has printed this."""
        wait_until(lambda: self._printed().count(text) >= times or self._stopped(), f"{text!r} is printed")
        assert self._printed().count(text) >= times, self._printed()
        return self._printed()

    def _printed(self) -> str:
        return self._output.read_text() if self._output.exists() else ""

    def _stopped(self) -> bool:
        return self._dev is not None and self._dev.poll() is not None

    def close(self) -> int:
        assert self._dev is not None
        self._dev.terminate()
        return self._dev.wait(TIMEOUT_S)


def test_every_step_does_what_it_says(tmp_path: Path) -> None:
    page = blocks_of(ROOT / "docs" / "tutorial.md")
    first, repaired = [block.text for block in page if block.title == "app.py"]
    steps = [command for block in page if block.language == "console" for command in commands(block)]
    dev, send, reject, garbage, fine, listed, replay, _ = steps
    terminal = Terminal(tmp_path)
    (tmp_path / "app.py").write_text(first)
    terminal.start(dev)
    try:
        printed_text = terminal.see("partitions_assigned")
        assert alike(dev.prints) == alike(printed_text)[: len(alike(dev.prints))]
        assert alike(terminal.run(send)) == alike(send.prints)
        terminal.see("charged a1: 12")
        for command in (reject, garbage, fine):
            terminal.run(command)
        terminal.see("charged a4: 7")
        terminal.see("dead_lettered", times=2)
        assert sorted(alike(terminal.run(listed))) == sorted(alike(listed.prints))
        (tmp_path / "app.py").write_text(repaired)
        terminal.see("partitions_assigned", times=2)
        printed = terminal.run(replay)
        expected = replay.prints if " 0 under way" not in printed else replay.prints.partition("To follow them")[0]
        assert alike(printed) == alike(expected)
        terminal.see("refunded a2: -5")
    finally:
        assert terminal.close() == 0
