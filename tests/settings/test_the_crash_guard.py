"""`max_deliveries`: for all consumers, for one, or switched off."""

from __future__ import annotations

from typing import Any

import pytest

from keepfast.core.errors import ConfigError
from tests.settings.loader import Loader


def test_one_consumer_may_have_its_own(loader: Loader) -> None:
    environ = {"KEEPFAST_CONSUMER_MAX_DELIVERIES": "5", "KEEPFAST_CONSUMERS_CHARGE_MAX_DELIVERIES": "2"}
    consumers = {"charge": {"topics": "a.b"}, "refund": {"topics": "a.b"}}
    settings = loader.load(environ, consumers=consumers)
    assert {name: one.max_deliveries for name, one in settings.consumers.items()} == {"charge": 2, "refund": 5}


@pytest.mark.parametrize("code", [{"max_deliveries": None}, {"max_deliveries": 0}])
def test_code_switches_it_off(loader: Loader, code: dict[str, Any]) -> None:
    assert not loader.charge(**code).max_deliveries


@pytest.mark.parametrize("word", ["off", "OFF", "0"])
def test_the_environment_switches_it_off(loader: Loader, word: str) -> None:
    assert not loader.charge({"KEEPFAST_CONSUMER_MAX_DELIVERIES": word}).max_deliveries


@pytest.mark.parametrize("word", ["-1", "1001", "three", "1.5"])
def test_nonsense_is_refused_with_what_would_fit(loader: Loader, word: str) -> None:
    with pytest.raises(ConfigError, match='MAX_DELIVERIES: must be a whole number from 0 to 1,000, or "off"'):
        loader.charge({"KEEPFAST_CONSUMER_MAX_DELIVERIES": word})
