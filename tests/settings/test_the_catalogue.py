"""Settings are declared once, in the annotations of policies and models; everything else follows from there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from keepfast.core.errors import ConfigError
from keepfast.core.fields import Choice, Number, Policy, PolicyField, Whole, fields_of
from keepfast.core.guards import BreakerPolicy
from keepfast.settings import Secret, Settings, catalogue
from keepfast.settings.catalogue import Section, variable
from keepfast.settings.kinds import Hidden
from keepfast.settings.sources import targets
from tests.settings.loader import Loader

ALL = [(section, setting) for section in catalogue.SECTIONS for setting in section.settings]
IDS = [f"{section.name}.{setting.name}" for section, setting in ALL]
DECLARED = [(section, setting) for section, setting in ALL if setting not in section.extra]


@pytest.mark.parametrize(("section", "setting"), ALL, ids=IDS)
def test_a_setting_is_documented_and_its_default_is_accepted(section: Section, setting: PolicyField) -> None:
    assert setting.doc.endswith(".")
    assert setting.kind.expects
    if setting.default is not None:
        assert setting.kind.check(setting.default) == setting.default
    if "password" in setting.name:
        assert isinstance(setting.kind, Hidden)


def test_no_variable_means_two_things() -> None:
    counts = Counter(name for target in targets(["charge"]) for name in target.names)
    assert [name for name, count in counts.items() if count > 1] == []


def test_every_policy_and_model_is_in_the_catalogue() -> None:
    listed = {one.__name__ for section in catalogue.SECTIONS for one in section.classes}
    assert listed == {one.__name__ for one in Policy.__subclasses__() if one.__module__.startswith("keepfast.")}


def test_what_a_section_says_about_single_settings_is_about_settings_it_has() -> None:
    for section in catalogue.SECTIONS:
        named = {*section.merged, *section.code_only, *section.one_consumer}
        named |= {name for name in (section.shorthand, section.switch) if name is not None}
        assert named <= set(section.by_name), section.name


@pytest.fixture
def guarded(loader: Loader) -> Settings:
    """With everything that is off by default."""
    return loader.load(breaker=True, storm_guard=True, rate={"min_delay_ms": 1})


def homes(settings: Settings, section: Section) -> list[Any]:
    """Where the settings of a section are found after loading."""
    charge = settings.consumers["charge"]
    if section is catalogue.CONSUMER:
        return [charge, charge.timings, charge.timeout]
    return [getattr(charge if section.per_consumer else settings, section.name)]


def home_of(settings: Settings, section: Section, setting: PolicyField) -> Any:
    [home] = [one for one in homes(settings, section) if setting.name in {part.name for part in fields_of(type(one))}]
    return home


def test_every_setting_arrives_as_a_typed_field_with_its_default(guarded: Settings) -> None:
    for section, setting in DECLARED:
        if section.name in {"batch", "rate"} or setting.derived or setting.default is None:
            continue  # a handler of single records has no batch policy
        assert getattr(home_of(guarded, section, setting), setting.name) == setting.default or setting.name == "topics"


OF_THE_APP: dict[str, Any] = {
    "kafka": {"client_id": "me"},
    "registry": {"url": "mock://me", "register": True},
    "masking": {"fields": ("pin",)},
    "spool": {"max_bytes": 5},
    "postgres": {"pool_max": 5},
    "state": {"dir": "/var/lib/me"},
    "desk": {"topic": "mine", "replay_limit": 5},
    "shutdown": {"timeout_s": 7},
    "app": {"env": "prod"},
    "health": {"port": 9},
    "metrics": {"interval_s": 5},
    "tracing": {"relation": "link"},
    "control": {"token": Secret("t")},
    "log": {"level": "DEBUG"},
}
OF_A_CONSUMER: dict[str, Any] = {
    "commit": {"every_s": 2},
    "retry": {"max_retries": 7},
    "retry_topics": {"create_topics": False},
    "buffer": {"records": 5},
    "dead_letter": {"format": "nested"},
    "breaker": {"enabled": True, "failures": 9},
    "storm_guard": {"enabled": True, "last": 299},
    "rate": {"per_s": 3},
    "alerts": {"for_s": 1},
}
OF_CONSUMER: dict[str, Any] = {"order": "key", "revoke_timeout_s": 3, "timeout_s": 4}


def test_what_is_set_arrives_as_a_typed_field(loader: Loader) -> None:
    assert {*OF_THE_APP, *OF_A_CONSUMER, "consumer", "batch"} == set(catalogue.BY_NAME)
    settings = loader.load(settings=OF_THE_APP, **OF_A_CONSUMER, **OF_CONSUMER)
    charge = settings.consumers["charge"]
    arrived = [(getattr(settings, section), values) for section, values in OF_THE_APP.items()]
    arrived += [(getattr(charge, section), values) for section, values in OF_A_CONSUMER.items()]
    for home, values in arrived:
        assert {name: getattr(home, name) for name in values if name != "enabled"} == {
            name: value for name, value in values.items() if name != "enabled"
        }
    assert (charge.order, charge.timings.revoke_timeout_s, charge.timeout.timeout_s) == ("key", 3, 4)


def candidates(setting: PolicyField) -> Iterator[object]:
    """Values at the bounds, just outside of them, and of no use at all."""
    yield from (True, "nonsense", float("nan"), float("inf"), -1, 10**30)
    match setting.kind:
        case Whole(low=low, high=high) | Number(low=low, high=high):
            yield from (low, low - 1, low + 0.5, low - 0.001)
            if high is not None:
                yield from (high, high + 1, high + 0.001)
        case Choice(options=options):
            yield from options
        case other:
            raise TypeError(f"no bounds in {other}")


def wrong_in_settings(loader: Loader, section: Section, setting: PolicyField, value: object) -> bool:
    """Whether the loader refuses this value for itself, not for what it does together with others."""
    tree = {section.name: {setting.name: value}}
    own = {"topics": "a.b", **(tree if section is not catalogue.CONSUMER else {setting.name: value})}
    try:
        if section.per_consumer:
            loader.load(consumers={"charge": own})
        else:
            loader.load(settings=tree)
    except ConfigError as error:
        return any(f"{setting.name}: must be" in problem for problem in error.problems)
    return False


def wrong_in_code(home: Any, setting: PolicyField, value: object) -> bool:
    try:
        replace(home, **{setting.name: value})
    except ConfigError as error:
        return any(f": {setting.name} must be" in problem and "; got" in problem for problem in error.problems)
    return False


BOUNDED = [(section, setting) for section, setting in DECLARED if isinstance(setting.kind, Whole | Number | Choice)]


@pytest.mark.parametrize(
    ("section", "setting"), BOUNDED, ids=[f"{section.name}.{setting.name}" for section, setting in BOUNDED]
)
def test_the_bounds_of_a_policy_and_of_its_settings_are_the_same(
    loader: Loader, section: Section, setting: PolicyField, guarded: Settings
) -> None:
    home = home_of(guarded, section, setting) if section.name != "batch" else catalogue.BATCH.classes[0]()
    seen = set()
    for value in candidates(setting):
        wrong = wrong_in_code(home, setting, value)
        assert wrong_in_settings(loader, section, setting, value) == wrong, value
        seen.add(wrong)
    assert seen == {True, False}


def test_a_bound_that_only_the_settings_had_holds_in_code_too() -> None:
    with pytest.raises(ConfigError, match="window_s must be a number above 0, at most 86,400; got 86401"):
        BreakerPolicy(window_s=86_401)


def test_kinds_accept_what_they_return(loader: Loader) -> None:
    samples: dict[str, object] = {
        "consumer.rules": {"http:409": "retryable", TimeoutError: "discard"},
        "consumer.retries": {"http:429": "financial", TimeoutError: {"max_retries": 2}},
        "retry_topics.delays": "60s, 2h",
        "masking.patterns": ["a+"],
        "kafka.brokers": " a:1, b:2,a:1",
        "kafka.sasl_password": "secret",
        "spool.url": "memory://x",
        "kafka.librdkafka": {"socket": {"keepalive": {"enable": True}}},
    }
    for path, value in samples.items():
        section, name = path.split(".")
        kind = catalogue.BY_NAME[section].by_name[name].kind
        checked = kind.check(value)
        assert kind.check(checked) == checked


def test_a_variable_is_named_after_its_section_and_setting() -> None:
    assert variable("kafka", "brokers") == "KEEPFAST_KAFKA_BROKERS"
    assert variable("consumers", "charge-late", "retry", "max_retries") == (
        "KEEPFAST_CONSUMERS_CHARGE_LATE_RETRY_MAX_RETRIES"
    )
