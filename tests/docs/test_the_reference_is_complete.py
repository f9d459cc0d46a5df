"""The reference is made from the code: it is current, and it is all of the code."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from neotool_common.profiles import RULES as PROFILED
from profile_tests.rules import KEPT_BY

from keepfast.audit import OWN
from keepfast.classify.classification import RULES
from keepfast.classify.rules.codes import CODES
from keepfast.cli import COMMANDS, main
from keepfast.core.exit_codes import EXIT_CODES
from keepfast.core.policies import LETTER_FORMATS
from keepfast.settings.sources import targets
from keepfast.telemetry.catalogue import CATALOGUE
from tests.docs.blocks import ROOT
from tools.reference import api, commands, errors, events, health, letters, metrics, rules, settings
from tools.reference.pages import COMMITTED, PAGES


def test_every_setting_and_every_variable_is_there() -> None:
    page = settings.page()
    for target in targets(()):
        row = next(line for line in page.splitlines() if line.startswith("| ") and f"`{target.names[0]}`" in line) \
            if target.setting.name not in target.section.code_only else ""  # fmt: skip
        if row:
            assert row.startswith(f"| `{target.setting.name}` |")
            assert all(f"`{name}`" in row for name in target.names)
        assert f"| `{target.setting.name}` |" in page


def all_commands() -> list[tuple[tuple[str, ...], click.Command]]:
    """As the command line finds them, not as the reference does."""
    found: list[tuple[tuple[str, ...], click.Command]] = []
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        found.append((("keepfast", name), command))
        if isinstance(command, click.Group):
            found += [(("keepfast", name, inner), each) for inner, each in command.commands.items()]
    return found


def test_every_command_and_every_option_is_there() -> None:
    page = commands.page()
    for path, command in all_commands():
        heading = re.search(rf"^#+ {' '.join(path)}$", page, re.MULTILINE)
        assert heading, path
        text = page[heading.end() :].split("\n```\n")[0]
        shown = [option for option in command.params if not getattr(option, "hidden", False)]
        for option in shown:
            argument = isinstance(option, click.Argument)
            names = [option.make_metavar(click.Context(command))] if argument else option.opts
            assert any(name in text for name in names), (path, option.opts)
    assert all(f"| `{code}` |" in page for code in EXIT_CODES)


@pytest.mark.parametrize("module", api.MODULES)
def test_every_public_name_is_there(module: str) -> None:
    page = api.page()
    for name in importlib.import_module(module).__all__:
        assert f"### {name} {{ #{api.anchor(module, name)} }}" in page


def test_every_code_rule_and_letter_format_is_there() -> None:
    page = errors.page()
    assert all(f"`{code}`" in page for code in CODES)
    assert all(f"`{key}`" in page for rule in RULES for key in rule.keys)
    assert all(f"## {name}\n" in letters.page() for name in LETTER_FORMATS)


def test_every_metric_and_every_reason_of_health_is_there() -> None:
    page = metrics.page()
    assert all(f"| `{metric.name}` | `{metrics.in_prometheus(metric)}` |" in page for metric in CATALOGUE)
    package = ROOT / "src" / "keepfast"
    source = "".join((package / name).read_text() for name in ("http/health.py", "supervisor/shared_health.py"))
    given = set(re.findall(r'(?:_failing\(\s*|code=)"(\w+)"', source))
    assert {one.code for one in health.reasons()} == given
    assert all(f"| `{code}` |" in health.page() for code in given)


def test_every_rule_is_there_with_its_code_and_its_tests() -> None:
    rows = {line.split("`")[1]: line for line in rules.page().splitlines() if line.startswith("| `")}
    assert list(rows) == [rule.id for rule in (*OWN.rules, *PROFILED)]
    for rule in PROFILED:
        assert all(f"`{name}`" in rows[rule.id] for name in (KEPT_BY[rule.id].code, *KEPT_BY[rule.id].tests))


def test_the_events_of_the_runbook_are_there_and_more() -> None:
    known = {event.name: event.level for source in events.sources() for event in source.events}
    assert len(known) > 70
    assert {
        "retry_scheduled",
        "dead_lettering",
        "dead_lettered",
        "consumer_held",
        "partitions_assigned",
        "dead_letter_publish_failed",
        "spool_waits_for_kafka",
    } <= set(known)
    assert {
        "client_error": "warning",
        "record_discarded": "warning",
        "consumer_halted": "error",
    }.items() <= known.items()
    printed = re.findall(r"[Ii]n the log\*{0,2}:? `(\w+)`", (ROOT / "docs" / "runbook.md").read_text())
    assert len(printed) >= 5
    assert set(printed) - set(known) == set()


def test_every_page_is_in_the_navigation_and_none_is_left_over() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert [name for name in PAGES if name.removeprefix("docs/") not in navigation] == []
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "reference").iterdir()}
    assert there == set(PAGES)


@pytest.fixture(scope="module")
def derived() -> dict[str, str]:
    """Made in a process of their own: click keeps the help option that a command had when another test called it."""
    script = (
        "import json; from tools.reference.pages import COMMITTED\n"
        "print(json.dumps({path: make() for path, make in COMMITTED.items()}))"
    )
    made = subprocess.run([sys.executable, "-X", "utf8", "-c", script], cwd=ROOT, capture_output=True, check=True)
    return dict(json.loads(made.stdout))


@pytest.mark.parametrize("path", COMMITTED)
def test_what_is_derived_and_committed_is_fresh(path: str, derived: dict[str, str]) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == derived[path], (
        f"{path} is not what the code says now: run `make reference`"
    )


def test_it_does_not_depend_on_where_it_is_made(tmp_path: Path) -> None:
    """Terminal, locale, settings of the machine and the order of hashes."""
    script = (
        "from tools.reference.pages import COMMITTED, ROOT\n"
        "print([path for path, make in COMMITTED.items() if make() != (ROOT / path).read_text()])"
    )
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTHONHASHSEED": "7",
        "COLUMNS": "60",
        "LC_ALL": "C",
        "FORCE_COLOR": "1",
        "RETRY_MAX_RETRIES": "9",
        "KAFKA_BROKERS": "elsewhere:1",
    }
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", script],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
