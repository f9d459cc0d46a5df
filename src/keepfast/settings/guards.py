"""The settings of what guards a consumer: breaker, storm guard, rate limits. Part of the catalogue."""

from __future__ import annotations

from typing import Final

from keepfast.core.guards import BreakerPolicy, RatePolicy, StormPolicy
from keepfast.settings.kinds import Flag, Number, Whole
from keepfast.settings.shape import Section, Setting

_BREAKER, _STORM, _RATE = BreakerPolicy(), StormPolicy(), RatePolicy()

BREAKER: Final = Section(
    "breaker",
    "Makes records wait while what the handler depends on is down, instead of burying them.",
    (
        Setting("enabled", Flag(), False, "Whether there is one."),
        Setting("failures", Whole(1), _BREAKER.failures, "It opens after so many outages within window_s."),
        Setting("share", Number(0, 1, above=True), _BREAKER.share, "If they are at least this share of all attempts."),
        Setting("window_s", Number(0, 86_400, above=True), _BREAKER.window_s, "How far back it looks."),
        Setting("open_s", Number(0, 86_400, above=True), _BREAKER.open_s, "How long it stays open before a probe."),
        Setting(
            "longest_open_s",
            Number(0, 86_400, above=True),
            _BREAKER.longest_open_s,
            "Each failed probe doubles that time, up to this.",
        ),
    ),
    per_consumer=True,
    policy=BreakerPolicy,
    switch="enabled",
)

STORM_GUARD: Final = Section(
    "storm_guard",
    "Stops the consumer when it buries records in masses.",
    (
        Setting("enabled", Flag(), False, "Whether there is one."),
        Setting("last", Whole(1, 1_000_000), _STORM.last, "It looks at so many finished records."),
        Setting("buried", Whole(1, 1_000_000), _STORM.buried, "It trips if so many of them were buried."),
        Setting("share", Number(0, 1, above=True), _STORM.share, "And if these are at least this share of them."),
        Setting(
            "probe_every_s",
            Number(0, 86_400, above=True),
            _STORM.probe_every_s,
            "How often a record is tried then; the first that goes through releases it.",
        ),
    ),
    per_consumer=True,
    policy=StormPolicy,
    switch="enabled",
)

RATE: Final = Section(
    "rate",
    "How fast records may start, retries included.",
    (
        Setting("per_s", Number(0, above=True, none_word="none"), _RATE.per_s, "Starts per second of the consumer."),
        Setting(
            "partition_per_s",
            Number(0, above=True, none_word="none"),
            _RATE.partition_per_s,
            "Starts per second of each partition.",
        ),
        Setting(
            "min_delay_ms",
            Number(0, 86_400_000),
            _RATE.min_delay_ms,
            "Lies between any two starts of the consumer; no retry waits less.",
        ),
        Setting(
            "burst",
            Whole(1, none_word="none"),
            _RATE.burst,
            "Starts at once after a pause; `none` is what the rate allows in 50 ms.",
        ),
    ),
    per_consumer=True,
    policy=RatePolicy,
)

GUARDS: Final = (BREAKER, STORM_GUARD, RATE)
