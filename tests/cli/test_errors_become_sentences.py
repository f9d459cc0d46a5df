"""Each kind of error has its exit code and one readable text."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from keepfast.cli.errors import LoadError, error_message, exit_code_of, report_errors
from keepfast.core.errors import ConfigError, Fenced, Halt, KeepfastError, StartError
from tests.support.command import KEEPFAST, environment


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("wrong"), 2),
        (LoadError("nowhere"), 2),
        (StartError("no broker"), 3),
        (Halt("enough"), 4),
        (Fenced("another"), 6),
        (KeepfastError("what"), 1),
        (ZeroDivisionError("oops"), 1),
    ],
)
def test_with_the_exit_code_that_they_stand_for(error: Exception, code: int) -> None:
    assert exit_code_of(error) == code


def test_one_problem_is_a_sentence_and_several_are_a_list() -> None:
    assert error_message(ConfigError("a is wrong; do b")) == "a is wrong; do b"
    assert error_message(ConfigError("a", "b")) == "2 problems; nothing was started:\n  1. a\n  2. b"


def test_the_lines_of_a_start_error_are_kept_and_made_safe() -> None:
    assert error_message(StartError("No topic a.\nNo topic \x1b[2Jb.")) == "No topic a.\nNo topic \\x1b[2Jb."


def test_an_unexpected_error_names_its_place_and_the_way_to_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, report_errors(debug=False):
        raise KeyError("x\ny")
    printed = capsys.readouterr().err
    assert ended.value.code == 1
    assert printed.startswith("Error: Unexpected KeyError: ")
    assert "test_errors_become_sentences.py:" in printed
    assert "--debug" in printed
    assert len(printed.splitlines()) == 1


@pytest.mark.parametrize("command", [["explain", "ValueError"], ["monitoring", "app:app", "--help"], ["--version"]])
def test_a_reader_that_goes_away_gets_no_complaint(command: list[str], tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # as `head` does when it has seen enough
    try:
        done = subprocess.run(
            [*KEEPFAST, *command], cwd=tmp_path, env=environment(), stdout=writer, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writer)
    assert done.stderr == b""
    assert done.returncode == 1


def test_a_broken_pipe_elsewhere_is_an_error_like_others(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), report_errors(debug=False):
        raise BrokenPipeError("of a socket")
    assert "BrokenPipeError" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [[b"dlq", b"list", b"\xff.dlq"], [b"dlq", b"list", b"--brokers", b"\xff:1"], [b"\xff"], [b"run", b"\xff"]],
)
def test_an_argument_that_is_not_utf8_is_named(arguments: list[bytes], tmp_path: Path) -> None:
    command = [*(part.encode() for part in KEEPFAST), *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, check=False)
    assert done.returncode == 2
    assert b"is not UTF-8 text." in done.stderr
    assert b"\\udcff" in done.stderr
    assert b"Traceback" not in done.stderr
