from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.settings.sources import parse_dotenv


def read(text: str) -> dict[str, str]:
    variables, problems = parse_dotenv(text)
    assert problems == []
    return {name: line.value for name, line in variables.items()}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=b", "b"),
        ("  export A = b  ", "b"),
        ("A=", ""),
        ("A=b # a comment", "b"),
        ("A=b#c", "b#c"),
        ("A=#c", "#c"),
        ("A= # c", ""),
        ("A='b # c'", "b # c"),
        ('A="b # c" # d', "b # c"),
        (r'A="one\ntwo \"x\" \\ \d"', 'one\ntwo "x" \\ \\d'),
        (r"A='one\ntwo'", r"one\ntwo"),
        ("A='one\ntwo'", "one\ntwo"),
        ('A="${HOME}"', "${HOME}"),
        ("A=${HOME}", "${HOME}"),
        ("A=x=y", "x=y"),
        ("A=it's", "it's"),
        ("A=b\r", "b"),
    ],
)
def test_a_line_is_read(line: str, value: str) -> None:
    assert read(f"# before\n\n{line}\n") == {"A": value}


def test_the_later_line_wins_and_knows_its_number() -> None:
    variables, _ = parse_dotenv("A=1\n# a comment\n\nB='2\n2'\n\n  A=3\n")
    assert variables == {"A": (7, "3"), "B": (4, "2\n2")}


@pytest.mark.parametrize(
    "line", ["secret", "=secret", "1A=secret", "A B=secret", "A='secret", 'A="secret', "A='x'secret"]
)
def test_a_line_that_is_none_is_a_problem_that_does_not_repeat_it(line: str) -> None:
    variables, (problem,) = parse_dotenv(f"\n{line}")
    assert not variables
    assert problem.startswith("line 2 ")
    assert "secret" not in problem


any_text = st.text(st.characters(exclude_categories=["Cs"]))


@given(any_text)
def test_single_quotes_with_escapes_keep_every_text(text: str) -> None:
    written = text.replace("\\", "\\\\").replace("'", "\\'")
    assert read(f"A='{written}'") == {"A": text}


@given(any_text)
def test_double_quotes_with_escapes_keep_every_text(text: str) -> None:
    written = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    assert read(f'A="{written}"') == {"A": text}


def test_every_bad_line_is_listed_and_the_others_are_read() -> None:
    variables, problems = parse_dotenv("A=1\nnonsense\nB=2\n\n'\nC=3\n")
    assert [problem.split(" is not ")[0] for problem in problems] == ["line 2", "line 5"]
    assert {name: line.value for name, line in variables.items()} == {"A": "1", "B": "2", "C": "3"}


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    parse_dotenv(text)
