"""What every file of the project keeps to."""

from __future__ import annotations

import re
import stat

from tests.schedule import FULL_ONLY, LONG_FIRST
from tests.support.project_files import ROOT, SOURCES, project_texts

# In pieces, so that this file does not name what it looks for.
REGISTRIES = re.compile(
    "|".join(
        [
            "pypi" + r"\.org",
            "python" + "hosted",
            r"repo1?\." + r"maven",
            "registry" + r"\.npmjs",
            "crates" + r"\.io",
            r"deb\." + "debian",
        ]
    ),
    re.IGNORECASE,
)
OF_ONE_MACHINE = re.compile(r"(?<![\w.~$}])/(?:work|farm|root|home/[a-z]\w*|Users/[A-Za-z]\w*)/")


def test_no_file_names_the_host_of_a_package_registry() -> None:
    assert [name for name, text in project_texts() if REGISTRIES.search(text)] == []


def test_no_file_names_a_path_of_one_machine() -> None:
    found = [f"{name}: {match[0]}" for name, text in project_texts() if (match := OF_ONE_MACHINE.search(text))]
    assert found == []


def test_ci_runs_exactly_the_test_command() -> None:
    script = ROOT / ".ci" / "run"
    lines = [line for line in script.read_text().splitlines() if line and not line.startswith("#")]
    assert lines == ["set -euo pipefail", 'cd "$(dirname "${BASH_SOURCE[0]}")/.."', "make test"]
    assert script.stat().st_mode & stat.S_IXUSR


def test_the_package_says_that_it_is_typed() -> None:
    assert (SOURCES / "py.typed").is_file()


def test_the_changelog_has_a_place_for_what_comes_and_its_first_version_is_one_page() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert "\n## [Unreleased]\n" in text
    assert len(text.partition("## [0.1.0]")[2].splitlines()) <= 60
    assert [line for line in text.splitlines() if len(line) > 120] == []


def test_a_decision_record_is_short_and_narrow() -> None:
    """At most 400 words; lines of 120 characters but for tables. Measurements are in docs/performance.md."""
    for path in sorted((ROOT / "docs" / "decisions").glob("0*.md")):
        text = path.read_text()
        assert len(text.split()) <= 400, f"{path.name} has {len(text.split())} words"
        wide = [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")]
        assert wide == [], path.name


def test_each_decision_record_has_a_number_of_its_own_and_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    records = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    numbers = [path.name[:4] for path in records]
    assert len(set(numbers)) == len(numbers)
    for path in records:
        text = path.read_text()
        assert text.startswith(f"# {path.name[:4]}. "), path.name
        assert "\nStatus: " in text, path.name
        assert f"({path.name})" in index, f"{path.name} is not in the table of docs/decisions/README.md"


def test_files_that_are_begun_first_exist() -> None:
    assert [name for name in LONG_FIRST if not (ROOT / name).is_file()] == []
    assert len(set(LONG_FIRST)) == len(LONG_FIRST)


def test_tests_that_wait_for_the_full_run_exist() -> None:
    for pattern in FULL_ONLY:
        file, _, test = pattern.partition("::")
        function = test.partition("[")[0].rstrip("*")
        assert (ROOT / file).is_file(), pattern
        assert test, f"{pattern} matches the name of no test"
        assert f"def {function}" in (ROOT / file).read_text(), pattern


def test_the_former_name_stands_nowhere_but_where_it_is_explained() -> None:
    former = "hold" + "fast"
    found = {name for name, text in project_texts() if former in text.lower() or former in name.lower()}
    assert found <= {"CHANGELOG.md", "docs/decisions/0034-the-name.md"}
