"""Every example service passes `keepfast check`: no MUST rule of any document is broken."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest
from neotool_common.profiles import PROFILES

from keepfast import App
from keepfast.audit import Subject, examine
from keepfast.runner import KafkaConsumerRunner
from keepfast.testing.topics import TopicAdmin
from tests.support.project_files import ROOT

APPS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "examples").glob("*/*.py")
    if re.search(r"^(app|runner) = ", path.read_text(), re.MULTILINE)
)
RUNNER = "institution_enhancement.flows.consumer"


def test_there_are_seven() -> None:
    assert len({*APPS, RUNNER}) == 7
    assert "examples.card_fraud.service" in APPS


@pytest.mark.parametrize("service", APPS)
def test_it_breaks_no_must_rule(service: str) -> None:
    module = importlib.import_module(service)
    check(module.app if hasattr(module, "app") else module.runner, ROOT)


def test_the_runner_on_kafka_python_breaks_no_must_rule(kafka: TopicAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its consumer connects when it is made. The pattern's call cannot declare that the upsert is idempotent."""
    monkeypatch.setenv("KAFKA_BROKERS", kafka.bootstrap)  # read when it is imported, which another test may have done
    for name in [name for name in sys.modules if name.partition(".")[0] == RUNNER.partition(".")[0]]:
        monkeypatch.delitem(sys.modules, name)
    folder = ROOT / "examples" / "institution_enhancement"
    check(importlib.import_module(RUNNER).runner, folder, undeclared="is not declared idempotent")


def check(app: object, cwd: Path, *, undeclared: str = "\n") -> None:
    assert isinstance(app, App | KafkaConsumerRunner)
    results = examine(Subject.of(app, cwd=cwd, environ={}), PROFILES)
    broken = [one for one in results if one.status == "failed" and one.rule.level == "must"]
    broken = [one for one in broken if undeclared not in one.findings[0].reason]
    assert [f"{one.rule.id}: {one.findings[0].reason} → {one.findings[0].fix}" for one in broken] == []
