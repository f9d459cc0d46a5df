"""`keepfast demo`, from end to end: on the embedded broker; once on a real one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, Request, build_opener

import pytest

from tests.support.command import KEEPFAST, environment, running
from tests.support.waiting import wait_until

LOSING_SHOP = Path(__file__).parents[1] / "demo" / "losing_shop.py"
DEADLINE_S = 100.0


def demo(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*KEEPFAST, "demo", *arguments],
        cwd=cwd,
        # What a user has set for apps of their own is not for the demo.
        env=environment(KAFKA_BROKERS="127.0.0.1:1", KEEPFAST_CONSUMER_ORDER="none", MAX_RETRIES="nonsense"),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def assert_it_shows_everything(done: subprocess.CompletedProcess[str], *, records: int) -> None:
    assert done.returncode == 0, done.stderr
    account: dict[str, Any] = json.loads(done.stdout)
    assert account["sent"] == records == account["processed"] + account["dead_lettered"] + account["discarded"]
    assert account["lost"] == account["out_of_order"] == account["strangers"] == 0
    assert account["dead_lettered"] > 0
    assert account["discarded"] > 0
    assert account["replayed"] == account["processed_after_replay"] > 1
    assert account["deaths"] == 3
    assert sum(account["repeated_because"].values()) == account["repeated"]
    assert "not explained" not in account["repeated_because"]
    reported = iter(done.stderr.splitlines())
    for words in (
        "embedded in this process" if "embedded" in done.stderr else "a real Apache Kafka",
        f"{records:,} orders of 120 customers sent",
        "is down",
        "open: orders wait",
        "closed after",
        "crashed (SIGSEGV)",
        "runs alone now",
        "crashed (SIGSEGV)",
        "crashes its process at every attempt: it alone is dead-lettered",
        "Why orders are in shop.order.dlq",
        "invalid literal",
        "release 1.0 drained (exit code 0)",
        "keepfast dlq replay shop.order.dlq --cause",
        f"Replayed {account['replayed']} records; all are confirmed.",
        "The account, read from the topics by another process",
        f"lost 0: all {records:,} orders are accounted for",
    ):
        assert any(words in line for line in reported), f"{words!r} is missing, or not in its place, in:\n{done.stderr}"
    assert "ConnectionResetError" not in done.stderr, "no order is dead-lettered for an outage"
    assert "\x1b" not in done.stderr, "no terminal: no codes for one"


def test_it_shows_everything_and_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "keepfast.toml").write_text('[consumers.mine]\nconsumer.topics = ["of.my.own"]\n')
    assert_it_shows_everything(demo("--json", "--records", "2000", "--seed", "11", cwd=tmp_path), records=2000)
    assert [path.name for path in tmp_path.iterdir()] == ["keepfast.toml"]


@pytest.mark.long
def test_it_does_so_on_a_real_broker(tmp_path: Path) -> None:
    assert_it_shows_everything(demo("--json", "--kafka", cwd=tmp_path), records=4000)


def test_an_engine_that_loses_a_record_is_found_out_and_it_stays_up_to_be_looked_at(tmp_path: Path) -> None:
    """By the same account, with exit code 1; outage and killer are left out."""
    printed, shop = tmp_path / "printed", f"{LOSING_SHOP}:app"
    with running(
        "demo", "--stay", "--calm", "--records", "200", "--shop", shop, cwd=tmp_path, printed=printed
    ) as process:
        wait_until(lambda: "until Ctrl-C" in printed.read_text(), "all is told, and it stays up", timeout_s=DEADLINE_S)
        assert "lost 1: this must not happen" in printed.read_text()
        command = next(line for line in printed.read_text().splitlines() if "keepfast dlq causes" in line).split()
        listed = subprocess.run(
            [*KEEPFAST, *command[1:]], capture_output=True, text=True, timeout=60, check=True, env=environment()
        )
        assert "shop.order.dlq: " in listed.stdout
        screen = logged_in(printed.read_text())
        wait_until(lambda: "All consumers are well." in screen("/consumers"), "the desk shows the consumer")
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 1, "the account decides: Ctrl-C is the end that was asked for"


def test_ctrl_c_ends_it_and_everything_it_started(tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    mark = f"DEMO_OF_A_TEST={os.getpid()}"
    with running("demo", cwd=tmp_path, printed=printed, **dict([mark.split("=")])) as process:
        wait_until(
            lambda: "partitions and is running" in printed.read_text(), "the consumer runs", timeout_s=DEADLINE_S
        )
        assert len(marked(mark)) >= 3, "the demo, the supervisor, the consumer"
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
    wait_until(lambda: not marked(mark), "all of its processes are gone")
    assert printed.read_text().endswith("Stopped.\n")
    assert "Traceback" not in printed.read_text()


def logged_in(printed: str) -> Callable[[str], str]:
    """Screens of the desk whose address was printed, by their path."""
    [(address, token)] = re.findall(r"Dead letters: (http://[^/]+)/login#token=(\S+)", printed)
    browser = build_opener(HTTPCookieProcessor())
    login = Request(f"{address}/login", urlencode({"token": token}).encode(), {"Origin": address})
    browser.open(login, timeout=30).close()

    def screen(path: str) -> str:
        with browser.open(f"{address}{path}", timeout=30) as answer:
            return str(answer.read(), "utf-8")

    return screen


def marked(mark: str) -> Sequence[int]:
    """Processes that have this variable in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue  # gone meanwhile, or somebody else's
    return found
