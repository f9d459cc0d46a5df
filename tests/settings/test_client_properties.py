from __future__ import annotations

import pytest

from keepfast.settings.client_properties import FORBIDDEN, OWN_SETTING
from tests.settings.loader import Loader


def test_other_properties_come_from_every_source_each_by_itself(loader: Loader) -> None:
    settings = loader.load(
        {"KEEPFAST_KAFKA_LIBRDKAFKA_SOCKET_KEEPALIVE_ENABLE": "true"},
        toml="[kafka.librdkafka]\nsocket.keepalive.enable = false\n'linger.ms' = 7\n",
        settings={"kafka": {"librdkafka": {"linger.ms": 9, "debug": "cgrp", "oauth_cb": print}}},
    )
    assert dict(settings.kafka.librdkafka) == {
        "socket.keepalive.enable": "true",
        "linger.ms": "7",
        "debug": "cgrp",
        "oauth_cb": print,
    }
    assert settings.origins["kafka.librdkafka.linger.ms"] == "keepfast.toml [kafka.librdkafka] linger.ms"


PROMISED = {"enable.auto.commit", "enable.auto.offset.store", "auto.commit.interval.ms", "acks", "enable.idempotence"}
"""At least these, whatever the list says."""


@pytest.mark.parametrize("name", sorted({*FORBIDDEN, *PROMISED, "error_cb", "rebalance_cb"}))
def test_properties_that_would_break_a_promise_are_refused_with_the_reason(loader: Loader, name: str) -> None:
    problem = loader.problem(settings={"kafka": {"librdkafka": {name: "true"}}})
    assert f"the client property {name} may not be set: " in problem


@pytest.mark.parametrize("name", OWN_SETTING)
def test_properties_with_a_setting_of_their_own_are_sent_there(loader: Loader, name: str) -> None:
    problem = loader.problem({f"KEEPFAST_KAFKA_LIBRDKAFKA_{name.upper().replace('.', '_')}": "x"})
    assert f"use {OWN_SETTING[name]}, which is checked" in problem


def test_a_function_comes_from_code_only(loader: Loader) -> None:
    assert "only code can give it" in loader.problem(toml="[kafka.librdkafka]\noauth_cb = 'module:function'\n")


def test_a_property_must_be_a_plain_value(loader: Loader) -> None:
    assert "something of type list" in loader.problem(toml="[kafka.librdkafka]\ndebug = ['cgrp']\n")


def test_the_table_cannot_be_one_variable(loader: Loader) -> None:
    assert "give one variable per property" in loader.problem({"KEEPFAST_KAFKA_LIBRDKAFKA": "linger.ms=5"})


def test_timeouts_that_leave_no_time_to_repeat_a_request_are_warned_of(loader: Loader) -> None:
    properties = {"socket.timeout.ms": 60_000, "request.timeout.ms": "30000"}
    classic = {"kafka": {"librdkafka": properties}, "consumer": {"group_protocol": "classic"}}
    found = loader.load(settings=classic).warnings
    assert [text.partition(":")[0] for text in found] == [
        "socket.timeout.ms=60000 is not below session_timeout_ms=60000",
        "socket.timeout.ms=60000 is not below delivery.timeout.ms=30000",
        "request.timeout.ms=30000 is not below delivery.timeout.ms=30000",
    ]
    assert loader.load(settings={"kafka": {"librdkafka": {"socket.timeout.ms": 20_000}}}).warnings == ()
