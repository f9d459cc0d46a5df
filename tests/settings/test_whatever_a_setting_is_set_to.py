"""Every setting takes a value or says in a sentence why not, whatever it is set to, wherever that stands."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from keepfast.core.errors import ConfigError
from keepfast.settings import AppSpec, load
from keepfast.settings.catalogue import SECTIONS, Section, variable

VALUES: Final[tuple[Any, ...]] = (
    *(10**400, -1e308, float("inf"), b"x", "x" * 5_000, "a\0b", "\udcff", "9" * 400, "[::1", "http://[::1"),
    *([], {}, [10**400], {"x" * 5_000: 10**400}),
)


Source = tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, str]]


def sources(section: Section, name: str, value: Any) -> list[Source]:
    """For the app, for the consumer, and in a variable: settings, those of the consumer, environment."""
    own = {name: value} if section.name == "consumer" else {section.name: {name: value}}
    found: list[Source] = [({section.name: {name: value}}, {}, {}), ({}, own, {})]
    if isinstance(value, str) and "\0" not in value:  # no variable can have that
        found.append(({}, {}, {variable(section.name, name): value}))
    return found


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_it_is_taken_or_refused_in_a_sentence(section: Section, tmp_path: Path) -> None:
    for setting in section.settings:
        for value in VALUES:
            for settings, consumer, environ in sources(section, setting.name, value):
                spec = AppSpec(
                    name="shop", settings=settings, consumers={"charge": {"topics": "orders.v1", **consumer}}
                )
                with suppress(ConfigError):
                    load(spec, environ=environ, cwd=tmp_path)


@pytest.mark.parametrize(
    "name", ["KAFKA_BROKERS", "KEEPFAST_KAFKA_CLIENT_ID", variable("spool", "url"), variable("kafka", "sasl_password")]
)
def test_a_variable_that_is_not_utf8_is_a_problem(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"environment variable {name}: is not UTF-8 text"):
        load(AppSpec(name="shop", consumers={}), environ={name: "\udcff:9092"}, cwd=tmp_path)
