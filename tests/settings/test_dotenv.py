from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.settings.variables import parse


def read(text: str) -> dict[str, str]:
    variables, problems = parse(text)
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
        ("A=#c", ""),
        ("A='b # c'", "b # c"),
        ('A="b # c" # d', "b # c"),
        (r'A="one\ntwo \"x\" \\ \d \$"', 'one\ntwo "x" \\ \\d $'),
        (r"A='one\ntwo'", r"one\ntwo"),
        ("A=${HOME}", "${HOME}"),
        ("A=x=y", "x=y"),
        ("A=it's", "it's"),
        ("A=b\r", "b"),
    ],
)
def test_a_line_is_read(line: str, value: str) -> None:
    assert read(f"# before\n\n{line}\n") == {"A": value}


def test_the_later_line_wins_and_knows_its_number() -> None:
    variables, _ = parse("A=1\nB=2\nA=3\n")
    assert variables["A"] == (3, "3")


@pytest.mark.parametrize(
    "line", ["secret", "=secret", "1A=secret", "A B=secret", "A='secret", 'A="secret', "A='x'secret"]
)
def test_a_line_that_is_none_is_a_problem_that_does_not_repeat_it(line: str) -> None:
    variables, (problem,) = parse(f"\n{line}")
    assert not variables
    assert problem.startswith("line 2 ")
    assert "secret" not in problem


one_line = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]))


@given(one_line)
def test_single_quotes_keep_everything_but_themselves(text: str) -> None:
    plain = text.replace("'", "")
    assert read(f"A='{plain}'") == {"A": plain}


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_double_quotes_with_escapes_keep_every_text(text: str) -> None:
    written = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    assert read(f'A="{written}"') == {"A": text}


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    parse(text)
