"""Every command, form, operation and order that changes letters, offsets or a running consumer leaves one audit entry:
who, why and how it ended. What is not named here fails the last tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined] # all of them public, says its docstring
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from starlette.routing import Mount, Route

from keepfast.cli import main
from keepfast.cli.desk import SubprocessTrier
from keepfast.core.errors import Fault, SinkError, SourceError
from keepfast.core.records import RecordPlace
from keepfast.desk.audit import AuditEntry
from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.cases import CaseState
from keepfast.desk.desk import Desk, DeskOptions
from keepfast.desk.plan import ReplayPolicy
from keepfast.desk.trials import TrialKilled, try_handler
from keepfast.kafka.config import Connection
from keepfast.testing.broker import KafkaBroker
from keepfast.testing.loopback import free_ports
from keepfast.testing.pytest_plugin import TopicFactory
from keepfast.testing.topics import TopicAdmin
from tests.cli.letters_filed import file_letters
from tests.desk_page.conftest import CONTROL_TOKEN, ServedDesk, serving
from tests.desk_page.test_page import csrf_of
from tests.support.broker_client import Client, NewRecord
from tests.support.command import keepfast, running
from tests.support.letters import letter
from tests.support.members import connection
from tests.support.waiting import DEADLINE_S, wait_until
from tests.support.web import Web

WHY: Final = "INC-2041"
LETTERS: Final = 12
APP: Final = """
import os
from typing import Any
from keepfast import App

app = App("shop")

@app.consumer(os.environ["SOURCE"], group=os.environ["SOURCE"] + ".group")
def charge(order: dict[str, Any]) -> None: ...
"""

AUDITED_COMMANDS: Final = {
    *("dlq archive", "dlq cancel", "dlq discard", "dlq edit", "dlq export", "dlq fail", "dlq pause", "dlq purge"),
    *("dlq replay", "dlq restore", "dlq resume", "dlq try", "dlq show", "offsets reset", "replay-from"),
    *("ctl dead-letter", "ctl log-level", "ctl pause", "ctl release", "ctl resume", "ctl seek"),
}
"""`dlq show` with --reveal, `dlq export` with --reveal."""
READING_COMMANDS: Final = {
    *("ctl health", "ctl lag", "ctl position", "ctl state", "dlq audit", "dlq causes", "dlq list", "dlq runs"),
    *("offsets show", "lag", "top", "check", "doctor", "explain", "asyncapi", "monitoring", "schema diff"),
    *("schema show", "spool list", "spool show", "inbox status", "outbox status", "desk token list"),
}
LOCAL_COMMANDS: Final = {
    *("run", "dev", "demo", "broker", "new", "send"),  # run or write the user's own
    *(
        "inbox migrate",
        "inbox prune",
        "outbox drain",
        "spool drain",
    ),  # a database or a spool of the app, not the desk's
    *("desk token add", "desk token remove"),  # a file of this host
}


class Scene:
    """An app, its letters, and a desk beside it."""

    def __init__(self, kafka: TopicAdmin, topic: TopicFactory, folder: Path) -> None:
        self.kafka, self.folder = kafka, folder
        self.source, self.letters = topic(partitions=1), topic(partitions=1, suffix=".dlq")
        self.desk_topic = f"{self.letters}.desk"
        self.group = f"{self.source}.group"
        [self.port] = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.environ = {
            "KAFKA_BROKERS": kafka.bootstrap,
            "KEEPFAST_DESK_TOPIC": self.desk_topic,
            "KEEPFAST_CONTROL_TOKEN": CONTROL_TOKEN,
            "HEALTH_CHECK_ENABLED": "true",
            "HEALTH_CHECK_PORT": str(self.port),
            "XDG_CACHE_HOME": str(folder),
            "SOURCE": self.source,
        }
        (folder / "app.py").write_text(APP)
        made = [
            letter(topic=self.source, partition=0, offset=number, value=b'{"n": %d}' % number, group=self.group)
            for number in range(LETTERS)
        ]
        file_letters(kafka, self.letters, made)
        Client(kafka).produce(self.source, [NewRecord(b'{"n": 1}') for _ in range(LETTERS)])
        options = DeskOptions(topics=(self.letters,), by="test", desk_topic=self.desk_topic)
        self.desk = Desk(connection(kafka.bootstrap), options)
        self.desk.refresh()
        self.entries: list[AuditEntry] = []

    def command(self, *words: str, code: int = 0) -> str:
        done = keepfast(*words, cwd=self.folder, **self.environ)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def dlq(self, verb: str, *words: str, code: int = 0) -> str:
        return self.command("dlq", verb, *words, code=code)

    def one_more(self, action: str) -> AuditEntry:
        """Wait for the entry of what was done just now."""
        before = len(self.entries)
        wait_until(lambda: len(self._read()) > before, f"an entry about {action}")
        assert [one.action for one in self.entries[before:]] == [action]
        return self.entries[-1]

    def _read(self) -> list[AuditEntry]:
        self.entries = sorted(self.desk.audit(10_000), key=lambda one: one.at_ms)
        return self.entries

    def start_run(self) -> str:
        """A replay whose process has ended."""
        self.desk.refresh()
        where = CaseFilter(dlqs=frozenset({self.letters}), cases=frozenset({self.cases()[0]}))
        fact = self.desk.start(self.desk.plan(where, ReplayPolicy(to="topic")), why=WHY)
        self.desk.write_facts([fact.now("stopped", self.desk.now_ms(), sent=0, skipped=0)])
        self.one_more("replay")
        return fact.run

    def cases(self) -> list[str]:
        """Those that wait, in the order of their letters."""
        self.desk.refresh()
        waiting = [one for one in self.desk.cases(CaseFilter(), size=100).cases if one.state == "open"]
        return [one.id for one in sorted(waiting, key=lambda one: one.letter.offset)]


@pytest.fixture
def scene(kafka: TopicAdmin, topic: TopicFactory, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(kafka, topic, tmp_path)
    yield made
    made.desk.close()


def is_complete(entry: AuditEntry, *, why: str = WHY) -> bool:
    """Whether it says who, why and how it ended."""
    return bool(entry.by and entry.what and entry.result) and entry.why == why


def test_commands_about_letters_and_offsets(scene: Scene) -> None:
    dlq, letters = scene.dlq, scene.letters
    first = ("--offsets", "0:0-0")
    for verb, action in (("discard", "discard"), ("restore", "restore"), ("fail", "fail"), ("restore", "restore")):
        dlq(verb, letters, *first, "--yes", "--why", WHY)
        assert is_complete(scene.one_more(action))
    dlq("show", letters, "0:1", "--reveal")
    assert is_complete(scene.one_more("reveal"), why="")
    dlq("export", letters, "--reveal", "-o", "out.jsonl")
    assert is_complete(scene.one_more("export"), why="")
    dlq("archive", letters, *first, "--yes", "--why", WHY, "-o", "old.jsonl.gz")
    assert is_complete(scene.one_more("archive"))
    dlq("purge", letters, "--yes", "--why", WHY)
    assert is_complete(scene.one_more("purge"))
    dlq("restore", letters, "--archive", "old.jsonl.gz", "--yes", "--why", WHY)
    restored = scene.one_more("import")
    assert is_complete(restored)
    assert (restored.count, restored.details) == (1, {"letters": 1})
    dlq("try", letters, "0:2", "--app", "app:app", "--yes")
    tried = scene.one_more("try")
    assert is_complete(tried, why="")
    assert tried.result == "succeeded"
    (scene.folder / "value").write_text('{"n": 2}')
    dlq("edit", letters, "0:3", "--to", "topic", "--value-file", "value", "--yes", "--why", WHY)
    assert is_complete(scene.one_more("edit"))
    dlq("replay", letters, "--offsets", "0:4-4", "--to", "topic", "--yes", "--why", WHY)
    assert is_complete(scene.one_more("replay"))
    run = scene.start_run()
    dlq("pause", run, letters)
    assert is_complete(scene.one_more("pause"), why="")
    dlq("resume", run, letters)
    assert is_complete(scene.one_more("resume"), why="")
    run = scene.start_run()
    dlq("cancel", run, letters)
    assert is_complete(scene.one_more("cancel"), why="")
    Client(scene.kafka).commit(scene.group, scene.source, 5)
    scene.command("offsets", "reset", "app:app", "--consumer", "charge", "--to", "2", "--yes", "--why", WHY)
    moved = scene.one_more("offsets")
    assert is_complete(moved)
    assert scene.group in moved.what
    scene.command("replay-from", "app:app", "charge", "--offsets", "0:0-3", "--yes", "--why", WHY)
    again = scene.one_more("replay-from")
    assert is_complete(again)
    assert again.result.startswith("done: 4 processed")


def test_a_handler_that_is_stopped_while_it_is_tried_is_audited_too(scene: Scene) -> None:
    with pytest.raises(KeyboardInterrupt), scene.desk.audited("try", what="a record"):
        raise KeyboardInterrupt
    assert scene.one_more("try").result == "failed: KeyboardInterrupt"


KILLED: Final = {"": "killed by signal 9", "time.sleep(3600)": "did not end within 5 s and was killed"}


@pytest.mark.parametrize("body", KILLED)
def test_a_trial_whose_process_is_killed_is_audited_by_the_desk(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    if body:
        monkeypatch.setattr("keepfast.cli.desk.TRY_TIMEOUT_S", 5.0)
    kill = "import os, signal, time\n" + (body or "os.kill(os.getpid(), signal.SIGKILL)") + "\n"
    (scene.folder / "app.py").write_text(kill)
    environ = {"PYTHONPATH": str(scene.folder), "SOURCE": scene.source, "KEEPFAST_DESK_TOPIC": scene.desk_topic}
    trier = SubprocessTrier("app:app", scene.kafka.bootstrap, **environ)
    with pytest.raises(TrialKilled, match=KILLED[body]):
        try_handler(scene.desk.acting_as("anna", "page"), trier, RecordPlace(scene.letters, 0, 2))
    entry = scene.one_more("try")
    assert (entry.by, entry.via, entry.topic, entry.what) == ("anna", "page", scene.letters, "0:2")
    assert entry.result.startswith("not known: The ")
    assert KILLED[body] in entry.result


def test_a_purge_that_is_refused_half_way_is_audited_with_what_it_deleted(
    scene: Scene, kafka: TopicAdmin, topic: TopicFactory
) -> None:
    compacted = topic(partitions=1, suffix=".dlq", config={"cleanup.policy": "compact"})  # nothing of it is deleted
    stored = letter(topic=scene.source, partition=0, offset=LETTERS, value=b"{}", group=scene.group)
    file_letters(kafka, compacted, [replace(stored, key=b"k")])
    scene.desk.read_topics([scene.letters, compacted])
    every = scene.cases()
    scene.desk.mark(every, "archived", why=WHY)
    scene.one_more("archive")
    with pytest.raises(SourceError):
        scene.desk.purge(why=WHY)
    entry = scene.one_more("purge")
    assert is_complete(entry)
    assert (entry.count, entry.details) == (LETTERS, {"deleted": {scene.letters: LETTERS}})
    assert entry.result == f"failed: SourceError; deleted before: {scene.letters} {LETTERS}; not known: {compacted}"


def test_facts_that_are_refused_are_audited(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    case = scene.cases()[0]

    def refuse(_: Iterable[object]) -> None:
        raise SinkError("The brokers do not answer.", fault=Fault.RETRY)

    with monkeypatch.context() as patched:
        patched.setattr(scene.desk, "write_facts", refuse)
        with pytest.raises(SinkError):
            scene.desk.mark([case], "discarded", why=WHY)
    entry = scene.one_more("discard")
    assert is_complete(entry)
    assert entry.result == "failed: SinkError; some of them may be marked"


@pytest.fixture(scope="module")
def strict() -> Iterator[KafkaBroker]:
    with KafkaBroker(sasl_users={"alice": "secret"}, authorize=True) as broker:
        yield broker


def test_without_the_right_to_write_the_audit_nothing_is_done(strict: KafkaBroker) -> None:
    dlq, source = strict.create_topic("orders.payment.dlq"), strict.create_topic("orders")
    file_letters(strict, dlq, [letter(topic=source, partition=0, offset=0, value=b"{}", group="payments")])
    options = DeskOptions(topics=(dlq,), by="alice")
    login = Connection(
        brokers=[strict.bootstrap_sasl],
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password="secret",
        properties={"log_level": 0},
    )
    with closing(Desk(login, options)) as desk:
        desk.ensure_topics()
        strict.deny("alice", topic=options.audit_topic, operation=AclOperation.WRITE)
        allow(strict, options.audit_topic, AclOperation.DESCRIBE, AclOperation.READ)
        desk.refresh()
        [case] = desk.cases().cases
        acts: list[Callable[[], object]] = [
            lambda: desk.mark([case.id], "discarded", why=WHY),
            lambda: desk.note(case.id, "seen"),
            lambda: desk.purge(tuple(CaseState)),
            lambda: desk.start(desk.plan(CaseFilter(), ReplayPolicy(to="topic")), why=WHY),
        ]
        for act in acts:
            with pytest.raises(SourceError, match="This user may not write to the topic"):
                act()
        assert Client(strict).edges(dlq) == (0, 1)
        assert Client(strict).edges(options.desk_topic) == (0, 0)


def allow(broker: KafkaBroker, topic: str, *operations: AclOperation) -> None:
    for operation in operations:
        rule = AclBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for future in broker.admin.create_acls([rule]).values():
            future.result(DEADLINE_S)


def test_orders_to_a_running_consumer_by_command_page_and_api(scene: Scene) -> None:
    printed = scene.folder / "printed"
    ctl = ("--url", scene.url)
    place = (scene.source, "0")
    orders: list[tuple[str, ...]] = [
        ("pause", "charge", "--why", WHY),
        ("resume", "charge", "--why", WHY),
        ("release", "charge", "storm", "--why", WHY),
        ("seek", "charge", *place, "--to", "0", "--yes", "--why", WHY),
        ("log-level", "info", "--why", WHY),
    ]
    with (
        running("run", "app:app", cwd=scene.folder, printed=printed, **scene.environ),
        serving(scene.kafka.bootstrap, scene.letters, scene.folder, scene.url, desk_topic=scene.desk_topic) as served,
    ):
        wait_until(lambda: is_ready(scene.url), "the app runs")
        for words in orders:
            scene.command("ctl", *words, *ctl)
            entry = scene.one_more("control")
            assert is_complete(entry)
            assert entry.what.startswith(words[0])
            assert "@" in entry.by
        scene.command("ctl", "seek", "charge", *place, "--to", "0", "--dry-run", *ctl)
        scene.command("ctl", "pause", "nobody", "--why", WHY, *ctl, code=1)
        page, given = served.page(), {"process": scene.url, "consumer": "charge"}
        for verb, more in (("pause", {}), ("resume", {}), ("release", {"hold": "storm"})):
            asked = page.get("/consumers/order", params={"verb": verb, **given, **more})
            csrf = csrf_of(asked.text)
            refused = page.post("/consumers", data={"csrf": csrf, "verb": verb, **given, **more})
            assert ("refused" in refused.headers["location"]) is (verb != "resume")
            if verb == "resume":
                assert is_complete(scene.one_more("control"), why="")
                continue
            page.post("/consumers", data={"csrf": csrf, "verb": verb, "why": WHY, **given, **more})
            entry = scene.one_more("control")
            assert is_complete(entry)
            assert (entry.by, entry.via) == ("admin-person", "page")
        with served.api() as api:
            assert api.post("/control", json={**given, "verb": "pause", "why": WHY}).status_code == 200
        entry = scene.one_more("control")
        assert is_complete(entry)
        assert (entry.by, entry.via) == ("admin-person", "api")


def is_ready(url: str) -> bool:
    try:
        return Web(url).get("/health/ready").status == 200
    except OSError:
        return False


def test_an_order_to_several_processes_is_audited_once(scene: Scene) -> None:
    printed = scene.folder / "printed"
    with running("run", "app:app", "--processes", "2", cwd=scene.folder, printed=printed, **scene.environ):
        wait_until(lambda: is_ready(scene.url), "both children are ready")
        for verb in ("pause", "resume"):
            scene.command("ctl", verb, "charge", "--why", WHY, "--url", scene.url)
            entry = scene.one_more("control")
            assert is_complete(entry)
            assert "Process 0" in entry.result
            assert "Process 1" in entry.result


@pytest.fixture
def served(scene: Scene, tmp_path: Path) -> Iterator[ServedDesk]:
    (tmp_path / "archive").mkdir()
    topic, archive = scene.desk_topic, str(tmp_path / "archive")
    with serving(scene.kafka.bootstrap, scene.letters, scene.folder, desk_topic=topic, archive=archive) as made:
        yield made


def test_operations_of_the_api(scene: Scene, served: ServedDesk) -> None:
    with served.api() as api:
        ask_all_operations(scene, api)


def ask_all_operations(scene: Scene, api: Any) -> None:
    def post(path: str, **body: Any) -> Any:
        answer = api.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    post("/cases/archive", cases=[scene.cases()[0]], why=WHY)
    assert is_complete(scene.one_more("archive"))
    post("/storage/purge", count=1_000, why=WHY)
    assert is_complete(scene.one_more("purge"))
    case = scene.cases()[0]
    for do, action in (("discard", "discard"), ("restore", "restore"), ("fail", "fail"), ("restore", "restore")):
        post("/cases/mark", cases=[case], show="all", do=do, why=WHY)
        assert is_complete(scene.one_more(action))
    post("/case/note", case=case, note="seen")
    assert is_complete(scene.one_more("note"), why="")
    post("/case/reveal", case=case)
    assert is_complete(scene.one_more("reveal"), why="")
    post("/case/edit", case=case, value='{"n": 1}', why=WHY)
    assert is_complete(scene.one_more("edit"))
    wait_until(lambda: all(one["fact"]["status"] == "done" for one in api.get("/runs").json()), "it is sent")
    plan = post("/plans", cases=[scene.cases()[0]], to="topic")
    run = post("/runs", plan=plan["id"])["run"]
    assert is_complete(scene.one_more("replay"), why="")
    wait_until(lambda: api.get(f"/runs/{run}").json()["fact"]["status"] == "done", "it is sent")
    run = scene.start_run()
    post(f"/runs/{run}/order", verb="pause")
    assert is_complete(scene.one_more("pause"), why="")
    post(f"/runs/{run}/order", verb="cancel")
    assert is_complete(scene.one_more("cancel"), why="")


def test_forms_of_the_page(scene: Scene, served: ServedDesk) -> None:
    page = served.page()
    csrf = csrf_of(page.get("/").text)

    def post(path: str, **form: str) -> str:
        answer = page.post(path, data={"csrf": csrf, **form})
        location = answer.headers.get("location", "")
        assert answer.status_code in (200, 303), answer.text
        assert "refused" not in location, location
        return location or answer.text

    post("/archive", case=scene.cases()[0], why=WHY, back="/")
    assert is_complete(scene.one_more("archive"))
    post("/storage/purge", count="1000", why=WHY)
    assert is_complete(scene.one_more("purge"))
    case = scene.cases()[0]
    post("/mark", case=case, do="discard", why=WHY, back="/")
    assert is_complete(scene.one_more("discard"))
    assert page.get("/discarded.jsonl").status_code == 200
    assert is_complete(scene.one_more("export"), why="")
    post("/mark", case=case, do="restore", why=WHY, back="/")
    assert is_complete(scene.one_more("restore"))
    post("/note", case=case, note="seen", back="/")
    assert is_complete(scene.one_more("note"), why="")
    post("/message/reveal", case=case)
    assert is_complete(scene.one_more("reveal"), why="")
    post("/message/edit", case=case, value='{"n": 1}', why=WHY)
    assert is_complete(scene.one_more("edit"))
    wait_until(lambda: "running" not in {one.status for one in runs_of(scene)}, "it is sent")
    found = re.search(r'name="plan" value="([^"]+)"', post("/replay", case=scene.cases()[0], to="topic"))
    assert found is not None
    post("/runs", plan=found[1])
    assert is_complete(scene.one_more("replay"), why="")
    wait_until(lambda: "running" not in {one.status for one in runs_of(scene)}, "it is sent")
    run = scene.start_run()
    post("/runs/order", run=run, verb="cancel")
    assert is_complete(scene.one_more("cancel"), why="")


def runs_of(scene: Scene) -> list[Any]:
    scene.desk.refresh_facts()
    return scene.desk.runs()


# -- nothing is missing above


def leaves(command: click.Command, *path: str) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, *path, name)


def test_every_command_is_known_as_audited_reading_or_local() -> None:
    assert not AUDITED_COMMANDS & READING_COMMANDS
    assert sorted(leaves(main)) == sorted(AUDITED_COMMANDS | READING_COMMANDS | LOCAL_COMMANDS)


def posts_of(routes: Any, prefix: str = "") -> Iterator[str]:
    for route in routes:
        if isinstance(route, Mount) and route.routes:
            yield from posts_of(route.routes, prefix + route.path)
        elif isinstance(route, Route) and route.methods and not route.methods <= {"GET", "HEAD"}:
            yield prefix + route.path


def test_every_form_and_operation_is_known_as_audited(tmp_path: Path) -> None:
    with serving("127.0.0.1:9", "orders.dlq", tmp_path) as served:
        posts = set(posts_of(served.server.application.routes))
    audited = {
        *("/mark", "/archive", "/note", "/message/reveal", "/message/edit", "/storage/purge", "/runs", "/runs/order"),
        *("/consumers", "/api/v1/case/reveal", "/api/v1/cases/mark", "/api/v1/case/note", "/api/v1/runs"),
        *("/api/v1/runs/{run}/order", "/api/v1/case/edit", "/api/v1/storage/purge", "/api/v1/cases/archive"),
        *("/api/v1/control",),
    }
    by_the_command = {"/message/try", "/api/v1/case/try"}  # they run `keepfast dlq try`, which is audited above
    change_nothing = {"/login", "/logout", "/replay", "/api/v1/plans"}
    assert posts == audited | by_the_command | change_nothing
