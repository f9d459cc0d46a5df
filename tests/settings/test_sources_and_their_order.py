from __future__ import annotations

from typing import Any

import pytest

from keepfast.core.policies import CommitPolicy, DeadLetterPolicy, RetryPolicy
from keepfast.settings import AppSpec, load
from tests.settings.loader import Loader

TOML = """
[retry]
max_retries = 12
[consumers.charge.retry]
max_retries = 22
"""


def test_one_topic_is_all_that_a_consumer_needs(loader: Loader) -> None:
    settings = loader.load()
    charge = settings.consumers["charge"]
    assert settings.kafka.brokers == ("localhost:9092",)
    assert settings.kafka.client_id == "shop"
    assert (settings.app.name, settings.app.env, settings.app.version) == ("shop", "local", "")
    assert (settings.shutdown.timeout_s, settings.health.port, settings.health.enabled) == (30.0, 8080, True)
    assert (settings.log.level, settings.log.format) == ("INFO", "auto")
    assert charge.topics == ("orders.payment.v1",)
    assert charge.group == "shop.charge"
    assert charge.dead_letter_topics == {"orders.payment.v1": "orders.payment.dlq"}
    assert (charge.order, charge.concurrency, charge.commit.mode) == ("partition", None, "each")
    assert charge.retry == RetryPolicy()
    assert (charge.max_poll_records, charge.fetch_min_bytes, charge.fetch_max_wait_ms) == (500, 1, 500)
    assert (charge.auto_offset_reset, charge.isolation_level, charge.tombstones) == (
        "earliest",
        "read_committed",
        "dead-letter",
    )
    timings = charge.timings
    assert (timings.session_timeout_ms, timings.heartbeat_interval_ms, timings.max_poll_interval_ms) == (
        60_000,
        10_000,
        600_000,
    )
    assert charge.max_deliveries == 3
    assert (charge.assignor, charge.group_protocol) == ("cooperative-sticky", "auto")
    assert settings.warnings == ()
    assert dict(settings.origins) == {"consumers.charge.consumer.topics": "code, consumer charge: topics"}


@pytest.mark.parametrize(
    ("variable", "code"),
    [
        ("KEEPFAST_RETRY_MAX_RETRIES", {"settings": {"retry": {"max_retries": 41}}}),
        ("KEEPFAST_CONSUMERS_CHARGE_RETRY_MAX_RETRIES", {"retry": {"max_retries": 41}}),
    ],
    ids=["for all", "for one consumer"],
)
def test_environment_wins_over_dotenv_over_file_over_code_over_defaults(
    loader: Loader, variable: str, code: dict[str, Any]
) -> None:
    assert loader.charge().retry.max_retries == 3
    assert loader.charge(**code).retry.max_retries == 41
    table = "[retry]" if "settings" in code else "[consumers.charge.retry]"
    assert loader.charge(toml=f"{table}\nmax_retries = 22", **code).retry.max_retries == 22
    assert loader.charge(dotenv=f"{variable}=2", **code).retry.max_retries == 2
    assert loader.charge({variable: "1"}, **code).retry.max_retries == 1


SCOPES: list[dict[str, Any]] = [
    {"environ": {"KEEPFAST_BUFFER_RECORDS": "1"}},
    {"dotenv": "KEEPFAST_BUFFER_RECORDS=2"},
    {"toml": "[buffer]\nrecords = 3"},
    {"settings": {"buffer": {"records": 4}}},
    {"environ": {"KEEPFAST_CONSUMERS_CHARGE_BUFFER_RECORDS": "5"}},
    {"dotenv": "KEEPFAST_CONSUMERS_CHARGE_BUFFER_RECORDS=6"},
    {"toml": "[consumers.charge.buffer]\nrecords = 7"},
    {"buffer": {"records": 8}},
]


@pytest.mark.parametrize(("for_all", "for_one"), [(one, other) for one in SCOPES[:4] for other in SCOPES[4:]])
def test_a_value_for_one_consumer_wins_over_one_for_all_whatever_their_sources(
    loader: Loader, for_all: dict[str, Any], for_one: dict[str, Any]
) -> None:
    alone = loader.charge(**for_one).buffer.records
    for name in (".env", "keepfast.toml"):
        (loader.cwd / name).unlink(missing_ok=True)
    both = for_all | for_one
    for name in set(for_all) & set(for_one) & {"dotenv", "toml"}:
        both[name] = f"{for_all[name]}\n{for_one[name]}"
    if "environ" in for_all and "environ" in for_one:
        both["environ"] = for_all["environ"] | for_one["environ"]
    assert loader.charge(**both).buffer.records == alone


def test_what_is_handed_over_wins_over_every_source_and_says_so(loader: Loader) -> None:
    (loader.cwd / "keepfast.toml").write_text(TOML)
    spec = AppSpec(
        name="shop",
        consumers={"charge": {"topics": "a.b", "retry": {"max_retries": 41}}},
        handed_over={"kafka": {"brokers": "here:1"}, "consumers": {"charge": {"retry": RetryPolicy(max_retries=9)}}},
    )
    environ = {"KEEPFAST_RETRY_MAX_RETRIES": "1", "KAFKA_BROKERS": "there:2", "KAFKA_INPUT_TOPIC": "c.d"}
    settings = load(spec, environ=environ, cwd=loader.cwd)
    assert settings.consumers["charge"].retry.max_retries == 9
    assert settings.kafka.brokers == ("here:1",)
    assert settings.consumers["charge"].topics == ("c.d",), "what is not handed over is left to the others"


def test_each_consumer_takes_its_own_value_or_the_one_for_all(loader: Loader) -> None:
    environ = {"KEEPFAST_RETRY_MAX_RETRIES": "1", "KEEPFAST_CONSUMERS_CHARGE_RETRY_MAX_RETRIES": "7"}
    consumers = {"charge": {"topics": "a.b"}, "refund": {"topics": "a.b"}}
    settings = loader.load(environ, toml=TOML, consumers=consumers)
    assert settings.consumers["charge"].retry.max_retries == 7
    assert settings.consumers["refund"].retry.max_retries == 1


def test_every_value_knows_where_it_came_from(loader: Loader) -> None:
    settings = loader.load(
        {"KAFKA_BROKERS": "k:1"},
        dotenv="# first\nKEEPFAST_LOG_LEVEL=debug\n",
        toml="[consumers.charge]\norder = 'key'\n",
        settings={"shutdown": {"timeout_s": 5}},
        concurrency=4,
    )
    assert settings.origins["kafka.brokers"] == "environment variable KAFKA_BROKERS"
    assert settings.origins["log.level"] == "KEEPFAST_LOG_LEVEL in .env line 2"
    assert settings.origins["consumers.charge.consumer.order"] == "keepfast.toml [consumers.charge] order"
    assert settings.origins["consumers.charge.consumer.concurrency"] == "code, consumer charge: concurrency"
    assert settings.origins["shutdown.timeout_s"] == "code: shutdown.timeout_s"


def test_a_variable_without_text_counts_as_not_set(loader: Loader) -> None:
    assert loader.charge({"RETRY_MAX_RETRIES": "", "KEEPFAST_CONSUMER_GROUP": "  "}).retry.max_retries == 3


def test_an_option_that_is_none_counts_as_left_out(loader: Loader) -> None:
    charge = loader.charge(group=None, concurrency=None, retry=None, commit=None, dead_letter=None)
    assert charge.group == "shop.charge"
    assert charge.retry == RetryPolicy()


def test_sections_of_code_may_be_policies_or_words_or_tables(loader: Loader) -> None:
    charge = loader.charge(
        retry=RetryPolicy(max_retries=None), commit=CommitPolicy(mode="interval", every_s=2), idempotent=True
    )
    assert charge.retry == RetryPolicy(max_retries=None)
    assert charge.commit == CommitPolicy(mode="interval", every_s=2)
    charge = loader.charge(retry="financial", commit="each", dead_letter="{topic}.DLT", buffer={"records": 5})
    assert charge.retry.max_retries == 5
    assert charge.dead_letter == DeadLetterPolicy(topic="{topic}.DLT")
    assert charge.buffer.records == 5


def test_the_environment_overrides_single_fields_of_a_policy_of_the_code(loader: Loader) -> None:
    policy = RetryPolicy(max_retries=9, initial_delay_ms=7)
    environ = {"KEEPFAST_CONSUMERS_CHARGE_RETRY_MAX_RETRIES": "2", "RETRY_INITIAL_DELAY_MS": "1"}
    charge = loader.charge(environ, retry=policy)
    assert (charge.retry.max_retries, charge.retry.initial_delay_ms) == (2, 7)


def test_what_can_only_mean_one_consumer_means_the_only_one(loader: Loader) -> None:
    environ = {"KAFKA_INPUT_TOPIC": "c.d", "KAFKA_CONSUMER_GROUP": "g"}
    settings = loader.load(environ, group="in code")
    charge = settings.consumers["charge"]
    assert (charge.topics, charge.group, settings.warnings) == (("c.d",), "g", ())


def test_a_variable_without_effect_is_warned_of(loader: Loader) -> None:
    consumers: dict[str, dict[str, Any]] = {
        "charge": {"topics": "a.b", "retry": "financial"},
        "refund": {"topics": "a.b", "retry": RetryPolicy(max_retries=9)},
    }
    (warning,) = loader.load({"RETRY_MAX_RETRIES": "2"}, consumers=consumers).warnings
    assert warning == (
        "environment variable RETRY_MAX_RETRIES has no effect: retry.max_retries is set more specifically (charge: the"
        " profile financial; refund: code, consumer refund: retry.max_retries). Remove it, or set"
        " KEEPFAST_CONSUMERS_CHARGE_RETRY_MAX_RETRIES for one consumer."
    )


def test_a_value_of_the_file_without_effect_is_warned_of_too(loader: Loader) -> None:
    (warning,) = loader.load(toml="[buffer]\nrecords = 5", buffer={"records": 7}).warnings
    assert warning.startswith("keepfast.toml [buffer] records has no effect: buffer.records is set more specifically")


@pytest.mark.parametrize(
    "given",
    [
        # the default of the other consumer
        {"environ": {"RETRY_MAX_RETRIES": "2"}, "charge": {"retry": "financial"}},
        # overridden where everyone expects it: by a nearer source
        {"environ": {"RETRY_MAX_RETRIES": "2"}, "toml": "[retry]\nmax_retries = 4"},
        {
            "environ": {
                "KEEPFAST_CONSUMERS_CHARGE_RETRY_MAX_RETRIES": "2",
                "KEEPFAST_CONSUMERS_REFUND_RETRY_MAX_RETRIES": "2",
            },
            "settings": {"retry": {"max_retries": 4}},
        },
        # the same value
        {"environ": {"RETRY_MAX_RETRIES": "5"}, "settings": {"retry": "financial"}},
    ],
)
def test_what_is_overridden_as_expected_is_not_warned_of(loader: Loader, given: dict[str, Any]) -> None:
    consumers = {"charge": {"topics": "a.b", **given.pop("charge", {})}, "refund": {"topics": "a.b"}}
    assert loader.load(consumers=consumers, **given).warnings == ()


def test_a_variable_for_a_profile_that_no_consumer_uses_is_warned_of(loader: Loader) -> None:
    environ = {"KEEPFAST_RETRY_PROFILES_SLOW_MAX_RETRIES": "9"}
    (warning,) = loader.load(environ).warnings
    assert warning == (
        "environment variable KEEPFAST_RETRY_PROFILES_SLOW_MAX_RETRIES has no effect: no consumer takes max_retries"
        " from the retry profile slow. Remove it."
    )
    assert loader.load(environ, retry="slow").warnings == ()
    assert loader.load(environ, retries={"http:503": "slow"}).warnings == ()
    assert loader.load(toml="[retry.profiles.spare]\nmax_retries = 9").warnings == ()


def test_the_file_is_the_same_tree_as_the_variables(loader: Loader) -> None:
    by_file = loader.charge(
        toml="""
        consumer.order = "key"
        [consumers.charge.consumer]
        concurrency = 8
        fetch_min_bytes = 10
        [consumers.charge.dead_letter]
        format = "nested"
        """
    )
    (loader.cwd / "keepfast.toml").unlink()
    by_environment = loader.charge(
        {
            "KEEPFAST_CONSUMER_ORDER": "KEY",
            "KEEPFAST_CONSUMERS_CHARGE_CONCURRENCY": "8",
            "KEEPFAST_CONSUMERS_CHARGE_CONSUMER_FETCH_MIN_BYTES": "10",
            "KEEPFAST_CONSUMERS_CHARGE_DEAD_LETTER_FORMAT": "nested",
        }
    )
    assert by_file == by_environment


def test_topics_may_be_several(loader: Loader) -> None:
    charge = loader.charge({"KEEPFAST_CONSUMERS_CHARGE_TOPICS": "a.b.v1, c ,a.b.v1"})
    assert charge.topics == ("a.b.v1", "c")
    assert charge.dead_letter_topics == {"a.b.v1": "a.b.dlq", "c": "shop.c.dlq"}


def test_env_is_filled_into_topics_groups_and_dead_letter_topics(loader: Loader) -> None:
    options: dict[str, Any] = {"topics": "fraud.{env}.v1", "group": "manager.{env}", "dead_letter": "{topic}.dlq.{env}"}
    charge = loader.charge({"APP_ENV": "prod"}, **options)
    assert (charge.topics, charge.group) == (("fraud.prod.v1",), "manager.prod")
    assert charge.dead_letter_topics == {"fraud.prod.v1": "fraud.prod.v1.dlq.prod"}
    assert loader.load({"APP_ENV": "prod", "KEEPFAST_ENV": "dev"}).app.env == "dev"
    assert loader.charge(**options).group == "manager.local"


def test_domain_and_entity_can_be_given(loader: Loader) -> None:
    names = loader.charge(domain="money", entity="charge").names["orders.payment.v1"]
    assert (names.domain, names.entity, names.dead_letter_topic) == ("money", "charge", "money.charge.dlq")


def test_an_app_without_consumers_has_settings_too(loader: Loader) -> None:
    settings = load(AppSpec(name="shop"), environ={"KAFKA_BROKERS": "k:9092"}, cwd=loader.cwd)
    assert settings.kafka.brokers == ("k:9092",)
    assert not settings.consumers


def test_nothing_is_read_from_the_process_itself(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEEPFAST_RETRY_MAX_RETRIES", "99")
    assert loader.charge().retry.max_retries == 3
