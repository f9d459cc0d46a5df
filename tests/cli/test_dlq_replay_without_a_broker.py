"""The broker goes away in the middle of a replay: exit code 1, true counts, and a command that does the rest."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from keepfast.testing.broker import KafkaBroker
from tests.cli.letters_filed import file_letters
from tests.support.broker_client import Client
from tests.support.command import keepfast, running
from tests.support.letters import letter
from tests.support.waiting import wait_until


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_broker_that_goes_away_does_not_read_as_success_and_loses_nothing(tmp_path: Path) -> None:
    with KafkaBroker() as broker:
        source, dlq = broker.create_topic("orders", partitions=1), broker.create_topic("orders.dlq", partitions=1)
        count = 400
        file_letters(
            broker, dlq, [letter(topic=source, partition=0, offset=n, key=None, value=b"%d" % n) for n in range(count)]
        )
        client, printed = Client(broker), tmp_path / "printed"
        arguments = ("dlq", "replay", dlq, "--all", "--yes", "--rate", "20/s")
        with running(*arguments, cwd=tmp_path, printed=printed, KAFKA_BROKERS=broker.bootstrap) as process:
            wait_until(lambda: client.edges(source)[1] >= 10, "some are sent")
            broker.pause()
            try:
                assert process.wait(120) == 1, printed.read_text()
            finally:
                broker.resume()
        text = printed.read_text()
        assert "Not everything was replayed" in text
        command = next(line.strip() for line in text.splitlines() if line.strip().startswith("keepfast dlq replay"))
        words = shlex.split(command.replace("--rate 20/s", ""))[1:]
        done = keepfast(*words, "--yes", cwd=tmp_path, KAFKA_BROKERS=broker.bootstrap)
        assert done.returncode == 0, done.stderr
        found = {int(message.value()) for message in client.read(source, client.edges(source)[1])}
        assert found == set(range(count))
