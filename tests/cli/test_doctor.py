"""`keepfast doctor` finds what an app would stumble over, and says what to do."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined] # all of them public, says its docstring
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from keepfast import App
from keepfast.cli import doctor_broker
from keepfast.cli.doctor_environment import client_finding, python_finding, settings_findings, state_finding
from keepfast.cli.doctor_findings import DoctorFinding, exit_code, summary
from keepfast.cli.doctor_topics import ClusterView, findings
from keepfast.core.errors import Fault, SourceError
from keepfast.kafka.config import Connection, admin_properties
from keepfast.kafka.probe import GroupFacts, KafkaProbe, RetainedRecords, TopicProbe
from keepfast.settings import Settings
from keepfast.testing import EmbeddedBroker, KafkaBroker
from keepfast.testing.jars import CLASSIC_KAFKA_VERSION
from keepfast.testing.loopback import free_ports
from tests.support.command import keepfast, running
from tests.support.waiting import DEADLINE_S, wait_until

APP = """
from keepfast import App, RetryTopics

app = App("payments")

@app.consumer("orders.payment.v1", retry_topics=RetryTopics(delays=("5s",), allow_reorder=True))
def charge(payment: dict) -> None: ...

@app.consumer("orders.payment.v1", group="payments.total", exactly_once=True)
def total(payment: dict) -> None: ...

@app.consumer("orders.refund.v1")
def refund(payment: dict) -> None: ...
"""
SOURCE, LETTERS, RETRIES = "orders.payment.v1", "orders.payment.dlq", "orders.payment.v1.payments.charge.retry.5s"
NOW_MS = 1_800_000_000_000
MISSING = SourceError("no such topic", fault=Fault.MISSING)
REFUSED = SourceError("not for you", fault=Fault.REFUSED)


def asked(*arguments: str, cwd: Path, **variables: str) -> tuple[int, list[dict[str, str]]]:
    done = keepfast("doctor", *arguments, "--json", cwd=cwd, **variables)
    assert "Traceback" not in done.stderr
    reported = json.loads(done.stdout)
    assert reported["exit_code"] == done.returncode
    return done.returncode, reported["findings"]


def texts(found: list[dict[str, str]], status: str) -> list[str]:
    return [f"{one['section']}: {one['text']} → {one['fix']}" for one in found if one["status"] == status]


# -- on a broker with ACLs --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded() -> Iterator[KafkaBroker]:
    """A broker on which nobody may do anything but what is allowed here."""
    strict = {"allow.everyone.if.no.acl.found": "false"}
    with KafkaBroker(sasl_users={"app": "secret"}, authorize=True, config=strict) as broker:
        broker.create_topic(SOURCE, partitions=3)
        broker.create_topic(LETTERS, partitions=2, config={"retention.ms": "3600000"})
        for operation in (AclOperation.READ, AclOperation.DESCRIBE_CONFIGS):
            allow(broker, ResourceType.TOPIC, SOURCE, operation)
        for operation in (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS):
            allow(broker, ResourceType.TOPIC, LETTERS, operation)
        allow(broker, ResourceType.GROUP, "payments.refund", AclOperation.READ)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce(SOURCE, b"{}", timestamp=int((time.time() + 600) * 1000))
        assert producer.flush(10) == 0
        yield broker


def allow(
    broker: KafkaBroker,
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> None:
    rule = AclBinding(kind, name, pattern, "User:app", "*", operation, AclPermissionType.ALLOW)
    for future in broker.admin.create_acls([rule]).values():
        future.result(DEADLINE_S)


def login(broker: KafkaBroker, password: str = "secret") -> dict[str, str]:
    return {
        "KAFKA_BROKERS": broker.bootstrap_sasl,
        "KEEPFAST_KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "KEEPFAST_KAFKA_SASL_MECHANISM": "PLAIN",
        "KEEPFAST_KAFKA_SASL_USERNAME": "app",
        "KEEPFAST_KAFKA_SASL_PASSWORD": password,
    }


def test_permissions_topics_letters_and_clock_on_a_broker_with_acls(guarded: KafkaBroker, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    code, found = asked("app:app", cwd=tmp_path, **login(guarded))
    problems, warnings, fine = (
        "\n".join(texts(found, "problem")),
        "\n".join(texts(found, "warning")),
        texts(found, "ok"),
    )
    assert code == 3
    assert "permissions: This login may not write to orders.payment.dlq" in problems
    assert "--allow-principal User:app --operation Write --topic orders.payment.dlq" in problems
    assert f" --topic orders.payment.dlq --bootstrap-server {guarded.bootstrap_sasl}" in problems
    assert "permissions: This login may not use the group payments.charge" in problems
    assert "This login may not see orders.refund.v1" in problems
    assert "permissions: This login may not use transactional ids that begin with payments.total." in problems
    assert "--operation Write --transactional-id payments.total. --resource-pattern-type prefixed" in problems
    assert f"This login may not see {RETRIES}" in problems, "a broker does not tell strangers what does not exist"
    assert "deletes its letters after 1 hours" in warnings
    assert "fewer partitions than orders.payment.v1 (3)" in warnings
    assert "clock: The newest record of orders.payment.v1 is" in warnings
    assert f"broker: {guarded.bootstrap_sasl} answers over SASL_PLAINTEXT as app → " in fine
    assert "topics: orders.payment.v1 has 3 partitions, 1 replica → " in fine
    assert "permissions: This login may read from orders.payment.v1 → " in fine
    assert "secret" not in json.dumps(found)


KINDS = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "transactional-id": ResourceType.TRANSACTIONAL_ID}


def grant(broker: KafkaBroker, fixes: list[str]) -> None:
    """Carry out the commands that were suggested, all of them once."""
    for fix in fixes:
        command = fix.partition(" --bootstrap-server")[0]
        operations = re.findall(r"--operation (\w+)", fix)
        [(kind, name)] = re.findall(r"--(topic|group|transactional-id) (\S+)", command)
        prefixed = "--resource-pattern-type prefixed" in command
        for operation in operations:
            pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
            allow(broker, KINDS[kind], name, AclOperation[operation.upper()], pattern)


def test_one_round_lists_every_right_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP.replace("None: ...", "None: print(f'got {payment}\\n', end='', flush=True)"))
    strict = {"allow.everyone.if.no.acl.found": "false"}
    with KafkaBroker(sasl_users={"app": "secret"}, authorize=True, config=strict) as broker:
        for name in (SOURCE, "orders.refund.v1"):
            broker.create_topic(name, config={"max.message.bytes": "10000"})
        code, found = asked("app:app", cwd=tmp_path, **login(broker))
        problems = [one for one in found if one["status"] == "problem"]
        assert (code, {one["section"] for one in problems}) == (3, {"permissions"}), problems
        assert not texts(found, "unknown")
        grant(broker, [one["fix"] for one in problems])
        code, found = asked("app:app", cwd=tmp_path, **login(broker))
        assert (code, texts(found, "problem"), texts(found, "unknown")) == (0, [], [])
        with running("run", "app:app", cwd=tmp_path, printed=tmp_path / "printed", **login(broker)) as process:
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            for name in (SOURCE, "orders.refund.v1"):
                producer.produce(name, b"{}")
            assert producer.flush(10) == 0
            wait_until(lambda: (tmp_path / "printed").read_text().count("got {}") == 3, "each consumer reads")
            process.terminate()
            assert process.wait() == 0, (tmp_path / "printed").read_text()


def test_a_wrong_password_is_reported_as_such(guarded: KafkaBroker, tmp_path: Path) -> None:
    code, found = asked(cwd=tmp_path, **login(guarded, "wrong"))
    [problem] = texts(found, "problem")
    assert (code, "refused the connection" in problem, "password" in problem) == (3, True, True), problem


def test_a_broker_that_accepts_connections_and_does_not_answer_has_not_refused_the_login(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        address = f"127.0.0.1:{frozen.getsockname()[1]}"
        code, found = asked("--brokers", address, "--timeout", "2", cwd=tmp_path)
    [problem] = texts(found, "problem")
    assert (code, f"{address} accepts connections, but has given no answer within 2 s" in problem) == (3, True), problem
    assert "password" not in problem


def test_with_all_rights_nothing_is_wrong_but_the_size_of_letters(guarded: KafkaBroker, tmp_path: Path) -> None:
    """By the plain listener, which may do everything; an address beside it that is away is only a warning."""
    [port] = free_ports(1)
    (tmp_path / "app.py").write_text(APP.partition('@app.consumer("orders.refund')[0])
    code, found = asked("app:app", "--brokers", f"{guarded.bootstrap},127.0.0.1:{port}", cwd=tmp_path)
    assert (code, texts(found, "problem")) == (0, [])
    assert any(f"127.0.0.1:{port} cannot be connected to" in text for text in texts(found, "warning"))
    assert any(f"The retry topic {RETRIES} does not exist yet" in text for text in texts(found, "ok"))
    assert any("may use transactional ids that begin with payments.total." in text for text in texts(found, "ok"))
    assert any("settings: The state directory is " in text for text in texts(found, "ok"))


# -- without one ------------------------------------------------------------------------------------------------------


@pytest.mark.timing
def test_brokers_that_do_not_answer_are_reported_each_within_bounds(tmp_path: Path) -> None:
    [port] = free_ports(1)
    begun = time.monotonic()
    code, found = asked("--bootstrap", f"127.0.0.1:{port},no-such-host.invalid:9092", "--timeout", "1", cwd=tmp_path)
    assert time.monotonic() - begun < 10
    refused, unresolved = texts(found, "problem")
    assert code == 3
    assert f"127.0.0.1:{port} cannot be connected to" in refused
    assert "keepfast dev" in refused
    assert "no-such-host.invalid:9092 cannot be resolved" in unresolved


def test_the_embedded_broker_is_looked_at_as_far_as_it_can_tell(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    with EmbeddedBroker() as broker:
        for topic in (SOURCE, LETTERS):
            broker.create_topic(topic)
        code, found = asked("app:app", "--brokers", broker.bootstrap, cwd=tmp_path)
    assert code == 3
    what = "topics: orders.refund.v1 does not exist, or this user may not describe it"
    fix = "The embedded broker creates it when it starts: keepfast broker --embedded --topic orders.refund.v1"
    assert texts(found, "problem") == [f"{what} → {fix}"]
    assert "topics: orders.payment.v1 has 4 partitions, 1 replica → " in texts(found, "ok")


def test_all_problems_of_settings_and_of_the_app_are_reported_with_code_2(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    wrong = {"KEEPFAST_SHUTDOWN_TIMEOUT_S": "soon", "KEEPFAST_LOG_LEVEL": "loud"}
    code, found = asked("app:app", cwd=tmp_path, **wrong)
    assert (code, len(texts(found, "problem"))) == (2, 2)
    code, found = asked("ap:app", "--brokers", "127.0.0.1:1", cwd=tmp_path)
    assert code == 2
    assert "Did you mean app:app?" in texts(found, "problem")[0]
    assert "127.0.0.1:1 cannot be connected to" in texts(found, "problem")[1], "the rest is looked at all the same"


def test_people_get_words_and_a_summary(tmp_path: Path) -> None:
    done = keepfast("doctor", "--brokers", "127.0.0.1:1", cwd=tmp_path)
    assert done.returncode == 3
    assert "  PROBLEM  127.0.0.1:1 cannot be connected to" in done.stdout
    assert done.stdout.endswith("\n1 problem.\n")


def test_the_broker_that_it_suggests_is_one_for_the_app_that_was_named(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text(APP)
    _, found = asked("service:app", "--brokers", "127.0.0.1:1", cwd=tmp_path)
    assert "`keepfast dev service:app` starts its own" in texts(found, "problem")[0]


def test_a_group_is_described_while_its_coordinator_is_not_ready() -> None:
    """The first question about any group makes a new cluster create the topic of all coordinators."""
    with KafkaBroker(version=CLASSIC_KAFKA_VERSION) as broker:
        probe = KafkaProbe(admin_properties(Connection(brokers=[broker.bootstrap])))
        assert probe.group("never.used", DEADLINE_S).state == "dead"


# -- pure -------------------------------------------------------------------------------------------------------------


def settings_of(**options: Any) -> Settings:
    app = App("payments")

    @app.consumer(SOURCE, **options)
    def charge(payment: dict[str, Any]) -> None: ...

    return app.settings(environ={}, cwd=Path("/nonexistent"))


ALL = frozenset({"READ", "WRITE", "CREATE", "DESCRIBE"})
FINE = ClusterView(
    topics={SOURCE: TopicProbe(SOURCE, 4, 3, ALL), LETTERS: TopicProbe(LETTERS, 4, 3, ALL)},
    configs={SOURCE: {"max.message.bytes": "900"}, LETTERS: {"max.message.bytes": "1000000", "retention.ms": "-1"}},
    groups={"payments.charge": GroupFacts("stable", 2, ALL)},
    held={SOURCE: RetainedRecords(10, NOW_MS - 1000), LETTERS: RetainedRecords(0, None)},
    new_protocol=True,
    brokers=3,
)


def wrong(seen: ClusterView, **options: Any) -> list[str]:
    own = settings_of(**options).consumers["charge"]
    return [f"{one.status}: {one.text}" for one in findings(own, seen, NOW_MS) if one.status != "ok"]


def test_commands_have_the_addresses_that_are_known() -> None:
    seen = replace(
        FINE, topics={SOURCE: MISSING, LETTERS: MISSING}, creatable={LETTERS: REFUSED}, bootstrap="kafka-1:9092"
    )
    fixes = [one.fix for one in findings(settings_of().consumers["charge"], seen, NOW_MS) if one.status == "problem"]
    assert len(fixes) == 2
    assert all("--bootstrap-server kafka-1:9092" in fix for fix in fixes), fixes


def test_one_partition_is_not_several() -> None:
    seen = replace(FINE, topics={name: TopicProbe(name, 1, 1, ALL) for name in (SOURCE, LETTERS)})
    fine = [one.text for one in findings(settings_of().consumers["charge"], seen, NOW_MS) if one.status == "ok"]
    assert {f"{SOURCE} has 1 partition, 1 replica", f"{LETTERS} has 1 partition"} <= set(fine)


def test_without_problems_nothing_is_reported() -> None:
    assert wrong(FINE) == []


@pytest.mark.parametrize(
    ("config", "days", "printed"),
    [
        ({"retention.ms": str(7 * 86_400_000)}, 14, ""),
        (
            {"retention.ms": str(30 * 86_400_000)},
            14,
            "keeps records for 30 days, the inbox of charge knows them for 14",
        ),
        ({"retention.ms": "-1"}, 400, "keeps records forever"),
        ({"retention.ms": "1000", "cleanup.policy": "compact"}, 14, "keeps records forever"),
        ({}, 14, ""),
    ],
)
def test_a_topic_that_keeps_records_longer_than_the_inbox_knows_them(
    config: dict[str, str], days: float, printed: str
) -> None:
    own = replace(settings_of().consumers["charge"], inbox_days=days)
    found = [one for one in findings(own, replace(FINE, configs={SOURCE: config}), NOW_MS) if "inbox" in one.text]
    assert [one.status for one in found] == ["warning"] * bool(printed)
    assert all(printed in one.text and "retention_days" in one.fix for one in found)


@pytest.mark.parametrize(
    ("seen", "printed"),
    [
        (replace(FINE, topics={**FINE.topics, SOURCE: MISSING}), "problem: orders.payment.v1 does not exist"),
        (replace(FINE, topics={**FINE.topics, SOURCE: REFUSED}), "problem: This login may not see orders.payment.v1"),
        (
            replace(FINE, topics={**FINE.topics, SOURCE: TopicProbe(SOURCE, 4, 1, ALL)}),
            "warning: orders.payment.v1 has one replica",
        ),
        (
            replace(FINE, topics={**FINE.topics, SOURCE: TopicProbe(SOURCE, 4, 3, frozenset({"DESCRIBE"}))}),
            "problem: This login may not read from orders.payment.v1",
        ),
        (
            replace(FINE, topics={**FINE.topics, LETTERS: MISSING}, creatable={LETTERS: REFUSED}),
            "problem: orders.payment.dlq does not exist, and this login has no permission to create it",
        ),
        (
            replace(FINE, configs={LETTERS: {"cleanup.policy": "compact,delete"}}),
            "problem: orders.payment.dlq is compacted",
        ),
        (
            replace(FINE, configs={**FINE.configs, LETTERS: {"max.message.bytes": "1000"}}),
            "warning: orders.payment.dlq accepts up to 1,000 bytes, but a letter for the largest record",
        ),
        (
            replace(FINE, new_protocol=None),
            "unknown: charge joins its group with the consumer protocol: the brokers did not say whether",
        ),
        (
            replace(FINE, groups={"payments.charge": GroupFacts("dead", 0, frozenset({"DESCRIBE"}))}),
            "problem: This login may not join or commit for the group payments.charge",
        ),
        (
            replace(FINE, held={SOURCE: RetainedRecords(1, NOW_MS + 60_000)}),
            "warning: The newest record of orders.payment.v1 is 60 s in the future",
        ),
    ],
)
def test_each_problem_is_reported_alone(seen: ClusterView, printed: str) -> None:
    [text] = wrong(seen)
    assert text.startswith(printed)


@pytest.mark.parametrize(
    ("new_protocol", "options", "printed"),
    [
        (True, {}, "ok: charge joins its group with the consumer protocol: the brokers support KIP-848"),
        (False, {}, "ok: charge joins its group with the classic protocol: the brokers do not support KIP-848"),
        (
            True,
            {"group_instance_id": "till"},
            "ok: charge joins its group with the classic protocol: group_protocol, a",
        ),
        (
            False,
            {"group_protocol": "consumer"},
            "problem: charge has group_protocol=consumer, which the brokers do not",
        ),
    ],
)
def test_the_group_protocol_and_the_reason_are_reported(new_protocol: bool, options: Any, printed: str) -> None:
    seen = replace(FINE, new_protocol=new_protocol)
    [found] = [
        one for one in findings(settings_of(**options).consumers["charge"], seen, NOW_MS) if one.section == "groups"
    ]
    assert f"{found.status}: {found.text}".startswith(printed)


def test_a_missing_letter_topic_is_made_by_the_start_unless_that_is_off() -> None:
    seen = replace(FINE, topics={**FINE.topics, LETTERS: MISSING})
    assert wrong(seen) == []
    [text] = wrong(seen, dead_letter={"create_topic": False})
    assert text.startswith("problem: orders.payment.dlq does not exist, and create_topic is off")


def test_versions_are_compared_with_what_is_tested() -> None:
    assert [python_finding(one).status for one in ((3, 11), (3, 13), (3, 14))] == ["ok", "ok", "warning"]
    assert [client_finding(one, "2.0.0").status for one in ("2.16.1", "3.0.0", "2.15.9")] == ["ok", "ok", "problem"]


def test_a_spool_that_may_not_be_durable_is_reported(tmp_path: Path) -> None:
    def reported(url: str) -> DoctorFinding:
        app = App("payments", spool=url)

        @app.consumer(SOURCE)
        def charge(payment: dict[str, Any]) -> None: ...

        *_, last = settings_findings(app.settings(environ={}, cwd=tmp_path))
        return last

    assert [reported(url).status for url in ("memory://", "file:///dev/shm/spool")] == ["warning", "warning"]
    assert "is on tmpfs" in reported("file:///dev/shm/spool").fix
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.access", lambda *_: False)  # the tests may run as root, who may write everywhere
        assert reported(f"file://{tmp_path}").status == "problem"


def test_a_state_directory_that_cannot_be_used_is_reported(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    assert state_finding(str(tmp_path)).status == "ok"
    assert state_finding(str(tmp_path / "not" / "made" / "yet")).status == "ok"
    assert not (tmp_path / "not").exists(), "looking makes nothing"
    found = state_finding(str(blocked))
    assert (found.status, "KEEPFAST_STATE_DIR" in found.fix) == ("warning", True)
    assert "flight recorder is off" in found.text


def test_the_exit_code_is_that_of_a_start() -> None:
    ok, doubt = DoctorFinding("topics", "ok", ""), DoctorFinding("clock", "warning", "")
    here, outside = DoctorFinding("settings", "problem", ""), DoctorFinding("permissions", "problem", "")
    assert [exit_code(one) for one in ([ok, doubt], [ok, outside], [outside, here])] == [0, 3, 2]
    assert [summary(one) for one in ([ok], [outside, doubt, doubt])] == ["No problems found.", "1 problem, 2 warnings."]


def test_how_long_positions_are_kept_is_said_and_a_short_time_is_a_warning() -> None:
    week, short, unknown = map(doctor_broker.retention, (7 * 86_400.0, 86_400.0, None))
    assert (week.status, short.status, unknown.status) == ("ok", "warning", "ok")
    assert "is kept for 7 days after its last commit" in week.text
    assert "commit theirs again every 1 day" in week.text
    assert "commit theirs again every 6:00:00" in short.text
    assert "offsets.retention.minutes" in short.fix
