"""keepfast's own rules: each violated by an app made for it; the good app violates none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from keepfast import RetryPolicy
from keepfast.audit import OWN, Profile, Subject, choose_profiles, examine, exit_code
from keepfast.audit.profile import GROUP
from keepfast.core.alerts import AlertPolicy
from keepfast.core.errors import ConfigError
from keepfast.runner import KafkaConsumerRunner
from tests.support.audited import DOCKERFILE, anything, raw, result_of, subject
from tests.support.project_files import ROOT

Difference = Mapping[str, Any]

RULES = {rule.id.removeprefix("keepfast:"): rule for rule in OWN.rules}
LETTERLESS = "keepfast.core.errors.DecodeError"


def without_alert(name: str) -> Difference:
    return {"options": {"alerts": AlertPolicy(without=(name,))}}


def dockerfile(old: str, new: str) -> Difference:
    assert old in DOCKERFILE
    return {"files": {"Dockerfile": DOCKERFILE.replace(old, new)}}


VIOLATED: Mapping[str, Difference] = {
    "errors.transient": {"options": {"rules": {"http:503": "non-retryable"}}},
    "errors.final": {"options": {"rules": {ValueError: "retryable"}}},
    "errors.discarded": {"options": {"rules": {LETTERLESS: "discard"}}},
    "retries.jitter": {"options": {"retry": RetryPolicy(jitter=False)}},
    "letters.timeouts": {"options": {"on_timeout": "hold"}},
    "timings": {
        "options": {
            "unsafe_timings": True,
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 2000,
            "max_poll_interval_ms": 10_000,
        }
    },
    "shutdown": {"settings": {"shutdown": {"timeout_s": 5}}},
    "handler.idempotent": {"options": {"idempotent": False}},
    "handler.typed": {"handler": anything},
    "handler.timeout": {"options": {"timeout_s": None}},
    "group.name": {"options": {"group": "test"}},
    "group.documented": {"files": {"README.md": "# shop"}},
    "project.configuration": {"files": {"README.md": "# shop"}},
    "project.tests": {"files": {"tests/test_shop.py": None}},
    "health": {"environ": {"HEALTH_CHECK_ENABLED": "false"}},
    "metrics": {"environ": {"HEALTH_CHECK_ENABLED": "false"}},
    "logs": {"settings": {"log": {"level": "ERROR"}}},
    "alerts.letters": without_alert("KeepfastDeadLetters"),
    "alerts.publishing": without_alert("KeepfastDeadLettersNotPublished"),
    "alerts.errors": without_alert("KeepfastHighErrorRate"),
    "alerts.lag": without_alert("KeepfastHighPartitionLag"),
    "alerts.stuck": without_alert("KeepfastStuckPartitions"),
    "alerts.shutdown": without_alert("KeepfastShutdownTimeout"),
    "image.user": dockerfile("USER 1000:1000\n", ""),
    "image.signals": dockerfile('["shop-consumer"]', "shop-consumer"),
    "image.health": dockerfile("/health", "/elsewhere"),
    "image.port": dockerfile("EXPOSE 8080\n", ""),
    "image.layers": dockerfile(
        "COPY pyproject.toml ./\nRUN pip install .\nCOPY src ./src", "COPY . .\nRUN pip install ."
    ),
    "image.cache": dockerfile("ENV PIP_NO_CACHE_DIR=1\n", ""),
    "image.compiler": dockerfile("COPY src", "RUN apt-get install --no-install-recommends gcc\nCOPY src"),
    "image.packages": dockerfile("COPY src", "RUN apt-get install curl\nCOPY src"),
    "image.context": {"files": {".dockerignore": None}},
}
NOT_APPLICABLE: Mapping[str, Difference] = {
    "retries.jitter": {"options": {"retry": RetryPolicy(max_retries=None)}},
    "letters.spool": {},
    "letters.timeouts": {"options": {"timeout_s": None}},
    "handler.typed": {"handler": raw},
    "image.user": {"files": {"Dockerfile": None}},
}


@pytest.mark.parametrize("rule", VIOLATED)
def test_an_app_that_violates_it_fails_and_is_told_what_to_do(rule: str, tmp_path: Path) -> None:
    finding = result_of(subject(tmp_path, **VIOLATED[rule]), RULES[rule]).findings[0]
    assert (finding.status, bool(finding.fix)) == ("failed", True)


@pytest.mark.parametrize("rule", NOT_APPLICABLE)
def test_it_does_not_apply(rule: str, tmp_path: Path) -> None:
    assert result_of(subject(tmp_path, **NOT_APPLICABLE[rule]), RULES[rule]).status == "not applicable"


def test_every_rule_is_violated_above_or_below_and_the_good_app_violates_none(tmp_path: Path) -> None:
    assert {*VIOLATED, "letters.spool"} == set(RULES)
    results = examine(subject(tmp_path))
    assert [result.rule.id for result in results if result.status not in ("passed", "not applicable")] == []
    assert exit_code(results, strict=True) == 0


def test_a_group_under_kip_848_has_no_session_to_judge(tmp_path: Path) -> None:
    def reasons(**options: object) -> str:
        return result_of(subject(tmp_path, options=options), RULES["timings"]).findings[0].reason

    assert "heartbeat" not in reasons()
    assert "heartbeat" not in reasons(group_protocol="consumer")
    assert "heartbeat_interval_ms is 10000" in reasons(group_protocol="classic")


def process(message: Any) -> None:
    """The user's work."""


def runner_of(folder: Path, **options: Any) -> Subject:
    runner = KafkaConsumerRunner(
        consumer_factory=lambda: {"bootstrap.servers": "nowhere:1", "group.id": "shop.charge"},
        topics="orders.payment.v1",
        **{"process_message": process, **options},
    )
    return Subject.of(runner, cwd=folder, environ={})


@pytest.mark.parametrize(("hooks", "status"), [({}, "passed"), ({"dlq_publisher": lambda *_, **__: None}, "failed")])
def test_a_spool_that_a_runners_own_publisher_does_not_use_is_reported(
    hooks: Mapping[str, Any], status: str, tmp_path: Path
) -> None:
    audited = runner_of(tmp_path, settings={"spool": f"file://{tmp_path}/spool"}, **hooks)
    assert result_of(audited, RULES["letters.spool"]).status == status


def test_the_project_of_a_callable_object_is_found_by_its_class(tmp_path: Path) -> None:
    class Processor:
        def __call__(self, message: Any) -> None:
            """The user's work."""

    assert runner_of(tmp_path, process_message=Processor()).folder == ROOT


def test_decision_records_of_profiles_that_are_not_installed_are_left_alone(tmp_path: Path) -> None:
    record = {"docs/adr/1-ours.md": "Overrules: elsewhere:1.2, keepfast:handler.timeout"}
    results = {
        result.rule.id: result for result in examine(subject(tmp_path, options={"timeout_s": None}, files=record))
    }
    assert results["keepfast:handler.timeout"].status == "overruled"
    misspelt = {"docs/adr/1-ours.md": "Overrules: keepfast:handler.timeot"}
    with pytest.raises(ConfigError, match="which is not a rule"):
        examine(subject(tmp_path, files=misspelt))


def test_a_profile_is_chosen_by_its_name() -> None:
    assert choose_profiles((), OWN) == [OWN]
    assert [profile.name for profile in choose_profiles(("standard", "keepfast"), OWN)] == ["standard", "keepfast"]
    with pytest.raises(ConfigError, match=r"There is no profile 'standrad'\. Installed: keepfast, fraud, loop"):
        choose_profiles(("standrad",), OWN)


class Point:
    """An entry point as importlib.metadata has it."""

    def __init__(self, loaded: object) -> None:
        self.name, self.value, self._loaded = "own", "somewhere:OWN", loaded

    def load(self) -> object:
        if isinstance(self._loaded, Exception):
            raise self._loaded
        return self._loaded


@pytest.mark.parametrize("loaded", [ImportError("no module"), object(), Profile("another", "", ())])
def test_a_package_whose_profile_cannot_be_loaded_is_named(loaded: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def points(group: str) -> list[Point]:
        assert group == GROUP
        return [Point(loaded)]

    monkeypatch.setattr("keepfast.audit.profile.entry_points", points)
    with pytest.raises(ConfigError, match="'own' \\(somewhere:OWN\\)"):
        choose_profiles((), OWN)
