"""P10: user and password of a URL are nowhere: in no output, no topic and no error, whatever becomes of the command."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from keepfast.cli import main
from keepfast.redact.urls import conceal, shown
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.cli.letters_filed import file_letters
from tests.support.broker_client import Client
from tests.support.command import keepfast
from tests.support.letters import letter

KEY, PASSWORD = "AKIAKEY7", "hunter2/%XYZ"
LOGIN = f"{KEY}:{PASSWORD}"
TELLTALES = (KEY, PASSWORD, quote(PASSWORD, safe=""), "hunter2")
APP = """
from keepfast import App

app = App("shop", spool={{"url": {url!r}}})

@app.consumer("orders.payment.v1")
def charge(payment: dict) -> None: ...
"""


def telltales_in(text: str) -> list[str]:
    return [one for one in TELLTALES if one in text]


def test_no_command_shows_the_credentials_of_an_archive(
    kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, dlq, desk = topic(partitions=1), topic(partitions=1, suffix=".dlq"), topic(partitions=1, suffix=".desk")
    file_letters(kafka, dlq, [letter(topic=source, partition=0, offset=number) for number in range(4)])
    monkeypatch.setenv("KAFKA_BROKERS", kafka.bootstrap)
    monkeypatch.setenv("KEEPFAST_DESK_TOPIC", desk)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    url, missing = f"memory://{LOGIN}@bucket/old.jsonl.gz?token={KEY}", f"memory://{LOGIN}@bucket/none.jsonl"
    printed = []
    for number, arguments in enumerate(
        (
            ("archive", dlq, "--offsets", "0:0-1", "--yes", "-o", url),
            ("export", dlq, "--reveal", "-o", f"{url}2"),
            ("purge", dlq, "--yes"),
            ("restore", dlq, "--archive", url, "--yes"),
            ("restore", dlq, "--archive", url, "--yes", "--sha256", "0"),
            ("restore", dlq, "--archive", f"{url}2", "--yes"),
            ("restore", dlq, "--archive", missing, "--yes"),
            ("restore", dlq, "--archive", f"nonsense://{LOGIN}@bucket/x", "--yes"),
            ("restore", dlq, "--archive", f"simplecache::nonsense://{LOGIN}@bucket/x", "--yes"),
            ("audit", dlq),
            ("audit", dlq, "--json"),
            ("list", dlq, "--json"),
            ("show", dlq, "0:2"),
            ("show", dlq, "0:4"),
        )
    ):
        done = CliRunner().invoke(main, ["dlq", *arguments])
        assert done.exit_code == (0 if number < 4 or number > 8 else done.exit_code), done.output
        assert number not in range(4, 9) or done.exit_code in (1, 2), done.output
        assert "Unexpected" not in done.output
        printed.append(done.output + done.stderr)
    assert "bucket/old.jsonl.gz" in printed[0]
    assert "bucket/old.jsonl.gz" in printed[10]
    assert telltales_in("\n".join(printed)) == []
    for name in (desk, f"{desk}.audit"):
        first, end = Client(kafka).edges(name, 0)
        assert end > first
        for message in Client(kafka).read(name, end - first):
            assert telltales_in((message.value() or b"").decode() + (message.key() or b"").decode()) == []


def closed_port() -> int:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return int(own.getsockname()[1])


@pytest.mark.parametrize(
    "url",
    [
        "s3://{login}@bucket/x",
        "ftp://{login}@127.0.0.1:{port}/x",
        "postgresql://{login}@127.0.0.1:{port}/db",
        "postgresql://127.0.0.1:{port}/db?password={quoted}",
        "postgresql://{login}%@127.0.0.1:{port}/db",
        "nonsense://{login}@bucket/x",
        "zip://{login}@bucket/x",
        "file://{login}@host/proc/none/x",
    ],
)
@pytest.mark.parametrize("command", [("spool", "list"), ("spool", "drain"), ("run",), ("check",)], ids=" ".join)
def test_no_command_shows_the_credentials_of_a_spool(
    kafka: TopicAdmin, tmp_path: Path, command: tuple[str, ...], url: str
) -> None:
    """`{port}` answers nothing, so a spool of FTP or PostgreSQL is away: that is one sentence, too."""
    own = url.format(login=LOGIN, quoted=quote(PASSWORD, safe=""), port=closed_port())
    (tmp_path / "app.py").write_text(APP.format(url=own))
    where = ("app:app",) if command[0] in ("run", "check") else ("--app", "app:app")
    environ = {
        "KAFKA_BROKERS": kafka.bootstrap,
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{closed_port()}",
    }
    done = keepfast(*command, *where, cwd=tmp_path, **environ)
    assert command[0] == "check" or done.returncode in (2, 3), done.stderr
    assert "Unexpected" not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr + done.stdout
    assert telltales_in(done.stdout + done.stderr) == []


PASSWORDS = st.text(alphabet="QXZJ/?#:%[]@&= ", min_size=6).filter(lambda text: sum(map(str.isalpha, text)) > 3)


@given(PASSWORDS, st.sampled_from(["s3", "ftp", "simplecache::s3", "zip://a.zip::s3", "postgresql"]))
@example("a/b@c/d", "s3")
def test_whatever_the_password_it_is_neither_shown_nor_left_in_an_error(password: str, scheme: str) -> None:
    for place in ("bucket/a", "[::1]:5432/db", "", "bucket/a@b?x=y"):
        url = f"{scheme}://user:{password}@{place}"
        assert password not in shown(url).removesuffix(place)
        assert password not in conceal(
            f"OSError: no such place: {url}; {url.upper()} user:{password}@{place}", url
        ).replace(url.upper(), "")


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("s3://K:S@bucket/a.gz", "s3://bucket/a.gz"),
        ("s3://bucket/a@b.gz", "s3://bucket/a@b.gz"),
        ("postgresql://db:5432/x?password=y", "postgresql://db:5432/x"),
        ("postgresql://db/x?user=me@corp&password=y", "postgresql://db/x"),
        ("s3://K:S?T@bucket/a", "s3://…"),
        ("http://[::1", "http://[::1"),
        ("old.jsonl.gz", "old.jsonl.gz"),
    ],
)
def test_the_rest_of_a_url_is_shown(url: str, text: str) -> None:
    assert shown(url) == text
