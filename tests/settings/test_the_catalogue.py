from __future__ import annotations

from collections import Counter
from dataclasses import fields

import pytest

from keepfast.core.alerts import AlertPolicy
from keepfast.core.guards import BreakerPolicy, RatePolicy, StormPolicy
from keepfast.core.policies import BufferPolicy, CommitPolicy, DeadLetterPolicy, RetryPolicy
from keepfast.core.retry_topics import RetryTopics
from keepfast.settings import (
    AppSettings,
    ControlSettings,
    HealthSettings,
    KafkaSettings,
    LogSettings,
    MaskingSettings,
    MetricsSettings,
    ShutdownSettings,
    SpoolSettings,
    StateSettings,
    TracingSettings,
    catalogue,
)
from keepfast.settings.kinds import Hidden, Kind
from keepfast.settings.shape import Section, Setting
from keepfast.settings.variables import targets

ALL = [(section, setting) for section in catalogue.SECTIONS for setting in section.settings]


@pytest.mark.parametrize(("section", "setting"), ALL, ids=[f"{one.name}.{other.name}" for one, other in ALL])
def test_a_setting_is_documented_and_its_default_is_fit(section: Section, setting: Setting) -> None:
    kind: Kind = setting.kind
    assert setting.doc.endswith(".")
    assert kind.expects
    if setting.default is not None:
        assert kind.check(setting.default) == setting.default
    if "password" in setting.name:
        assert isinstance(kind, Hidden)


def test_no_variable_means_two_things() -> None:
    counts = Counter(name for target in targets(["charge"]) for name in target.names)
    assert [name for name, count in counts.items() if count > 1] == []


@pytest.mark.parametrize(
    ("section", "model"),
    [
        ("kafka", KafkaSettings),
        ("state", StateSettings),
        ("shutdown", ShutdownSettings),
        ("spool", SpoolSettings),
        ("health", HealthSettings),
        ("control", ControlSettings),
        ("metrics", MetricsSettings),
        ("tracing", TracingSettings),
        ("log", LogSettings),
        ("masking", MaskingSettings),
        ("app", AppSettings),
        ("retry", RetryPolicy),
        ("retry_topics", RetryTopics),
        ("commit", CommitPolicy),
        ("buffer", BufferPolicy),
        ("dead_letter", DeadLetterPolicy),
        ("breaker", BreakerPolicy),
        ("storm_guard", StormPolicy),
        ("rate", RatePolicy),
        ("alerts", AlertPolicy),
    ],
)
def test_settings_and_what_becomes_of_them_have_the_same_names(section: str, model: type) -> None:
    not_settings = {"name"} if section == "app" else set()
    not_fields = {"profile"} if section == "retry" else {catalogue.BY_NAME[section].switch}
    listed = {setting.name for setting in catalogue.BY_NAME[section].settings} - not_fields
    assert listed == {field.name for field in fields(model)} - not_settings


def test_the_defaults_of_the_list_are_those_of_the_policies() -> None:
    for section in catalogue.SECTIONS:
        if section.policy is not None:
            policy = section.policy()
            for setting in section.settings:
                if setting.name not in ("profile", section.switch):
                    assert getattr(policy, setting.name) == setting.default
