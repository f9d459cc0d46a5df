"""A process that ends hard at its deadline is not scraped again: the next one counts it, for the alert."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from keepfast import App
from keepfast.app.assembly import assemble_app, specs_of
from keepfast.http.local_app import LocalApp
from keepfast.telemetry.catalogue import SHUTDOWN_TIMEOUTS
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.support.broker_client import Client
from tests.support.command import running
from tests.support.waiting import wait_until

APP = """
import time
from keepfast import App

app = App("{name}", shutdown={{"timeout_s": 1}})

@app.consumer("{topic}")
def charge(value: bytes) -> None:
    print("begun", flush=True)
    time.sleep(600)
"""


def counted(app: App) -> list[object]:
    """By the processes of an app that starts and ends twice."""
    found = list[object]()
    for _ in range(2):
        settings = app.settings(environ={}, cwd=Path("/nonexistent"))
        assembly = assemble_app(specs_of(app.chosen(), settings), settings, wait=False)
        families = LocalApp(app.name, parts=assembly).families()
        found += [one.samples[0].value for one in families if one.dotted == SHUTDOWN_TIMEOUTS.name]
        ended = threading.Thread(target=assembly.run, daemon=True)
        ended.start()
        assembly.stop()
        ended.join(60)
    return found


def test_the_next_process_counts_it_and_the_one_after_that_does_not(
    kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path
) -> None:
    name, said, state = topic(), tmp_path / "said", tmp_path / "state"
    (tmp_path / "app.py").write_text(APP.format(topic=name, name=name))
    Client(kafka).produce(name, [b"v"])
    variables = {
        "KAFKA_BROKERS": kafka.bootstrap,
        "HEALTH_CHECK_ENABLED": "false",
        "KEEPFAST_STATE_DIR": str(state),
    }
    with running("run", "app:app", cwd=tmp_path, said=said, **variables) as process:
        wait_until(lambda: "begun" in said.read_text(), "the handler is at it")
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 5
    assert "deadline_passed" in said.read_text()

    app = App(name, kafka={"brokers": kafka.bootstrap}, state={"dir": str(state)})

    @app.consumer(topic())
    def charge(value: bytes) -> None: ...

    assert counted(app) == [1, 0]
