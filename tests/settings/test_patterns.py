from __future__ import annotations

import pytest

from keepfast import App, ConfigError, Pattern
from keepfast.settings.consumers import topic_refused, with_topics
from tests.settings.loader import Loader


def test_a_pattern_stands_in_place_of_topics_or_beside_them(loader: Loader) -> None:
    settings = loader.load(consumers={"charge": {"pattern": r"{env}\.audit\..*"}})
    assert settings.consumers["charge"].topics == ()
    assert settings.consumers["charge"].pattern == r"local\.audit\..*"
    both = loader.charge(pattern="audit.*", topics=["orders.v1"])
    assert (both.topics, both.pattern, both.topics_refresh_s) == (("orders.v1",), "audit.*", 30.0)


def test_the_environment_may_set_it_for_one_consumer(loader: Loader) -> None:
    own = loader.charge({"KEEPFAST_CONSUMERS_CHARGE_PATTERN": "audit.*"}, pattern="orders.*")
    assert own.pattern == "audit.*"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"pattern": "audit("}, "is no regular expression"),
        ({"pattern": "a", "dead_letter": "{domain}.{entity}"}, "has no text of its own"),
        ({"pattern": "a", "dead_letter": "{nope}.dlq"}, "dead_letter.topic uses {nope}"),
        ({"pattern": "a", "topics_refresh_s": 0}, "topics_refresh_s"),
        ({"topics": "audit.*"}, "For a regular expression: Pattern(…)"),
    ],
)
def test_what_cannot_work_is_a_problem(loader: Loader, options: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        loader.load(consumers={"charge": options})
    assert problem in str(raised.value)
    assert len(raised.value.problems) == 1


def test_a_topic_that_is_found_gets_its_names(loader: Loader) -> None:
    settings = loader.load(consumers={"charge": {"pattern": ".*", "retry_topics": "5s", "order": "none"}})
    own = with_topics(settings.consumers["charge"], ["audit.login.v1"], settings.app)
    assert own.topics == ("audit.login.v1",)
    assert own.dead_letter_topics == {"audit.login.v1": "audit.login.dlq"}
    assert (own.names["audit.login.v1"].domain, own.names["audit.login.v1"].entity) == ("audit", "login")
    assert topic_refused(own, "audit.login.v1", settings.app) is None
    assert "Kafka allows 249" in str(topic_refused(own, f"a.{'x' * 245}", settings.app))


def test_an_app_takes_one_pattern() -> None:
    app = App("shop")
    with pytest.raises(ConfigError, match="takes one Pattern"):
        app.consumer(Pattern("a.*"), Pattern("b.*"))
