"""What goes wrong in the first minutes: one sentence, what to do, the exit code of its kind, and no traceback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast.core.errors import SourceError
from keepfast.kafka import Connection, KafkaAdmin, admin_properties
from keepfast.testing import ExistingBroker, KafkaBroker
from keepfast.testing.embedded import EmbeddedBroker
from keepfast.testing.pytest_plugin import TopicFactory
from tests.support.command import keepfast

HEAD = 'from keepfast import App\napp = App("payments")\n'
FILES = {
    "app.py": f'{HEAD}@app.consumer("orders.payment.v1")\ndef charge(payment: dict) -> None: ...\n',
    "nothing.py": HEAD,
    "bare.py": f"{HEAD}@app.consumer\ndef charge(payment: dict) -> None: ...\n",
    "listed.py": f'{HEAD}@app.consumer(["a", "b"])\ndef charge(payment: dict) -> None: ...\n',
    "topicless.py": f"{HEAD}@app.consumer()\ndef charge(payment: dict) -> None: ...\n",
    "spaced.py": f'{HEAD}@app.consumer("a b")\ndef charge(payment: dict) -> None: ...\n',
    "untyped.py": f'{HEAD}@app.consumer("t")\ndef charge(payment) -> None: ...\n',
    "mistyped.py": f'import socket\n{HEAD}@app.consumer("t")\ndef charge(payment: socket.socket) -> None: ...\n',
    "valueless.py": f'{HEAD}@app.consumer("t")\ndef charge() -> None: ...\n',
    "twice.py": f'{HEAD}@app.consumer("t")\n@app.consumer("u")\ndef charge(payment: dict) -> None: ...\n',
    "slip.py": f'{HEAD}@app.consumer("t", oder="key")\ndef charge(payment: dict) -> None: ...\n',
    "regex.py": f'{HEAD}@app.consumer("audit.*")\ndef audit(event: dict) -> None: ...\n',
    "nameless.py": "from keepfast import App\napp = App()\n",
}

CASES = [
    # what was typed, the exit code, what is said, and what to do
    ("", 2, "Usage: keepfast", "keepfast dev app:app"),
    ("rnu app:app", 2, "No such command 'rnu'.", "Did you mean 'run'?"),
    ("run", 2, "Missing argument 'MODULE:APP'", "Try 'keepfast run --help'"),
    ("run ap:app", 2, "There is no module 'ap'", "Did you mean app:app?"),
    ("run app:ap", 2, "app has no 'ap'", "Did you mean app:app?"),
    ("run nothing:app", 2, "has no consumers", '@app.consumer("topic")'),
    ("run bare:app", 2, "bare.py:3: @app.consumer takes the names of topics", '@app.consumer("orders.payment.v1")'),
    ("run listed:app", 2, "listed.py:3: @app.consumer takes the names of topics", '@app.consumer("a", "b")'),
    ("run regex:app", 2, "regex.py:3: 'audit.*' is no name of a topic", '@app.consumer(Pattern(r"audit.*"))'),
    ("run topicless:app", 2, "there is no topic to consume", "Name one in code"),
    ("run spaced:app", 2, "is 'a b'", "only letters, digits, dots, underscores and hyphens"),
    ("run untyped:app", 2, "untyped.py:3: handler charge(), parameter 'payment': has no annotation", "write `bytes`"),
    ("run mistyped:app", 2, "mistyped.py:4: handler charge(), parameter 'payment': cannot decode", "a dataclass"),
    ("run valueless:app", 2, "handler charge() takes no value", "such as `value: bytes`"),
    ("run twice:app", 2, "two consumers named 'charge'", "give one of them name="),
    ("run app:app --brokers ,", 2, "--brokers is empty", "write HOST:PORT"),
    ("run slip:app", 2, "oder: there is no setting", "Did you mean order?"),
    ("run nameless:app", 2, "nameless.py:2: TypeError", "missing 1 required positional argument: 'name'"),
    ("dev ap:app", 2, "There is no module 'ap'", "Did you mean app:app?"),
    ("send", 2, "Missing argument 'TOPIC'", "Try 'keepfast send --help'"),
    ("send orders", 2, "Name exactly one of", "VALUE, --file"),
    ("send orders x --brokers 127.0.0.1:1", 3, "Could not reach Kafka at 127.0.0.1:1: Connect", "`keepfast dev`"),
    ("send orders x --brokers nowhere.invalid:1", 3, "Failed to resolve 'nowhere.invalid:1'", "Check the address"),
    ("dlq list", 3, "Could not reach Kafka at localhost:9092", "`keepfast dev`"),
    ("doctor --brokers 127.0.0.1:1", 3, "cannot be connected to (Connection refused)", "keepfast broker --port 1"),
    ("new 1st", 2, "'1st' cannot be the name of a project", "start with a letter"),
    ("dlq show orders.dlq 10", 2, "'10' is not an offset of a partition", "write PARTITION:OFFSET"),
    ("explain Busy", 2, "nor a built-in exception", "as in mylib.errors.Busy"),
    ("explain", 2, "Name an exception", "--list"),
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


def printed(project: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    done = keepfast(*arguments, cwd=project, **variables)
    text = done.stdout + done.stderr
    assert "Traceback" not in text
    assert len([line for line in text.splitlines() if line.startswith("Error:")]) <= 1
    return done.returncode, text


@pytest.mark.parametrize(("typed", "code", "what", "fix"), CASES, ids=[case[0] or "nothing" for case in CASES])
def test_is_reported_in_a_sentence_with_the_remedy(project: Path, typed: str, code: int, what: str, fix: str) -> None:
    ended, text = printed(project, *typed.split())
    assert (ended, what in text, fix in text) == (code, True, True), text


def test_on_the_embedded_broker_what_is_missing_names_the_command_that_creates_it(project: Path) -> None:
    with EmbeddedBroker() as embedded:
        sent = printed(project, "send", "orders.payment.v1", "{}", "--brokers", embedded.bootstrap)
        ran = printed(project, "run", "app:app", "--brokers", embedded.bootstrap, KAFKA_BROKERS="127.0.0.1:1")
        embedded.create_topic("orders.payment.v1")
        without_letters = printed(project, "run", "app:app", "--brokers", embedded.bootstrap)
    for code, text in (sent, ran):
        assert code == 3, text
        assert "`keepfast broker --embedded --topic " in text
        assert "`keepfast dev` creates the topics" in text
    code, text = without_letters
    assert (code, "Create it: keepfast broker --embedded --topic orders.payment.dlq" in text) == (3, True), text


def test_a_topic_that_is_spelled_in_another_way(
    project: Path, kafka: KafkaBroker | ExistingBroker, topic: TopicFactory
) -> None:
    """The broker is there; the topic is not, but one like it."""
    name = topic(suffix=".payment.v1")
    code, text = printed(project, "run", "app:app", KAFKA_BROKERS=kafka.bootstrap, KAFKA_INPUT_TOPIC=f"{name[:-1]}2")
    assert (code, f"Topic {name[:-1]}2 does not exist" in text, f"Did you mean {name}?" in text) == (3, True, True), (
        text
    )
    assert "kafka-topics.sh --create" in text
    assert "`keepfast dev` creates the topics" in text


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_a_port_that_is_taken(project: Path, taken: int) -> None:
    code, text = printed(project, "broker", "--port", str(taken))
    assert (code, f"Port {taken} on 127.0.0.1 is in use" in text, "choose another port" in text) == (3, True, True), (
        text
    )
    reported = {"HEALTH_CHECK_PORT": str(taken), "KEEPFAST_HEALTH_HOST": "127.0.0.1", "HEALTH_CHECK_ENABLED": "true"}
    code, text = printed(project, "run", "app:app", **reported)
    assert (code, "Address already in use" in text, "HEALTH_CHECK_PORT to another port" in text) == (2, True, True), (
        text
    )


def test_a_port_that_does_not_speak_kafka_as_we_do(taken: int) -> None:
    """Somebody listens and says nothing, as a port for TLS would."""
    connection = Connection(brokers=[f"127.0.0.1:{taken}"])
    with pytest.raises(SourceError, match=r"Does that port use PLAINTEXT\?"):
        KafkaAdmin(admin_properties(connection)).check(0.5)
