"""`keepfast dev`: an app of one's own on a broker that is made for it, found by commands in another terminal."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from keepfast import App
from keepfast.cli import dev_registry
from keepfast.cli.connection import connection_for
from keepfast.cli.control_client import ControlClient
from keepfast.cli.dev import closing_message
from keepfast.cli.dev_environment import DevEnvironment
from keepfast.cli.dev_registry import DevBroker
from keepfast.cli.dlq_options import open_desk
from keepfast.core.errors import ConfigError
from keepfast.testing import EmbeddedBroker
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.command import keepfast, running
from tests.support.waiting import DEADLINE_S, wait_until

APP = """
from keepfast import App, Reject, RetryPolicy, RetryTopics

app = App("payments")

@app.consumer(
    "orders.payment.v1",
    retry=RetryPolicy(max_retries=0),
    retry_topics=RetryTopics(delays=("1s",), allow_reorder=True),
)
def charge(payment: dict) -> None:
    if payment["amount"] < 0:
        raise Reject("negative amount")
    if payment["amount"] == 0:
        raise ConnectionError("the gateway is away")
    print(f"charged {payment['amount']} in version one", flush=True)
"""


def test_a_drain_that_was_not_over_in_time_is_reported_at_the_end() -> None:
    assert closing_message(5).startswith("Not everything finished in time")
    assert closing_message(0) == "Stopped; the broker and its records are deleted."


def test_a_blocked_event_loop_is_logged_after_a_second_and_nothing_else_happens_earlier() -> None:
    app = App("payments")

    @app.consumer("orders.payment.v1", timeout_s=20)
    async def charge(payment: dict[str, int]) -> None: ...

    before = app.settings(environ={}, for_tests=True)
    after = DevEnvironment(address="127.0.0.1:1", embedded=True, partitions=4).adapt(before)
    expected, found = before.consumers["charge"].timeout, after.consumers["charge"].timeout
    assert (expected.blocked_report_s, found.blocked_report_s) == (20, 1)
    assert (found.timeout_s, found.stuck_s, found.blocked_s) == (expected.timeout_s, expected.stuck_s, 20)


def test_the_story_of_a_newcomer(tmp_path: Path) -> None:
    """A record is sent, the code is broken and mended, the broker and its records stay, and Ctrl-C ends all of it."""
    (tmp_path / "app.py").write_text(APP)
    # What another environment needs does not matter here.
    (tmp_path / ".env").write_text("KAFKA_BROKERS=kafka.example:9092\n")
    printed = tmp_path / "printed"
    here = {"XDG_RUNTIME_DIR": str(tmp_path)}

    def send(amount: int) -> None:
        done = keepfast("send", "orders.payment.v1", f'{{"amount": {amount}}}', cwd=tmp_path, **here)
        assert done.returncode == 0, done.stderr
        assert "Using the broker of `keepfast dev app:app`" in done.stderr

    with running("dev", "app:app", cwd=tmp_path, printed=printed, **here) as process:
        wait_until(
            lambda: (
                "To send a record, from another terminal: keepfast send orders.payment.v1 '{" in printed.read_text()
            ),
            "the start",
        )
        for amount in (1, -1, 0):
            send(amount)
        wait_until(lambda: "charged 1 in version one" in printed.read_text(), "the first record")
        (tmp_path / "app.py").write_text(APP + "def broken(:\n")
        wait_until(lambda: "The app ended with code 2; waiting for a change." in printed.read_text(), "the broken code")
        assert "Importing 'app' failed at app.py:" in printed.read_text()
        send(2)
        (tmp_path / "app.py").write_text(APP.replace("version one", "version two"))
        wait_until(lambda: "charged 2 in version two" in printed.read_text(), "what was sent meanwhile")
        wait_until(lambda: printed.read_text().count('"dead_lettered"') == 2, "both letters, one by the retry topic")
        listed = keepfast("dlq", "list", "orders.payment.dlq", cwd=tmp_path, **here)
        assert (listed.returncode, listed.stdout.count("payments.charge")) == (0, 2), listed.stdout + listed.stderr
        behind = keepfast("lag", "payments.charge", "--for", "0", cwd=tmp_path, **here)
        assert (behind.returncode, "orders.payment.v1" in behind.stdout) == (0, True), "its broker lists no groups"
        again = keepfast("replay-from", "app:app", "charge", "--since", "1h", "--dry-run", cwd=tmp_path, **here)
        assert (again.returncode, again.stderr.count("Using the broker of")) == (0, 1), again.stderr
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0
    assert "charged 1 in version two" not in printed.read_text(), "what was committed is not repeated"
    assert list((tmp_path / "keepfast").iterdir()) == []
    assert not any(line.startswith("Traceback") for line in printed.read_text().splitlines()), "one of keepfast itself"
    assert '"traceback":["Traceback' in printed.read_text(), "of the handler, in its line"


def test_topics_are_made_on_a_real_broker(kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path) -> None:
    """The child of `dev --kafka`; the settings of another environment do not reach it."""
    stem = topic()
    (tmp_path / "app.py").write_text(APP.replace("orders.payment.v1", f"{stem}.payment.v1"))
    printed = tmp_path / "printed"
    elsewhere = {
        "KEEPFAST_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "KEEPFAST_KAFKA_SASL_MECHANISM": "PLAIN",
        "KEEPFAST_KAFKA_SASL_USERNAME": "app",
        "KEEPFAST_KAFKA_SASL_PASSWORD": "secret",
        "KAFKA_BROKERS": "kafka.example:9092",
    }
    arguments = ("run", "app:app", "--dev-at", kafka.bootstrap, "--dev-partitions", "3")
    with running(*arguments, cwd=tmp_path, printed=printed, **elsewhere) as process:
        wait_until(lambda: '"partitions_assigned"' in printed.read_text(), "the start")
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    there = {name: len(one.partitions) for name, one in kafka.admin.list_topics(timeout=DEADLINE_S).topics.items()}
    made = {name: count for name, count in there.items() if name.startswith(f"{stem}.payment")}
    letters = next(name for name in there if name.endswith("payment.dlq") and stem.partition(".")[0] in name)
    retries = f"{stem}.payment.v1.payments.charge.retry.1s"
    assert made | {letters: there[letters]} == {f"{stem}.payment.v1": 3, letters: 3, retries: 3}
    # Where the environment names other brokers, commands have to be told.
    assert f"--brokers {kafka.bootstrap}" in printed.read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("ap:app",), "There is no module 'ap' here"),
        (("ap.py:app",), "There is no file"),
        (("app:app", "--partitions", "8"), "The embedded broker has 4 partitions per topic"),
    ],
)
def test_what_cannot_be_run_is_reported_before_a_broker_starts(
    tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    (tmp_path / "app.py").write_text(APP)
    done = keepfast("dev", *arguments, cwd=tmp_path)
    assert (done.returncode, sentence in done.stderr, "broker," in done.stderr) == (2, True, False), done.stderr


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a user whom nothing is told."""
    for name in ("KEEPFAST_KAFKA_BROKERS", "KAFKA_BROKERS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return project


@contextmanager
def dev(address: str, folder: Path, app: str = "app:app") -> Iterator[None]:
    with dev_registry.register(DevBroker(address=address, app=app, folder=str(folder))):
        yield


def chosen(target: str | None = None, brokers: str | None = None) -> tuple[str, ...]:
    return tuple(connection_for(target, brokers)[0].brokers)


def test_the_broker_of_this_folder_goes_before_files_but_not_before_the_environment(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (nowhere / ".env").write_text("KAFKA_BROKERS=file:1\nKEEPFAST_KAFKA_SECURITY_PROTOCOL=SSL\n")
    assert chosen() == ("file:1",)
    with dev("here:1", nowhere):
        connection, _ = connection_for(None, None)
        assert (tuple(connection.brokers), connection.security_protocol) == (("here:1",), "PLAINTEXT")
        assert chosen(brokers="told:1") == ("told:1",)
        monkeypatch.chdir(nowhere.parent)
        assert chosen() == ("here:1",)
        monkeypatch.setenv("KAFKA_BROKERS", "environment:1")
        assert chosen() == ("environment:1",)
    monkeypatch.delenv("KAFKA_BROKERS")
    assert chosen() == ("localhost:9092",)


def test_the_broker_of_another_folder_is_used_by_default(nowhere: Path, tmp_path: Path) -> None:
    with dev("there:1", tmp_path / "other"):
        assert chosen() == ("there:1",)
        with dev("here:1", nowhere):
            assert chosen() == ("here:1",)
        (nowhere / ".env").write_text("KAFKA_BROKERS=file:1\n")
        assert chosen() == ("file:1",)


def test_of_several_one_must_be_chosen(nowhere: Path) -> None:
    with dev("first:1", nowhere, "a:app"), dev("second:1", nowhere, "b:app"):
        with pytest.raises(ConfigError, match=r"Several brokers .* --brokers"):
            chosen()
        (nowhere / "b.py").write_text(
            'from keepfast import App\napp = App("b")\n@app.consumer("t")\ndef f(x: dict): ...\n'
        )
        assert chosen("b:app") == ("second:1",)


def test_dlq_takes_the_topics_of_the_app_that_runs_here(nowhere: Path) -> None:
    (nowhere / "orders_here.py").write_text(
        'from keepfast import App\napp = App("shop")\n@app.consumer("shop.order.v1")\ndef f(x: dict): ...\n'
    )
    with EmbeddedBroker() as broker:
        with dev(broker.bootstrap, nowhere, "orders_here:app"), open_desk((), None, None, refresh=False) as desk:
            assert desk.options.topics == ("shop.order.dlq",)
        with pytest.raises(ConfigError, match="Name the dead-letter topic"), open_desk((), None, broker.bootstrap):
            pass


def test_ctl_finds_the_app_and_its_token(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = DevBroker(address="here:1", app="app:app", folder=str(nowhere), health_port=8099, token="secret")
    assert "secret" not in repr(app)
    with dev_registry.register(app):
        [file] = dev_registry.directory().iterdir()
        assert file.stat().st_mode & 0o077 == 0
        assert ControlClient.of(None, None) == ControlClient("http://127.0.0.1:8099", "secret")
        assert ControlClient.of(None, "http://127.0.0.1:1").url == "http://127.0.0.1:1"
        monkeypatch.setenv("HEALTH_CHECK_PORT", "8123")
        assert ControlClient.of(None, None) == ControlClient("http://127.0.0.1:8123")
        monkeypatch.delenv("HEALTH_CHECK_PORT")
        other = nowhere.parent / "other"
        other.mkdir()
        monkeypatch.chdir(other)
        assert ControlClient.of(None, None) == ControlClient("http://127.0.0.1:8080")


def test_what_a_killed_one_has_left_is_removed(nowhere: Path) -> None:
    with dev("here:1", nowhere):
        [file] = dev_registry.directory().iterdir()
        left = file.read_text()
        assert [one.address for one in dev_registry.running()] == ["here:1"]
        assert file.exists()
    assert not file.exists()
    file.write_text(left)
    file.with_name("odd.dev.json").write_text("{")
    assert dev_registry.running() == []
    assert list(dev_registry.directory().iterdir()) == []
