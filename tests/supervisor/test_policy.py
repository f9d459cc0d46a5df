"""The decisions, as values."""

from __future__ import annotations

import signal

import pytest

from keepfast.core.errors import ConfigError
from keepfast.supervisor import Report, RestartPolicy
from keepfast.supervisor.policy import exit_code, is_final
from keepfast.supervisor.process import describe_exit


def test_the_delay_doubles_up_to_thirty_seconds() -> None:
    policy = RestartPolicy()
    assert [policy.delay_s(deaths) for deaths in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]
    assert policy.delay_s(10_000) == 30


@pytest.mark.parametrize(("first", "most"), [(0, 1), (-1, 1), (2, 1), (float("nan"), 1)])
def test_delays_that_would_be_a_busy_loop_are_refused(first: float, most: float) -> None:
    with pytest.raises(ConfigError, match="first_delay_s"):
        RestartPolicy(first_delay_s=first, max_delay_s=most)


def test_usage_start_halt_and_fencing_are_final_and_nothing_else() -> None:
    assert {code for code in range(-64, 256) if is_final(code)} == {2, 3, 4, 6}


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([], 0),
        ([0, 0], 0),
        ([0, -signal.SIGTERM], 0),
        ([0, -signal.SIGINT], 0),
        ([0, 5], 5),
        ([5, 1], 1),
        ([0, -signal.SIGSEGV], 1),
        ([0, 77], 1),
        ([1, 5, 4], 4),
        ([4, 6, 1], 6),
        ([0, 3], 3),
    ],
)
def test_the_worst_of_the_children_is_the_exit_code(codes: list[int], expected: int) -> None:
    assert exit_code(codes, second_signal=None, cause=None, killed=False) == expected


def test_who_had_to_be_killed_missed_the_deadline() -> None:
    assert exit_code([0, -signal.SIGKILL], second_signal=None, cause=None, killed=True) == 5


def test_the_cause_goes_before_what_happened_to_the_others() -> None:
    assert exit_code([1, 5], second_signal=None, cause=3, killed=True) == 3


def test_a_second_signal_goes_before_everything() -> None:
    assert exit_code([4], second_signal=signal.SIGINT, cause=4, killed=True) == 130
    assert exit_code([], second_signal=signal.SIGTERM, cause=None, killed=False) == 143


@pytest.mark.parametrize("line", [b"", b"\xff\xfe", b"[]", b"null", b'{"shutdown_timeout_s": "soon"}', b"{"])
def test_what_is_no_report_is_none(line: bytes) -> None:
    assert Report.parse(line) is None


def test_a_report_survives_the_line() -> None:
    report = Report(shutdown_timeout_s=12.5, log_level="INFO", log_format="json")
    assert Report.parse(report.line()) == report


def test_an_ending_is_described() -> None:
    assert [describe_exit(4), describe_exit(-signal.SIGSEGV), describe_exit(-63)] == ["code 4", "SIGSEGV", "signal 63"]
