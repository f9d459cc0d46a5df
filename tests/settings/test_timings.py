from __future__ import annotations

from typing import Any

import pytest

from keepfast.core.policies import TimingPolicy
from tests.settings.loader import Loader


def test_short_timings_are_refused_with_where_they_came_from(loader: Loader) -> None:
    environ = {"KEEPFAST_CONSUMER_MAX_POLL_INTERVAL_MS": "10000"}
    found = loader.problems(environ, session_timeout_ms=29_999, heartbeat_interval_ms=9_999, revoke_timeout_s=5)
    advice = "Raise it; only tests may switch the floors off, with unsafe_timings."
    where = ("code, consumer charge: {0}", "code, consumer charge: {0}", "environment variable KEEPFAST_CONSUMER_{1}")
    floors = {
        "session_timeout_ms": ("30,000", "standard:3.1.1", 29_999),
        "heartbeat_interval_ms": ("10,000", "standard:3.1.2", 9_999),
        "max_poll_interval_ms": ("300,000", "standard:3.1.4", 10_000),
    }
    assert list(found) == [
        f"consumer charge: {name} ({origin.format(name, name.upper())}) must be at least {floor} by the rule {rule};"
        f" got {given}. {advice}"
        for origin, (name, (floor, rule, given)) in zip(where, floors.items(), strict=True)
    ]
    at_the_floors: dict[str, Any] = {
        "session_timeout_ms": 30_000,
        "heartbeat_interval_ms": 10_000,
        "max_poll_interval_ms": 300_000,
    }
    assert loader.charge(**at_the_floors).timings == TimingPolicy(**at_the_floors)


def test_a_floor_hides_no_other_problem(loader: Loader) -> None:
    found = loader.problems(session_timeout_ms=29_999, revoke_timeout_s=300)
    assert ["session_timeout_ms (code" in found[0], "revoke_timeout_s (300) must be" in found[1]] == [True, True]
    assert len(found) == 2


def test_unsafe_timings_lift_the_floors_and_bend_the_defaults(loader: Loader) -> None:
    options: dict[str, Any] = {"session_timeout_ms": 6000, "max_poll_interval_ms": 10_000, "unsafe_timings": True}
    settings = loader.load(**options)
    timings = settings.consumers["charge"].timings
    assert (timings.session_timeout_ms, timings.heartbeat_interval_ms) == (6000, 2000)
    assert timings.revoke_timeout_s == 2.5
    (warning,) = settings.warnings
    assert warning.startswith("consumer charge: the floors of the timings are switched off (code,")


def test_a_heartbeat_that_was_chosen_does_not_bend(loader: Loader) -> None:
    problem = loader.problem(session_timeout_ms=6000, heartbeat_interval_ms=3000, unsafe_timings=True)
    assert "at most a third" in problem


def test_the_revoke_timeout_stays_below_half_of_the_poll_interval(loader: Loader) -> None:
    assert "revoke_timeout_s (300) must be below half" in loader.problem(revoke_timeout_s=300)
    assert loader.charge(revoke_timeout_s=299).timings.revoke_timeout_s == 299


def test_a_poll_interval_below_the_retry_sum_only_warns(loader: Loader) -> None:
    options: dict[str, Any] = {"retry": "financial", "max_poll_interval_ms": 509_999}
    (warning,) = loader.load(**options).warnings
    assert "below the standard's 510000" in warning
    assert loader.load(retry="financial", max_poll_interval_ms=510_000).warnings == ()
    assert loader.load(retry={"max_retries": None}, max_poll_interval_ms=300_000).warnings == ()
    assert loader.load(max_poll_interval_ms=300_000).warnings == ()


def test_under_kip_848_session_heartbeat_and_assignor_do_not_exist(loader: Loader) -> None:
    charge = loader.charge(group_protocol="consumer")
    assert (charge.timings.session_timeout_ms, charge.timings.heartbeat_interval_ms, charge.assignor) == (None,) * 3


@pytest.mark.parametrize(
    "option",
    [
        {"session_timeout_ms": 45_000},
        {"heartbeat_interval_ms": 12_000},
        {"assignor": "cooperative-sticky"},
        {"group_instance_id": "till"},
    ],
)
def test_auto_is_classic_for_who_has_chosen_something_of_it(loader: Loader, option: dict[str, Any]) -> None:
    charge = loader.charge(**option)
    assert (charge.group_protocol, charge.assignor) == ("classic", "cooperative-sticky")
    assert loader.load(**option).warnings == ()


def test_and_else_open_with_what_a_classic_member_would_need(loader: Loader) -> None:
    charge = loader.charge(unsafe_timings=True, max_poll_interval_ms=60_000)
    assert (charge.group_protocol, charge.assignor) == ("auto", "cooperative-sticky")
    assert (charge.timings.session_timeout_ms, charge.timings.heartbeat_interval_ms) == (60_000, 10_000)


@pytest.mark.parametrize("option", [{"session_timeout_ms": 45_000}, {"assignor": "range"}])
def test_and_setting_them_anyway_is_a_warning(loader: Loader, option: dict[str, Any]) -> None:
    (warning,) = loader.load(group_protocol="consumer", **option).warnings
    assert f"{next(iter(option))} (code, consumer charge" in warning
