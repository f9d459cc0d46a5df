"""`keepfast check`: what people and CI get to see. The rules themselves are tested in tests/audit."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.command import APP, keepfast

SERVED = {"HEALTH_CHECK_ENABLED": "true"}
"""The tests serve nothing unless they ask for it."""


def test_people_get_what_is_broken_and_what_to_do_and_ci_gets_a_code(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "README.md").write_text("# payments\n")
    done = keepfast("check", "app:app", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "FAILED     keepfast:health" in done.stdout
    assert "warning    keepfast:group.documented" in done.stdout
    assert "README does not name payments.charge." in done.stdout
    assert "→ Name each consumer group in the project's README." in done.stdout
    assert "overruled  " not in done.stdout, "what is overruled is shown with --all"
    reasons = [line for line in done.stdout.splitlines() if line.lstrip().startswith("→")]
    assert len(reasons) == len(set(reasons)), "what several documents ask for is said once"
    assert "keepfast:timings" not in done.stdout, "what is kept is shown with --all"
    assert "standard:" not in done.stdout, "profiles are asked for by name"
    assert "MUST rules violated" in done.stdout
    assert done.stdout.index("FAILED ") < done.stdout.index("warning    "), "what fails comes first"
    assert "`Overrules: " in done.stdout.splitlines()[-1], "how to continue"
    assert "`keepfast check --list` has every rule in words" in done.stdout
    assert "\x1b" not in done.stdout
    assert "passed     keepfast:timings" in keepfast("check", "app:app", "--all", cwd=tmp_path).stdout


def test_a_profile_says_what_several_of_its_rules_ask_for_once(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "README.md").write_text("# payments\n")
    standard = ("check", "app:app", "--profile", "standard")
    done = keepfast(*standard, cwd=tmp_path)
    assert (done.returncode, "FAILED     standard:5.1.4" in done.stdout) == (1, True), done.stderr
    assert "Also required by " in done.stdout
    assert "standard:1.1.3.1" not in done.stdout, "what is kept is shown with --all"
    assert done.stdout.index("FAILED ") < done.stdout.index("warning    standard:9.3.3"), "what fails comes first"
    failures, warnings = done.stdout.count("FAILED  "), done.stdout.count("warning  ")
    assert f"{failures} failures and {warnings} warnings. Counted by rules" in done.stdout
    every = keepfast(*standard, "--all", cwd=tmp_path, KEEPFAST_CONSUMER_GROUP_PROTOCOL="classic").stdout
    assert ("overruled  " in every, "(decision 0007)" in every, "Also required" in every) == (True, True, False)


def test_programs_get_every_rule_with_its_findings(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text("Group: payments.charge. Settings: KAFKA_BROKERS.")
    done = keepfast("check", "app:app", "--profile", "standard", "--project", "docs", "--json", cwd=tmp_path, **SERVED)
    assert done.returncode == 0, done.stdout
    reported = json.loads(done.stdout)
    rules = {one["id"]: one for one in reported["rules"]}
    assert (reported["exit_code"], len(rules)) == (0, 129)
    assert rules["standard:1.1.3.1"]["status"] == "guaranteed"
    assert rules["standard:9.3.3"] | {"text": "", "code": ""} == {
        "id": "standard:9.3.3",
        "level": "should",
        "text": "",
        "code": "",
        "status": "failed",
        "findings": [
            {
                "status": "failed",
                "reason": "A handler has no time limit.",
                "fix": "Set timeout_s=… to what the slowest good record needs.",
                "decision": None,
                "consumer": "charge",
                "record": "",
            }
        ],
    }


def test_settings_that_are_refused_and_rules_that_do_not_exist_are_code_2(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    done = keepfast("check", "app:app", cwd=tmp_path, KEEPFAST_CONSUMER_SESSION_TIMEOUT_MS="5000")
    assert (done.returncode, "session_timeout_ms" in done.stderr) == (2, True), done.stderr
    done = keepfast("check", "app:app", "--ignore", "keepfast:99", cwd=tmp_path)
    assert (done.returncode, "There is no rule 'keepfast:99'" in done.stderr) == (2, True), done.stderr


def test_the_rules_can_be_listed_without_an_app(tmp_path: Path) -> None:
    done = keepfast("check", "--list", "--profile", "loop", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split(maxsplit=2)[:2] == ["loop:1", "must"]
    assert keepfast("check", "--list", cwd=tmp_path).stdout.startswith("keepfast:errors.transient")
    assert keepfast("check", cwd=tmp_path).returncode == 2
    unknown = keepfast("check", "--list", "--profile", "standrad", cwd=tmp_path)
    assert (unknown.returncode, "There is no profile 'standrad'" in unknown.stderr) == (2, True)
