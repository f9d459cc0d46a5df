"""Makes the settings of one consumer out of the resolved values, and checks what belongs together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar

from keepfast.core import names
from keepfast.core.alerts import TOPIC_KINDS, AlertPolicy
from keepfast.core.errors import ConfigError
from keepfast.core.fields import fields_of
from keepfast.core.guards import BreakerPolicy, RatePolicy, StormPolicy
from keepfast.core.policies import BatchPolicy, BufferPolicy, CommitPolicy, DeadLetterPolicy, RetryPolicy, TimingPolicy
from keepfast.core.retry_topics import RetryTopics
from keepfast.core.timeouts import TimeoutPolicy
from keepfast.core.topic_patterns import with_env
from keepfast.settings import catalogue
from keepfast.settings.catalogue import Section, variable
from keepfast.settings.model import AppSettings, ConsumerSettings, TopicNames
from keepfast.settings.resolver import BUILT_IN_PROFILE, DEFAULT, Resolved, Resolver, without_effect
from keepfast.settings.sources import Sourced

# The standard's example adds 10 s of processing and 200 s of buffer to the longest wait.
POLL_MARGIN_MS: Final = 210_000

BROKERS_OWN: Final = ("session_timeout_ms", "heartbeat_interval_ms", "assignor")
"""Under KIP-848 the broker decides these, and the client refuses them."""

TRANSACTION_EVERY_S: Final = 0.1

ACKNOWLEDGE_EVERY_S: Final = 0.05
"""While some records of a delivery still run, those that are finished are acknowledged this often."""

NOT_WITH_A_QUEUE: Final[Mapping[str, str]] = {
    "exactly_once": "a share group takes no part in transactions",
    "pattern": "a share group reads topics by their exact names",
    "group_instance_id": "a share group has no static members",
}
"""Settings that cannot be combined with order="queue", and why."""

SECTIONS_NOT_WITH_A_QUEUE: Final = (
    (catalogue.COMMIT, "each record is acknowledged on its own"),
    (catalogue.RETRY_TOPICS, "a record of a queue is retried in place, inside its lock"),
    (catalogue.BREAKER, "records would wait for longer than they are locked, and each delivery counts"),
    (catalogue.STORM_GUARD, "records would wait for longer than they are locked, and each delivery counts"),
)

WITHOUT_EFFECT_ON_A_QUEUE: Final = (
    "assignor",
    "group_protocol",
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "revoke_timeout_s",
    "max_poll_records",
)

P = TypeVar("P")


class ConsumerBuilder:
    """Builds one consumer. `problems` and `warnings` leave its name out, so that the same of several can be joined.

    `batches`: its handler takes lists. `inbox_days`: for so long, records that were processed are not processed again.
    """

    def __init__(
        self,
        name: str,
        app: AppSettings,
        resolver: Resolver,
        *,
        batches: bool = False,
        inbox_days: float | None = None,
    ) -> None:
        self._batches = batches
        self._inbox_days = inbox_days
        self._inbox = inbox_days is not None
        self._name = name
        self._app = app
        self._resolver = resolver
        self._own = resolver.section(catalogue.CONSUMER, name)
        self.problems: list[str] = []
        self.warnings: list[str] = []

    def build(self) -> ConsumerSettings | None:
        """None if anything is wrong."""
        letter = self._policy(DeadLetterPolicy, self._resolver.section(catalogue.DEAD_LETTER, self._name))
        retry = self._policy(RetryPolicy, self._retry())
        retries = self._resolver.retries(self._name)
        self.warnings.extend(without_effect(self._own, retries))
        timings = self._timings()
        commit = self._commit()
        batch = self._batch()
        buffer = self._policy(BufferPolicy, self._resolver.section(catalogue.BUFFER, self._name))
        breaker = self._switched(BreakerPolicy, catalogue.BREAKER)
        timeout = self._timeout(breaker)
        storm_guard = self._switched(StormPolicy, catalogue.STORM_GUARD)
        rate = self._policy(RatePolicy, self._resolver.section(catalogue.RATE, self._name))
        alerts = self._alerts()
        group = self._group()
        pattern = self._pattern(letter)
        topics = self._topics(required=pattern is None)
        topic_names = {topic: self._names(topic, group, letter) for topic in topics}
        retry_topics = self._retry_topics(topics, group, retry)
        if self._value("order") == "queue":
            self.problems.extend(self._queue_problems())
            storm_guard, commit = None, CommitPolicy(mode="interval", every_s=ACKNOWLEDGE_EVERY_S)
        self._warn_of_queue_settings()
        if retry and timings:
            self._warn_of_retry_sum(retry, timings)
        policies = (letter, retry, timings, timeout, commit, batch, buffer, rate, retry_topics, alerts)
        if self.problems or not (topics or pattern) or any(policy is None for policy in policies):
            return None
        worked_out = {
            "name": self._name,
            "topics": topics,
            "names": MappingProxyType(topic_names),
            "inbox_days": self._inbox_days,
            "pattern": pattern,
            "group": group,
            "assignor": None if self._new_protocol else self._value("assignor"),
            "group_protocol": self._protocol,
            "timings": timings,
            "timeout": timeout,
            "commit": commit,
            "retry": retry,
            "retries": retries,
            "retry_topics": retry_topics,
            "batch": batch if self._batches else None,
            "buffer": buffer,
            "dead_letter": letter,
            "breaker": breaker,
            "storm_guard": storm_guard,
            "rate": rate if rate and rate.limits else None,
            "alerts": alerts,
        }
        as_given = {one.name: self._value(one.name) for one in fields_of(ConsumerSettings)}
        try:
            return ConsumerSettings(**as_given | worked_out)
        except ConfigError as error:
            self.problems.extend(error.problems)
            return None

    def _value(self, name: str) -> Any:
        return self._own[name].value

    @property
    def _protocol(self) -> Literal["auto", "classic", "consumer"]:
        """What `auto` comes to where the settings decide it: KIP-848 takes none of BROKERS_OWN, and its static members
        wait for their old session after a kill.
        """
        chosen: Literal["auto", "classic", "consumer"] = self._value("group_protocol")
        if chosen != "auto":
            return chosen
        classic = any(self._own[name].origin != DEFAULT for name in BROKERS_OWN)
        return "classic" if classic or self._value("group_instance_id") else "auto"

    @property
    def _new_protocol(self) -> bool:
        return self._protocol == "consumer"

    def _policy(self, make: Callable[..., P], values: Resolved, *, wrong: Collection[str] = ()) -> P | None:
        """None, with the problems noted, if the values do not fit. What concerns `wrong` settings is not repeated."""
        try:
            return make(**{name: given.value for name, given in values.items()})
        except ConfigError as error:
            origins = [f"{name} from {given.origin}" for name, given in values.items() if given.origin != DEFAULT]
            source = f" ({'; '.join(origins)})" if origins else ""
            for problem in error.problems:
                if not any(name in problem for name in wrong):
                    self.problems.append(f"{problem}{source}")
            return None

    def _switched(self, make: Callable[..., P], section: Section) -> P | None:
        """What a section says that has to be switched on; None if it is not, or wrong."""
        values = self._resolver.section(section, self._name)
        enabled = values.pop("enabled")
        policy = self._policy(make, values)
        if enabled.value:
            return policy
        idle = [f"{name} ({given.origin})" for name, given in values.items() if given.origin != DEFAULT]
        if idle and enabled.origin == DEFAULT:
            self.warnings.append(
                f"{section.name} is not switched on, so {', '.join(idle)} has no effect; set {section.name}.enabled."
            )
        return None

    def _alerts(self) -> AlertPolicy | None:
        values = self._resolver.section(catalogue.ALERTS, self._name)
        profile = self._resolver.profile(self._name)
        if values["kind"].value is None and profile in TOPIC_KINDS:
            values["kind"] = Sourced(profile, f"the retry profile {profile}")
        return self._policy(AlertPolicy, values)

    @property
    def _repeatable(self) -> bool:
        """Whether a record may come again without harm."""
        return self._inbox or bool(self._value("idempotent"))

    def _commit(self) -> CommitPolicy | None:
        values = dict(self._resolver.section(catalogue.COMMIT, self._name))
        if self._inbox and values["mode"].origin == DEFAULT:
            values["mode"] = Sourced("interval", DEFAULT)
        if self._value("exactly_once"):
            if self._inbox:
                self.problems.append(
                    "exactly_once and inbox exclude each other: effects in a database need the inbox, outputs in Kafka"
                    " alone exactly_once. Remove one of them."
                )
            values = self._in_transactions(values)
        elif values["mode"].value == "interval" and not self._repeatable:
            self.problems.append(
                f"commit.mode is interval ({values['mode'].origin}), so a crash repeats records that were finished. Set"
                " idempotent=True in code if the handler can bear that, give it an inbox, or use commit.mode each."
            )
        return self._policy(CommitPolicy, values)

    def _in_transactions(self, values: dict[str, Sourced]) -> dict[str, Sourced]:
        """A transaction costs more than a commit: many records share one, unless it was chosen otherwise."""
        isolation = self._own["isolation_level"]
        if isolation.value != "read_committed":
            self.problems.append(
                f"isolation_level is {isolation.value} ({isolation.origin}), and with exactly_once offsets of open"
                " transactions would be taken for none; leave it at read_committed."
            )
        defaults = {"mode": "interval", "every_s": TRANSACTION_EVERY_S}
        chosen = values["mode"].origin != DEFAULT
        return values | {
            name: Sourced(value, DEFAULT)
            for name, value in defaults.items()
            if values[name].origin == DEFAULT and not chosen
        }

    def _queue_problems(self) -> Iterable[str]:
        """What cannot be combined with order="queue"."""
        text = "order is queue, and {what} cannot be combined with it: {why}. Leave that out, or choose another order."
        if self._batches:
            yield text.format(what="a handler that takes a list", why="its records are locked and acknowledged singly")
        for name, why in NOT_WITH_A_QUEUE.items():
            given = self._own[name]
            if given.origin != DEFAULT and given.value is not None and given.value is not False:
                yield text.format(what=f"{name} ({given.origin})", why=why)
        for section, why in SECTIONS_NOT_WITH_A_QUEUE:
            values = self._resolver.section(section, self._name)
            off = "enabled" in values and not values["enabled"].value
            chosen = [f"{section.name}.{name} ({one.origin})" for name, one in values.items() if one.origin != DEFAULT]
            if chosen and not off:
                yield text.format(what=", ".join(chosen), why=why)
        if self._value("auto_offset_reset") == "error":
            yield text.format(what="auto_offset_reset error", why="a share group starts at earliest or latest")
        if not self._value("max_deliveries"):
            yield text.format(
                what="max_deliveries off", why="the broker drops a record silently at its own delivery limit"
            )

    def _warn_of_queue_settings(self) -> None:
        """Of those that are about queues alone, or about everything else alone."""
        order = self._value("order")
        names = WITHOUT_EFFECT_ON_A_QUEUE if order == "queue" else ("lock_s", "configure_group")
        chosen = [f"{name} ({self._own[name].origin})" for name in names if self._own[name].origin != DEFAULT]
        if chosen:
            self.warnings.append(f"{', '.join(chosen)} has no effect: order is {order}.")

    def _retry(self) -> Resolved:
        """What was set for the retries. An initial delay that was not set is capped, with a warning."""
        values = self._resolver.retry(self._name)
        longest, initial = values.get("max_delay_ms"), values.get("initial_delay_ms")
        usual: Any = RetryPolicy().initial_delay_ms if initial is None else initial.value
        chosen = initial is not None and not initial.origin.startswith(BUILT_IN_PROFILE)
        limit: Any = usual if longest is None else longest.value
        if longest is None or chosen or limit >= usual:
            return values
        self.warnings.append(
            f"retry.max_delay_ms is {limit:g} ({longest.origin}), below the initial delay ({usual:g} ms), which"
            " is lowered to it. Set retry.initial_delay_ms to choose it."
        )
        return {**values, "initial_delay_ms": longest}

    def _retry_topics(self, topics: tuple[str, ...], group: str, retry: RetryPolicy | None) -> RetryTopics | None:
        values = self._resolver.section(catalogue.RETRY_TOPICS, self._name)
        found = self._policy(RetryTopics, values)
        if not found:
            return found
        origin, order = values["delays"].origin, self._value("order")
        if order not in ("none", "queue") and not found.allow_reorder:
            self.problems.append(
                f"retry_topics ({origin}) let other records overtake one that failed, and order is {order}. Say"
                " retry_topics.allow_reorder=true if the handler can bear that, or order none, or remove the delays."
            )
        if retry is not None and retry.max_retries is None and retry.max_elapsed_s is None:
            self.problems.append(
                f"retry_topics ({origin}) would never be used: retry.max_retries is forever. Give it a number (0: no"
                " retries in place), or set retry.max_elapsed_s."
            )
        for topic in topics if group else ():
            problem = found.name_problem(topic, group)
            if problem:
                self.problems.append(f"retry_topics.delays {problem} (from {origin}; the group is part of the name).")
            own = [name for name in found.topics(topic, group) if name in topics]
            if own:
                self.problems.append(f"consumer.topics has {own[0]}, which is read anyway: it is a retry topic.")
        return found

    def _timeout(self, breaker: BreakerPolicy | None) -> TimeoutPolicy | None:
        values = {one.name: self._own[one.name] for one in fields_of(TimeoutPolicy)}
        if breaker is not None and values["on_timeout"].origin == DEFAULT:
            values["on_timeout"] = Sourced("retry", DEFAULT)
        if values["timeout_s"].value is None and values["on_timeout"].origin != DEFAULT:
            self.warnings.append(f"on_timeout ({values['on_timeout'].origin}) has no effect without a timeout_s.")
        if (
            values["timeout_s"].value is None is values["stuck_after_s"].value
            and values["max_abandoned"].origin != DEFAULT
        ):
            origin = values["max_abandoned"].origin
            self.warnings.append(f"max_abandoned ({origin}) has no effect without a timeout_s or stuck_after_s.")
        return self._policy(TimeoutPolicy, values)

    def _batch(self) -> BatchPolicy | None:
        values = self._resolver.section(catalogue.BATCH, self._name)
        if self._batches and not self._repeatable:
            self.problems.append(
                "the handler takes a batch, and a failure or a crash repeats records of it that were finished. Set"
                " idempotent=True in code if the handler can bear that, give it an inbox, or take one record."
            )
        if not self._batches:
            own = [f"batch.{name}" for name, given in values.items() if given.origin.startswith("code, consumer")]
            own += ["atomic"] if self._value("atomic") else []
            if own:
                self.problems.append(
                    f"{', '.join(own)} is about batches, and the handler takes one record. Annotate its value with"
                    " list[…], or leave that out."
                )
        return self._policy(BatchPolicy, values)

    def _timings(self) -> TimingPolicy | None:
        values: dict[str, Sourced] = {one.name: self._own[one.name] for one in fields_of(TimingPolicy)}
        unsafe = self._own["unsafe_timings"]
        if unsafe.value:
            self.warnings.append(
                f"the floors of the timings are switched off ({unsafe.origin}); do this in tests only."
            )
            values = _fit_defaults(values)
        if self._new_protocol:
            for name in BROKERS_OWN:
                if self._own[name].origin != DEFAULT:
                    self.warnings.append(
                        f"{name} ({self._own[name].origin}) has no effect: with group_protocol=consumer the"
                        " broker decides."
                    )
            nothing = Sourced(None, DEFAULT)
            values |= {"session_timeout_ms": nothing, "heartbeat_interval_ms": nothing}
        too_low = {} if unsafe.value else _below_floors(values)
        self.problems.extend(too_low.values())
        return self._policy(TimingPolicy, values, wrong=too_low)

    def _group(self) -> str:
        given = self._own["group"]
        pattern = given.value or names.default_group(self._app.name, self._name)
        return self._expand("consumer.group", str(pattern), given.origin, {"env": self._app.env})

    def _pattern(self, letter: DeadLetterPolicy | None) -> str | None:
        given = self._own["pattern"]
        if given.value is None:
            return None
        if letter and not any(map(str.isalnum, names.literal_text(letter.topic))):
            self.problems.append(
                f"dead_letter.topic {letter.topic!r} has no text of its own, so that a pattern ({given.origin}) could"
                " not tell dead-letter topics from others; add some, as in {domain}.{entity}.dlq."
            )
        elif letter and self._own["topics"].value is None:
            self._expand("dead_letter.topic", letter.topic, DEFAULT, dict.fromkeys(names.LETTER_FIELDS, "x"))
        return with_env(str(given.value), self._app.env)

    def _topics(self, *, required: bool) -> tuple[str, ...]:
        given = self._own["topics"]
        if not isinstance(given.value, tuple) or not given.value:
            if not required or self._resolver.refused("consumer.topics") or self._resolver.refused("consumer.pattern"):
                return ()  # or reported already
            own = variable("consumers", self._name, "topics")
            self.problems.append(f"there is no topic to consume. Name one in code, or set {own}.")
            return ()
        found = []
        for pattern in given.value:
            topic = self._expand("consumer.topics", pattern, given.origin, {"env": self._app.env})
            problem = topic and names.topic_problem(topic)
            if problem:
                hint = " For a regular expression: Pattern(…)" if set(topic) & set("*+?[(|^$\\") else ""
                self.problems.append(f"consumer.topics {problem} (from {given.origin}).{hint}")
            elif topic:
                found.append(topic)
        return tuple(dict.fromkeys(found))

    def _names(self, topic: str, group: str, letter: DeadLetterPolicy | None) -> TopicNames:
        origin = self._resolver.origins.get(f"consumers.{self._name}.dead_letter.topic", DEFAULT)
        own = {"domain": self._value("domain"), "entity": self._value("entity"), "group": group}
        try:
            found = topic_names(topic, self._app, template=letter.topic if letter else "", **own)
        except ValueError as error:
            self.problems.append(f"dead_letter.topic {error} (from {origin}).")
            return topic_names(topic, self._app, template="", **own)
        problem = letter_problem(found)
        if problem:
            self.problems.append(f"dead_letter.topic {problem} (from {origin}).")
        return found

    def _expand(self, key: str, pattern: str, origin: str, values: Mapping[str, str]) -> str:
        """The filled pattern; empty, with a problem noted, if it cannot be filled."""
        try:
            return names.expand(pattern, values)
        except ValueError as error:
            self.problems.append(f"{key} {error} (from {origin}).")
            return ""

    def _warn_of_retry_sum(self, retry: RetryPolicy, timings: TimingPolicy) -> None:
        wait_ms = retry.longest_wait_ms
        if wait_ms is None or self._value("unsafe_timings") or timings.max_poll_interval_ms >= wait_ms + POLL_MARGIN_MS:
            return
        self.warnings.append(
            f"max_poll_interval_ms ({timings.max_poll_interval_ms}) is below the standard's"
            f" {wait_ms + POLL_MARGIN_MS:.0f} (all retry delays, 10 s of processing, 200 s of buffer). keepfast polls"
            " while records wait, so no member is evicted; raise it if other tools check the rule."
        )


def topic_names(
    topic: str, app: AppSettings, *, template: str, domain: str | None, entity: str | None, group: str
) -> TopicNames:
    """The names that belong to a topic. Raises ValueError, its text the end of a sentence, for a template of
    dead-letter topics that cannot be filled; an empty one makes no name.
    """
    parts = names.topic_parts(topic, app=app.name)
    domain, entity = domain or parts.domain, entity or parts.entity
    values = {"domain": domain, "entity": entity, "topic": topic, "env": app.env, "group": group}
    letters = names.expand(template, values)
    return TopicNames(topic=topic, domain=domain, entity=entity, dead_letter_topic=letters)


def letter_problem(found: TopicNames) -> str | None:
    """What is wrong with the name of the dead-letter topic, as the end of a sentence; None if nothing is."""
    if found.dead_letter_topic == found.topic:
        return f"is {found.topic!r} itself, so letters would be consumed again forever; choose another"
    return names.topic_problem(found.dead_letter_topic) if found.dead_letter_topic else None


def with_topics(own: ConsumerSettings, topics: Iterable[str], app: AppSettings) -> ConsumerSettings:
    """The consumer with these topics, of which `topic_refused` has nothing to say, beside those that it names."""
    found = {topic: _names_of(own, topic, app) for topic in topics if topic not in own.topics}
    return replace(own, topics=(*own.topics, *found), names=MappingProxyType({**own.names, **found}))


def topic_refused(own: ConsumerSettings, topic: str, app: AppSettings) -> str | None:
    """Why this topic cannot be read: Kafka would refuse a name that is made of its name. None: it can."""
    problem = letter_problem(_names_of(own, topic, app))
    if problem:
        return f"dead_letter.topic {problem}"
    problem = own.retry_topics.name_problem(topic, own.group)
    return f"retry_topics.delays {problem}" if problem else None


def _names_of(own: ConsumerSettings, topic: str, app: AppSettings) -> TopicNames:
    return topic_names(
        topic, app, template=own.dead_letter.topic, domain=own.domain, entity=own.entity, group=own.group
    )


def _below_floors(timings: Resolved) -> dict[str, str]:
    """What is wrong, by the name of the setting."""
    problems = {}
    for one in fields_of(TimingPolicy):
        value, origin = timings[one.name]
        if one.floor is not None and isinstance(value, int) and value < one.floor.low:
            problems[one.name] = (
                f"{one.name} ({origin}) must be at least {one.floor.low:,} by the rule {one.floor.rule}; got {value}."
                " Raise it; only tests may switch the floors off, with unsafe_timings."
            )
    return problems


def _fit_defaults(values: Resolved) -> dict[str, Sourced]:
    """With short sessions, as in tests, defaults give way to what was chosen."""
    found = dict(values)
    session, poll = found["session_timeout_ms"].value, found["max_poll_interval_ms"].value
    heartbeat, revoke = found["heartbeat_interval_ms"], found["revoke_timeout_s"]
    if heartbeat.origin == DEFAULT and isinstance(session, int):
        found["heartbeat_interval_ms"] = Sourced(max(1, min(10_000, session // 3)), DEFAULT)
    if revoke.origin == DEFAULT and isinstance(poll, int):
        found["revoke_timeout_s"] = Sourced(min(10.0, poll / 4000), DEFAULT)
    return found
