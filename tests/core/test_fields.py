"""Declarations of fields: what is derived from an annotation, when, and how a policy checks itself with it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import pytest

from keepfast.core.errors import ConfigError
from keepfast.core.fields import (
    DERIVED,
    Choice,
    Derived,
    Doc,
    Env,
    Findings,
    Flag,
    Floor,
    NameList,
    NoneWord,
    Number,
    Policy,
    Range,
    Text,
    Whole,
    fields_of,
    floor_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed(Policy):
    """A policy with a field of every kind."""

    section: ClassVar[str] = "speed"

    per_s: Annotated[float, Range(0, 10, above=True), Env("SPEED", "PER_S"), Doc("Fast."), Floor(2, "rule:1")] = 5.0
    count: Annotated[int | None, Range(1), NoneWord("all"), Doc("Many.")] = 3
    most: Annotated[int | None, Range(0, 9), Doc("At most."), Derived("twice the count")] = None
    mode: Annotated[Literal["slow", "fast"] | None, Doc("How.")] = None
    on: Annotated[bool, Doc("Whether.")] = True
    name: Annotated[str, Doc("Who.")] = "x"
    names: Annotated[tuple[str, ...], NameList(), Doc("Who else.")] = ("y",)
    half: Annotated[float, Range(0), Doc("Half of it."), Derived("half of per_s")] = DERIVED
    internal: int = -1

    def _derive(self) -> None:
        if self.half is DERIVED:
            object.__setattr__(self, "half", self.per_s / 2)

    def _check_together(self, findings: Findings) -> None:
        if findings.fine("per_s", "half") and self.half > self.per_s:
            findings.add("half is more than the whole.")


def test_everything_about_a_setting_follows_from_its_annotation() -> None:
    per_s, count, most, mode, on, name, names, _ = fields_of(Speed)
    assert (per_s.name, per_s.kind, per_s.default) == ("per_s", Number(0, 10, above=True), 5.0)
    assert (per_s.aliases, per_s.doc, per_s.floor) == (("SPEED", "PER_S"), "Fast.", Floor(2, "rule:1"))
    assert (count.kind, count.none_is_a_value, count.accepts_none) == (Whole(1, None, "all"), True, False)
    assert (most.kind, most.none_is_a_value, most.accepts_none) == (Whole(0, 9), False, True)
    assert most.derived == "twice the count"
    assert (mode.kind, on.kind, name.kind, names.kind) == (Choice(("slow", "fast")), Flag(), Text(), NameList())
    assert floor_of(Speed, "per_s").low == 2


def test_a_policy_refuses_all_that_does_not_fit_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        Speed(per_s=0, count=0, most=10, mode="slower", on=1, name="", names=())  # type: ignore[arg-type]
    names = [problem.removeprefix("speed: ").split()[0] for problem in caught.value.problems]
    assert names == ["per_s", "count", "most", "mode", "on", "name", "names"]


def test_fields_are_compared_only_if_each_is_right_by_itself() -> None:
    with pytest.raises(ConfigError, match=r"^speed: half is more than the whole\.$"):
        Speed(half=6)
    with pytest.raises(ConfigError) as caught:
        Speed(per_s=11, half=12)
    assert len(caught.value.problems) == 1


def test_a_floor_is_not_the_policys_business_and_none_may_be_a_value() -> None:
    assert Speed(per_s=1, count=None, most=None, mode=None).half == 0.5


@pytest.mark.parametrize("options", [{"count": "all"}, {"names": "a,b"}, {"names": "a"}])
def test_words_for_files_are_refused_in_code(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="got a text"):
        Speed(**options)  # type: ignore[arg-type]


def test_values_are_stored_as_their_kind_writes_them() -> None:
    speed = Speed(mode="FAST", names=["a", "b", "a"])  # type: ignore[arg-type]
    assert (speed.mode, speed.names) == ("fast", ("a", "b"))


@dataclass(frozen=True)
class Unbounded:
    number: Annotated[int, Doc("Without bounds.")] = 1


def test_a_number_without_bounds_is_a_mistake_of_the_declaration() -> None:
    with pytest.raises(TypeError, match="number: a field of type <class 'int'> needs a Range"):
        fields_of(Unbounded)


def test_importing_policies_resolves_no_annotation() -> None:
    script = (
        "import keepfast\n"
        "from keepfast import AlertPolicy, App, BreakerPolicy, RetryPolicy, RetryTopics\n"
        "from keepfast.core import fields\n"
        "App('x')\n"
        "before = len(fields._RESOLVED)\n"
        "RetryPolicy()\n"
        "print(before, len(fields._RESOLVED))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1"]
