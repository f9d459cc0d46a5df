"""Letters that Kafka did not accept are on the desk: with their state, to be replayed or discarded."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from keepfast.core.records import Outgoing
from keepfast.deadletters.spool.files import FileStore
from keepfast.deadletters.spool.letters import spooled
from keepfast.deadletters.writing import write
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.cli.letters_filed import file_letters
from tests.support.broker_client import Client
from tests.support.command import keepfast
from tests.support.letters import letter

APP = """
from keepfast import App

app = App("shop", spool={{"url": "file://{folder}"}}, desk={{"topic": "{desk}"}})

@app.consumer("{source}", dead_letter="{dlq}", group="shop.charge")
def charge(payment: dict) -> None: ...
"""


def test_spooled_letters_are_listed_shown_replayed_and_discarded(
    kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path
) -> None:
    source, dlq, desk = topic(), topic(suffix=".dlq"), topic(suffix=".desk")
    (tmp_path / "app.py").write_text(APP.format(folder=tmp_path / "spool", source=source, dlq=dlq, desk=desk))
    made = [
        letter(topic=source, partition=0, offset=n, group="shop.charge", key=b"k%d" % n, value=b"%d" % n)
        for n in range(4)
    ]
    store = FileStore(str(tmp_path / "spool" / "shop"), max_bytes=10_000_000)
    store.open()
    for one in made[1:]:
        value, headers = write(one, "envelope")
        store.add([spooled(Outgoing(dlq, value, one.key, headers, 0), at_ms=1_700_000_000_000)])
    store.close()
    file_letters(kafka, dlq, made[:1])

    def run(group: str, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        where = {"KAFKA_BROKERS": kafka.bootstrap, "XDG_CACHE_HOME": str(tmp_path)}
        done = keepfast(group, command, *arguments, "--app", "app:app", cwd=tmp_path, **where)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def cases() -> dict[int, dict[str, Any]]:
        lines = map(json.loads, run("dlq", "list", "--json").stdout.splitlines())
        return {line["original_offset"]: line for line in lines}

    listed = cases()
    assert [(listed[n]["state"], listed[n]["badges"]) for n in range(4)] == [
        ("open", []),
        *[("open", ["in the spool"])] * 3,
    ]
    place = f"spool:{listed[1]['offset']}"
    shown = json.loads(run("dlq", "show", dlq, place, "--reveal", "--json").stdout)
    assert (shown["original_offset"], shown["case"]["case"]) == (1, listed[1]["case"])

    run("dlq", "replay", dlq, "--offsets", place, "--offsets", "0:0", "--yes")
    run("dlq", "discard", dlq, "--case", listed[2]["case"], "--yes")
    sent = Client(kafka).read(source, 2)
    assert {(message.key(), message.value()) for message in sent} == {(b"k0", b"0"), (b"k1", b"1")}
    expected = ["replaying", "replaying", "discarded", "open"]
    assert [cases()[n]["state"] for n in range(4)] == expected

    run("spool", "drain")  # what was done about them stays, and each is there once
    after = cases()
    assert [after[n]["state"] for n in range(4)] == expected
    assert [after[n]["badges"] for n in range(4)] == [[]] * 4
    assert {after[n]["partition"] for n in range(4)} == {0}
    assert [after[n]["letters"] for n in range(4)] == [1] * 4
