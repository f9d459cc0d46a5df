from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from keepfast.core.errors import ConfigError
from keepfast.core.policies import CommitPolicy
from keepfast.settings import AppSpec, Settings, catalogue, load
from keepfast.settings.sources import targets
from tests.settings.loader import Loader
from tests.support.thorough import examples

VARIABLES = sorted({name for target in targets(["charge"]) for name in target.names})


def test_problems_of_all_sources_come_together_each_with_its_place(loader: Loader) -> None:
    found = loader.problems(
        {"KEEPFAST_RETRY_MAX_RETRIES": "abc", "KEEPFAST_KAFKA_BROKER": "x"},
        dotenv="nonsense\nHEALTH_CHECK_PORT=99999\n",
        toml="[retry]\norder = 'key'\n[log]\nlevel = 3\n[consumers.chrage]\norder = 'key'\n",
        order="sideways",
        commit="interval",
    )
    begun = [problem.split(": ")[0] for problem in found]
    assert begun == [
        "environment variable KEEPFAST_RETRY_MAX_RETRIES",
        "environment variable KEEPFAST_KAFKA_BROKER",
        ".env line 1 is not NAME=value, or its quotes do not close; fix it, or start it with #.",
        "HEALTH_CHECK_PORT in .env line 2",
        "keepfast.toml [retry] order",
        "keepfast.toml [log] level",
        "keepfast.toml [consumers] chrage",
        "code, consumer charge",
        "consumer charge",
    ]
    assert found[0].endswith("got 'abc'. Fix or remove it; the default is 3.")
    assert found[1].endswith("Did you mean KEEPFAST_KAFKA_BROKERS?")
    assert found[4].endswith("It belongs in [consumer].")
    assert found[6].endswith("Did you mean charge?")


def test_the_error_is_all_of_them_one_a_line(loader: Loader) -> None:
    with pytest.raises(ConfigError) as caught:
        loader.load({"KEEPFAST_A": "1", "KEEPFAST_B": "2"})
    assert str(caught.value).splitlines() == list(caught.value.problems)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("KEEPFAST_KAFKA_BROKER", "KEEPFAST_KAFKA_BROKERS"),
        ("KEEPFAST_CONSUMERS_CHARGE_RETRY_MAX_RETRY", "KEEPFAST_CONSUMERS_CHARGE_RETRY_MAX_RETRIES"),
        ("KEEPFAST_CONSUMERS_CHRAGE_RETRY_MAX_RETRIES", "KEEPFAST_CONSUMERS_CHARGE_RETRY_MAX_RETRIES"),
    ],
)
def test_an_unknown_variable_of_ours_is_answered_with_the_nearest(loader: Loader, wrong: str, meant: str) -> None:
    assert loader.problem({wrong: "1"}) == (
        f"environment variable {wrong}: there is no setting of this name. Did you mean {meant}?"
    )


def test_an_unknown_consumer_is_answered_with_those_there_are(loader: Loader) -> None:
    assert loader.problem({"KEEPFAST_CONSUMERS_XYZ": "1"}).endswith("The consumers of this app are: charge.")
    assert loader.problem(toml="[consumers.zzz]\n").endswith("The consumers of this app are: charge.")


def test_a_variable_that_is_far_from_every_other_is_answered_with_no_name(loader: Loader) -> None:
    problem = loader.problem({"KEEPFAST_CONSUMERS_CHARG_WORKERS": "8"})
    assert problem.endswith("It names no consumer. The consumers of this app are: charge.")
    assert "Did you mean" not in loader.problem({"KEEPFAST_CONSUMERS_CHARGE_WORKERS": "8"})


@pytest.mark.parametrize(
    ("toml", "place"),
    [
        ("kafka = 3", "keepfast.toml kafka: must be a table"),
        ("consumers = []", "keepfast.toml consumers: must be a table"),
        ("[consumers]\ncharge = 1", "keepfast.toml [consumers] charge: must be a table"),
        ("[nope]", "keepfast.toml nope: there is no section"),
        ("[consumers.charge.kafka]\nbrokers = 'x'", "is for the whole app; set it in [kafka]"),
        ("[consumers.charge.kafke]", "there is no setting or section of a consumer"),
        ("[consumers.charge]\nmax_retries = 3", "It belongs in [consumers.charge.retry]."),
        ("max_retries = 3", "keepfast.toml max_retries: there is no section of this name. It belongs in [retry]."),
        ("[kafkaa]", "Did you mean kafka?"),
        ("[retry]\nmax_retry = 3", "Did you mean max_retries?"),
        ("[consumers.charge.retry]\nmax_retries = '3'", "[consumers.charge.retry] max_retries: must be a whole number"),
        ("[consumer]\nidempotent = true", "only code can set idempotent"),
        ("[retry]\njitter = 1", "[retry] jitter: must be true or false; got 1"),
        ("[commit]\nevery_s = nan", "[commit] every_s: must be a number above 0, at most 3,600; got nan"),
        ("[app]\nenv = 'a b'", "[app] env: becomes part of topic names"),
        ("[kafka\n", "keepfast.toml: is not TOML"),
        ("[consumer]\ntopics = ['a', 3]", "[consumer] topics: must be a name, or several; got 3 among them"),
    ],
)
def test_a_wrong_file_is_answered_with_the_place(loader: Loader, toml: str, place: str) -> None:
    assert place in loader.problem(toml=toml)


@pytest.mark.parametrize(
    ("options", "place"),
    [
        (
            {"retry": CommitPolicy()},
            "or a mapping, as in retry=RetryPolicy(max_retries=…); got something of type CommitPolicy",
        ),
        ({"retry": {"max_retries": "many"}}, "retry.max_retries: must be a whole number"),
        ({"concurrency": 0}, "concurrency: must be a whole number from 1"),
        ({"concurrency": True}, "concurrency: must be a whole number from 1"),
        ({"topics": ["a", None]}, "topics: must be a name, or several"),
        ({"topics": []}, "there is no topic to consume"),
        ({"conurrency": 3}, "Did you mean concurrency?"),
        ({"max_retries": 3}, 'It belongs in retry: retry={"max_retries": …}.'),
        (
            {"retries": {"http:503": {"max_retrys": 3, "jitter": True}}},
            "'max_retrys' is no retry setting. Did you mean max_retries?",
        ),
        ({"retries": 3}, "retry=RetryPolicy(max_retries=3) in code, max_retries in the section retry"),
        ({"brokers": "k:1"}, "there is no setting or section of a consumer of this name"),
        ({"order": 3}, "order: must be one of partition, key, none, queue; got 3"),
        ({"group": ""}, "group: must be a text; got ''"),
        ({"group": "a{env"}, "consumer.group has braces that do not match"),
        ({"topics": "a b"}, "Kafka allows only letters"),
        ({"dead_letter": "{nope}"}, "dead_letter.topic uses {nope}"),
        ({"dead_letter": "{topic}"}, "consumed again forever"),
        ({"dead_letter": "x" * 250}, "Kafka allows 249"),
        ({"commit": "interval"}, "idempotent=True"),
    ],
)
def test_wrong_values_of_the_code_are_answered_too(loader: Loader, options: dict[str, Any], place: str) -> None:
    problem = loader.problem(**options)
    assert place in problem
    assert "charge" in problem


def test_a_consumer_without_a_topic_is_a_problem(loader: Loader) -> None:
    assert loader.problem(consumers={"charge": {}}) == (
        "consumer charge: there is no topic to consume. Name one in code, or set KEEPFAST_CONSUMERS_CHARGE_TOPICS."
    )


def test_interval_commits_are_fine_for_an_idempotent_handler(loader: Loader) -> None:
    assert loader.charge(commit="interval", idempotent=True).commit.mode == "interval"


def test_there_is_no_inbox(loader: Loader) -> None:
    assert "inbox" in loader.problem(consumers={"charge": {"topics": "a.b", "inbox": True}})


def test_two_consumers_cannot_share_a_group(loader: Loader) -> None:
    consumers = {"charge": {"topics": "a.b", "group": "g"}, "refund": {"topics": "a.c", "group": "g"}}
    assert "charge, refund: all use the group 'g'" in loader.problem(consumers=consumers)


def test_a_problem_of_all_consumers_is_reported_once(loader: Loader) -> None:
    consumers = {"charge": {"topics": "a.b"}, "refund": {"topics": "a.b"}}
    problem = loader.problem({"KEEPFAST_CONSUMER_SESSION_TIMEOUT_MS": "20000"}, consumers=consumers)
    assert problem.startswith(
        "consumers charge, refund: session_timeout_ms (environment variable KEEPFAST_CONSUMER_SESSION_TIMEOUT_MS)"
    )


def test_a_variable_that_could_mean_two_consumers_is_a_problem(loader: Loader) -> None:
    consumers = {"a-b": {"topics": "x.y"}, "a_b": {"topics": "x.y"}}
    loader.load(consumers=consumers)
    assert "could mean consumer.order of a-b or consumer.order of a_b" in loader.problem(
        {"KEEPFAST_CONSUMERS_A_B_ORDER": "key"}, consumers=consumers
    )


def test_files_that_cannot_be_read_are_problems(loader: Loader) -> None:
    (loader.cwd / ".env").mkdir()
    (loader.cwd / "keepfast.toml").write_bytes(b"\xff\xfe")
    assert [problem.split(":")[0] for problem in loader.problems()] == [".env", "keepfast.toml"]


def test_an_app_needs_a_name_that_fits_into_names(loader: Loader) -> None:
    with pytest.raises(ConfigError, match="the name of the app"):
        load(AppSpec(name="my shop"), environ={}, cwd=loader.cwd)


@pytest.mark.parametrize("around", [" {}", "{}\n", "{}\x1f", "\u2003{}"])
def test_every_kind_of_space_around_a_number_is_left_out(loader: Loader, around: str) -> None:
    environ = {"HEALTH_CHECK_PORT": around.format("99"), "KEEPFAST_SHUTDOWN_TIMEOUT_S": around.format("1.5")}
    settings = loader.load(environ)
    assert (settings.health.port, settings.shutdown.timeout_s) == (99, 1.5)


@given(variables=st.dictionaries(st.sampled_from(VARIABLES), st.text(max_size=20), max_size=6))
@hypothesis_settings(max_examples=examples(300))
def test_any_text_in_any_variable_gives_settings_or_problems(
    tmp_path_factory: pytest.TempPathFactory, variables: dict[str, str]
) -> None:
    loader = Loader(tmp_path_factory.getbasetemp())
    try:
        assert isinstance(loader.load(variables), Settings)
    except ConfigError as error:
        assert error.problems  # noqa: PT017 - either way is right
        assert all(problem.strip() for problem in error.problems)  # noqa: PT017


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
words = st.sampled_from([*catalogue.BY_NAME, "profiles", *(one.name for one in catalogue.CONSUMER.settings)])


@given(tree=st.dictionaries(words, json_like | st.dictionaries(words, json_like, max_size=3), max_size=4))
@hypothesis_settings(max_examples=examples(300))
def test_any_values_of_the_code_give_settings_or_problems(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, Any]
) -> None:
    loader = Loader(tmp_path_factory.getbasetemp())
    for options in ({"settings": tree}, {"consumers": {"charge": tree}}):
        try:
            assert isinstance(loader.load(**options), Settings)
        except ConfigError as error:
            assert error.problems  # noqa: PT017 - either way is right
