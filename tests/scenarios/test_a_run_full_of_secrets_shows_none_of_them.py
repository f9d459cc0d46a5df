"""P10: a handler that puts card numbers, passwords and tokens into every error and log line: none of them is in the
log, in the diagnostics of a letter, or in what a command shows. The original bytes in the letters stay exact.
"""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
from click.testing import CliRunner

from keepfast.cli import main
from keepfast.core.policies import LETTER_FORMATS
from keepfast.core.records import Record
from keepfast.deadletters.letter import Letter
from keepfast.deadletters.reading import read
from tests.scenarios.conftest import MakeScene
from tests.scenarios.scene import Scene, Work
from tests.support.broker_client import Client

PANS = ["4111111111111111", "5555 5555 5555 4444", "3782-822463-10005", "6011 1111 1111 1117", "30569309025904"]
SECRETS = [
    "hunter2-hunter2",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "s3cr3t-cookie",
    "forty-two",
    "ACME-77",
]
# What must be nowhere: the secrets, and the digits of the cards however they are written.
TELLTALES = [*SECRETS, *PANS, *(pan.replace(" ", "").replace("-", "") for pan in PANS), "5555 4444", "822463"]
ORIGINAL = {"key", "value", "headers"}


def works(count: int) -> list[Work]:
    password, token, cookie, shoe, pattern = SECRETS
    found = []
    for number in range(count):
        pan = PANS[number % len(PANS)]
        value = {
            "card": pan,
            "password": password,
            "url": f"postgres://ada:{password}@db/x",
            "note": f"{pattern} paid with {pan}, Authorization: Bearer {token}",
            "shoeSize": shoe,
        }
        headers = [("Cookie", f"session={cookie}".encode()), ("x-pan", pan.encode()), ("trace", b"t-1")]
        found.append(Work(key=b"ada %s" % pan.encode(), value=json.dumps(value).encode(), headers=headers))
    return found


def telltales_in(text: str) -> list[str]:
    return [one for one in TELLTALES if one in text]


def shown_by_commands(scene: Scene, letters: int) -> str:
    topic = f"{scene.topic}.dlq"
    printed = []
    for arguments in (
        ["list", topic],
        ["list", topic, "--json"],
        ["list", topic, "--letters"],
        ["list", topic, "--letters", "--json"],
        *(["show", topic, f"0:{number}"] for number in range(min(letters, 5))),
        ["show", topic, "0:2", "--json"],
        ["replay", topic, "--all", "--dry-run"],
        ["list", f"{topic} password={SECRETS[0]}"],
    ):
        done = CliRunner().invoke(main, ["dlq", *arguments, "--brokers", scene.broker.bootstrap])
        printed += [done.output, done.stderr]
    return "\n".join(printed)


@pytest.mark.parametrize("form", LETTER_FORMATS)
def test_logs_letters_and_commands_tell_no_secret(make_scene: MakeScene, form: str) -> None:
    scene = make_scene()
    member = scene.member(app="indiscreet.py", variables={"SCENARIO_FORMAT": form})
    sent = scene.send(works(12))
    scene.wait_committed()
    assert member.stop() == 0
    log = member.log()
    assert len(member.events("dead_lettered")) == 10
    assert log.count("[card number]") > 20, "the handler did say it"
    assert telltales_in(log) == []

    records = Client(scene.broker).read(f"{scene.topic}.dlq", 10)
    letters = [read(Record.of(message)) for message in records]
    for letter in letters:
        diagnostics = "\n".join(str(getattr(letter, one.name)) for one in fields(Letter) if one.name not in ORIGINAL)
        assert telltales_in(diagnostics) == []
        assert letter.error_message
        assert letter.stack_trace
        work = next(one.work for one in sent if one.id.offset == letter.offset)
        assert (letter.key, letter.value, letter.headers) == (work.key, work.value, tuple(work.headers)), "exact"
    if form != "headers":  # where the original's value does not stand beside it, nothing else may tell
        for message in records:
            outside = json.loads(message.value())
            outside.pop("original_message")
            assert telltales_in(json.dumps(outside)) == []
    assert telltales_in(shown_by_commands(scene, 10)) == []


def test_with_the_detector_no_copy_of_the_record_is_anywhere(make_scene: MakeScene) -> None:
    scene = make_scene()
    member = scene.member(app="indiscreet.py", variables={"SCENARIO_SENSITIVE": "1"})
    clean = Work(value=b'{"amount": 1, "token": "tok_4111111111111111"}')
    scene.send([*works(10), clean])
    scene.wait_committed()
    assert member.stop() == 0
    events = member.events("sensitive_data_discarded")
    assert [event["offset"] for event in events] == list(range(10))
    assert {(event["logger"], event["level"], event["code"]) for event in events} == {
        ("keepfast.security", "error", "PAN_DETECTED")
    }
    [letter] = Client(scene.broker).read(f"{scene.topic}.dlq", 1)
    assert json.loads(letter.value())["original_offset"] == 10
    assert Client(scene.broker).edges(f"{scene.topic}.dlq") == (0, 1)
    assert telltales_in(member.log()) == []
    assert telltales_in(shown_by_commands(scene, 1)) == []
