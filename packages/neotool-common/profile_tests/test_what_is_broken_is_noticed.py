"""Breaking keepfast makes the tests fail that keep its rules: each break of `breaks`, in processes of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping

import pytest
from profile_tests import evidence
from profile_tests.breaking import VARIABLE
from profile_tests.breaks import BREAKS
from profile_tests.evidence import Evidence, path_of

from tests.support.project_files import ROOT

EVIDENCE = {name: value for name, value in vars(evidence).items() if isinstance(value, Evidence)}
TESTS_FAILED = 1
"""What pytest says when tests ran and failed; a module that cannot be imported is another number."""


def notices(environment: Mapping[str, str], test: str) -> bool:
    """Whether the test fails in processes with this environment."""
    # keepfast is imported before pytest can rewrite the assertions of its plugin, which has none.
    quiet = ["-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    command = [sys.executable, "-m", "pytest", "-q", "-x", *quiet, path_of(test)]
    environ = {**os.environ, **environment}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    output = f"{environment[VARIABLE]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    assert done.returncode in (0, TESTS_FAILED), output
    assert "Error in sitecustomize" not in done.stderr, output
    assert re.search(r"^\d+ (failed|passed|error)", done.stdout, re.MULTILINE), output
    # The last line of a traceback names the exception; those before it are `…: in function`, possibly of a break.
    assert not re.search(r"profile_tests/break\S+:\d+: (?!in )\w+", done.stdout), f"the break itself fails: {output}"
    return done.returncode == TESTS_FAILED


@pytest.mark.breaks
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", EVIDENCE)
def test_every_break_is_noticed_and_every_test_notices_one(name: str) -> None:
    tests = EVIDENCE[name].tests
    silent, unnoticed = set(tests), list[str]()
    for broken in BREAKS[name]:
        noticed = False
        for test in tests:
            if (not noticed or test in silent) and notices(broken.environment, test):
                noticed = True
                silent.discard(test)
        if not noticed:
            unnoticed.append(broken.name)
    assert (unnoticed, silent) == ([], set())


def test_every_evidence_has_breaks_each_with_a_name_of_its_own() -> None:
    assert set(BREAKS) == set(EVIDENCE)
    for name, found in BREAKS.items():
        assert len({broken.name for broken in found}) == len(found), name
    several = [broken for found in BREAKS.values() for broken in found]
    named = {(broken.make.__module__, broken.name): broken.make for broken in several}
    assert [one.name for one in several if named[one.make.__module__, one.name] is not one.make] == []


EACH = """
import os, sys
from profile_tests.breaks import BREAKS

failed = []
for broken in [broken for found in BREAKS.values() for broken in found]:
    child = os.fork()
    if child == 0:
        try:
            broken.make()
        except BaseException as error:
            print(broken.evidence, broken.name, repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_every_break_finds_what_it_replaces() -> None:
    """In a process of its own for each, which is gone afterwards."""
    [broken, *_] = BREAKS["FOR_EVER"]
    environ = {**os.environ, **broken.environment, VARIABLE: ""}
    done = subprocess.run(
        [sys.executable, "-c", EACH], cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == ""


@pytest.mark.parametrize(("name", "expected"), [("", False), ("for_ever_is_every_second", True)])
def test_a_test_notices_what_is_broken_and_nothing_else(name: str, expected: bool) -> None:
    [broken] = [one for one in BREAKS["FOR_EVER"] if one.name == "for_ever_is_every_second"]
    environment = broken.environment if name else {**broken.environment, VARIABLE: ""}
    assert notices(environment, EVIDENCE["FOR_EVER"].tests[0]) is expected
