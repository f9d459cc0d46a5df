"""A plugin of pytest: a test marked `timing` that fails is run again, at most twice. Others never are.

What else the machine does can make something late once; a defect makes it late three times. The summary of the run
counts the repeated runs and names their tests.
"""

from __future__ import annotations

from typing import Final

import pytest
from _pytest.runner import runtestprotocol  # has no public name; pytest-rerunfailures imports it, too

RUNS: Final = 3
REPEATED: Final = "repeated"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if item.get_closest_marker("timing") is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for number in range(1, RUNS + 1):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        failed = [report for report in reports if report.failed]
        if number == RUNS or [report.when for report in failed] != ["call"]:
            break
        failed[0].outcome = "passed"  # the last run decides
        failed[0].user_properties.append((REPEATED, number))
        item.ihook.pytest_runtest_logreport(report=failed[0])
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_report_teststatus(report: pytest.CollectReport | pytest.TestReport) -> tuple[str, str, str] | None:
    if not isinstance(report, pytest.TestReport) or report.when != "call":  # an error of a collection is none of a test
        return None
    is_repeated = any(name == REPEATED for name, _ in report.user_properties)
    return (REPEATED, "R", "REPEATED") if is_repeated else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.stats.get(REPEATED, ()):
        reason = getattr(getattr(report.longrepr, "reprcrash", None), "message", str(report.longrepr))
        terminalreporter.write_line(f"REPEATED {report.nodeid} - {reason.splitlines()[0]}")
