"""Every example service passes `keepfast check`: no MUST rule of any document is broken."""

from __future__ import annotations

import importlib
import re

import pytest

from keepfast import App
from keepfast.audit import Subject, examine
from keepfast.runner import KafkaConsumerRunner
from tests.support.project_files import ROOT

SERVICES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "examples").glob("*/*.py")
    if re.search(r"^(app|runner) = ", path.read_text(), re.MULTILINE)
)


def test_there_are_six() -> None:
    assert len(SERVICES) == 6
    assert {"examples.card_fraud.service", "examples.institution_enhancement.consumer"} <= set(SERVICES)


@pytest.mark.parametrize("service", SERVICES)
def test_it_breaks_no_must_rule(service: str) -> None:
    module = importlib.import_module(service)
    app = module.app if hasattr(module, "app") else module.runner
    assert isinstance(app, App | KafkaConsumerRunner)
    results = examine(Subject.of(app, cwd=ROOT, environ={}))
    broken = [one for one in results if one.status == "failed" and one.clause.level == "must"]
    assert [f"{one.clause.id}: {one.findings[0].reason} → {one.findings[0].fix}" for one in broken] == []
