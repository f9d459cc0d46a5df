"""`keepfast explain`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from keepfast.classify.rules import RULES
from keepfast.cli import main
from tests.support.command import keepfast


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["explain", *arguments])


def as_json(*arguments: str) -> dict[str, Any]:
    result = explain(*arguments, "--json")
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.output)
    return answer


@pytest.mark.parametrize(
    ("asked", "kind", "code", "rule"),
    [
        ("requests.exceptions.Timeout", "retryable", "TIMEOUT", "http-timeout"),
        ("requests.exceptions.ReadTimeout", "retryable", "TIMEOUT", "http-timeout"),
        ("requests.Timeout", "retryable", "TIMEOUT", "http-timeout"),
        ("ValueError", "non-retryable", "VALUE_INVALID", "value"),
        ("http:503", "retryable", "HTTP_503", "http-unavailable"),
        ("sqlstate:40P01", "retryable", "DB_TRANSIENT_ERROR", "sqlstate-conflict"),
        ("KafkaError:_TRANSPORT", "retryable", "KAFKA_TRANSIENT", "kafka-down"),
        ("grpc:NOT_FOUND", "non-retryable", "NOT_FOUND", "grpc-not-found"),
        ("keepfast.Halt", "halt", "HALTED", "halt"),
        ("keepfast.Discard", "discard", "DISCARDED", "discard"),
        ("pydantic.ValidationError", "non-retryable", "SCHEMA_INVALID", "pydantic"),
        ("psycopg2.errors.UniqueViolation", "non-retryable", "DB_CONSTRAINT_VIOLATION", "db-constraint"),
        ("nosuchlib.Error", "retryable", "UNHANDLED_EXCEPTION", "unknown"),
    ],
)
def test_an_exception_is_explained(asked: str, kind: str, code: str, rule: str) -> None:
    answer = as_json(asked)
    assert (answer["kind"], answer["code"], answer["rule"]) == (kind, code, rule)


def test_for_people_it_says_what_happens_next_and_why() -> None:
    shown = explain("http:503").output
    assert "retryable" in shown
    assert "http-unavailable, by http:503 (standard §1.1.1 Service Unavailable)" in shown
    assert "retried 3 times, after 1 s, 2 s, 4 s (and up to 10 % more)" in shown
    assert "Dead-lettered at once" in explain("http:400").output
    assert "exit code 4" in explain("SystemExit").output
    assert "no dead letter" in explain("keepfast.Discard").output
    assert "no rule" not in shown


def test_the_settings_can_be_tried() -> None:
    assert as_json("http:404", "--not-found", "retry")["kind"] == "retryable"
    assert as_json("RuntimeError", "--unknown", "dead-letter")["kind"] == "non-retryable"


def test_a_class_whose_instances_tell_more_says_so() -> None:
    assert (
        "classified by its HTTP status if it has one: keepfast explain http:503"
        in explain("httpx.HTTPStatusError").output
    )
    assert "classified by its Kafka error" in explain("confluent_kafka.KafkaException").output


def test_a_class_of_the_users_own_is_imported_from_this_folder(tmp_path: Path) -> None:
    (tmp_path / "shop_errors.py").write_text("class Closed(ConnectionError): pass\n")
    done = keepfast("explain", "shop_errors.Closed", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["rule"] == "network", done.stderr


def test_a_library_that_is_not_installed_is_known_by_name() -> None:
    script = """
import sys
for name in ("requests", "grpc", "kafka"):
    sys.modules[name] = None  # as if it were not there
from keepfast.cli import main
main(["explain", sys.argv[1]], standalone_mode=False)
"""
    for asked, expected in [
        ("requests.exceptions.Timeout", "http-timeout"),
        ("requests.Timeout", "http-timeout"),
        ("requests.exceptions.HTTPError", "keepfast explain http:503"),
        ("grpc.FutureTimeoutError", "grpc-timeout"),
    ]:
        command = [sys.executable, "-c", script, asked]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        assert expected in done.stdout
        assert "matched by name only" in done.stdout


@pytest.mark.parametrize(
    ("asked", "printed"),
    [
        ("requests.exceptions.Timeot", "Did you mean requests.exceptions.Timeout?"),
        ("json.dumps", "json.dumps is not an exception class"),
        ("Busy", "write the exception with its module"),
        ("http:99", "write it like http:409"),
        ("errno:ECONNREFUSD", "There is no error number 'ECONNREFUSD'. Did you mean errno:ECONNREFUSED?"),
        ("errno:EXYZZY", "Python's module errno lists them."),
    ],
)
def test_what_can_be_no_exception_is_a_usage_error(asked: str, printed: str) -> None:
    result = explain(asked)
    assert result.exit_code == 2
    assert printed in result.output


def test_nothing_or_too_much_is_a_usage_error() -> None:
    assert explain().exit_code == explain("http:503", "--list").exit_code == 2


def test_a_module_that_fails_on_import_is_reported(tmp_path: Path) -> None:
    (tmp_path / "broken_shop.py").write_text("raise SystemExit(3)\n")
    done = keepfast("explain", "broken_shop.Closed", cwd=tmp_path)
    assert done.returncode == 0
    assert "broken_shop cannot be imported" in done.stdout


def test_all_rules_can_be_listed() -> None:
    shown = explain("--list").output
    assert all(rule.name in shown and rule.why in shown for rule in RULES)
    listed = json.loads(explain("--list", "--json").output)
    assert [rule["name"] for rule in listed] == [rule.name for rule in RULES]
