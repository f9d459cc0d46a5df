"""Breaks of settings, and of what `evidence` names."""

from __future__ import annotations

from collections.abc import Mapping

from tests.audit.one_break import Break, judged, renamed

AROUND: Mapping[str, tuple[Break, ...]] = {
    # -- settings
    "VARIABLES": (
        *renamed('"KAFKA_INPUT_TOPIC"', '"KAFKA_CONSUMER_GROUP"', file="settings/model.py"),
        *renamed(
            '"RETRY_MAX_RETRIES"',
            '"MAX_RETRIES"',
            '"RETRY_INITIAL_DELAY_MS"',
            '"INITIAL_RETRY_DELAY_MS"',
            '"RETRY_MAX_DELAY_MS"',
            '"MAX_RETRY_DELAY_MS"',
            '"RETRY_BACKOFF_MULTIPLIER"',
            '"RETRY_JITTER"',
        ),
    ),
    "RETRY_SETTINGS": (
        Break('unless delays are set."),\n    ] = 3', 'unless delays are set."),\n    ] = 4'),
        Break("else (1000, 30000, 2.0, True)", "else (1001, 30000, 2.0, True)"),
        Break("else (1000, 30000, 2.0, True)", "else (1000, 30001, 2.0, True)"),
        Break("else (1000, 30000, 2.0, True)", "else (1000, 30000, 2.1, True)"),
        Break("else (1000, 30000, 2.0, True)", "else (1000, 30000, 2.0, False)"),
        *renamed('"RETRY_JITTER"'),
    ),
    "SETTING": (
        Break("] = 60_000", "] = 61_000", "core/policies.py"),
        Break("] = 10_000\n    max_poll", "] = 11_000\n    max_poll", "core/policies.py"),
        Break("] = 600_000", "] = 601_000", "core/policies.py"),
        Break('] = "earliest"', '] = "error"'),
        Break('has this many bytes.")\n    ] = 1\n', 'has this many bytes.")\n    ] = 2\n'),
        Break('after this time at the latest.")\n    ] = 500', 'after this time at the latest.")\n    ] = 501'),
    ),
    "DEFAULTS": (Break('"localhost:9092"', '"kafka:9092"'),),
    "DRAIN_DEFAULT": (Break('then the process ends."),\n    ] = 30.0', 'then the process ends."),\n    ] = 31.0'),),
    "HEALTH_PORT": (Break("] = 8080", "] = 8081"), *renamed('"HEALTH_CHECK_PORT"')),
    "PROFILES": (
        Break('"default": {}', '"default": {"max_retries": 4}'),
        Break('"financial": {"max_retries": 5', '"financial": {"max_retries": 6'),
        Break(
            '"notification": {"max_retries": 3, "initial_delay_ms": 1000, "max_delay_ms": 10_000}',
            '"notification": {"max_retries": 3, "initial_delay_ms": 1000}',
        ),
        Break('"none": {"max_retries": 0}', '"none": {"max_retries": 1}'),
    ),
    "FLOORS": (
        Break("Floor(30_000", "Floor(29_000"),
        Break("Floor(10_000", "Floor(9_000"),
        Break("Floor(300_000", "Floor(9_000"),
    ),
    "THIRD": (
        Break("heartbeat * 3 > session", "heartbeat > session"),
        Break("heartbeat * 3 > session", "heartbeat * 4 > session"),
    ),
    "RETRY_SUM": (Break(">= wait_ms + POLL_MARGIN_MS:", ">= wait_ms:"),),
    "ONE_PLACE": (Break("SettingSource.ENVIRONMENT,", "SettingSource.CODE,"),),
    "TYPED": (Break("classes[0](**_values(sections[name]))", "classes[0]()"),),
    "DOTENV": (Break('    _read_dotenv(raw, cwd / ".env", consumers)\n', ""),),
    "CHECKED_WHOLE": (
        Break("raise ConfigError(*raw.problems)", "raise ConfigError(raw.problems[0])"),
        Break("    if raw.problems:\n        raise ConfigError(*raw.problems)\n", ""),
    ),
    # -- seen from outside
    "LOGGED": (
        Break('consumer.warning("retry_scheduled"', 'consumer.info("retry_scheduled"'),
        Break('unexpected = event.kind == "retryable" or', "unexpected ="),
        Break('unexpected = event.kind == "retryable" or', "unexpected = True or"),
        Break('consumer.info("dead_lettered"', 'consumer.warning("dead_lettered"'),
        *renamed(
            '"retry_count": max(0, event.attempt - 1),\n        "error_type": event.error_type',
            '"error_type": event.error_type',
            '"consumer_group": event.group',
            '"partition": event.partition',
            '"offset": event.offset',
        ),
        Break("backoff_delay_ms=_ms(event.delay_s), **_raised_at(event)", "**_raised_at(event)"),
    ),
    "STRUCTURED": (
        Break('"event": entry.event,', '"message": entry.event,'),
        Break('"level": record.levelname.lower(),\n            "logger"', '"logger"'),
    ),
    "COUNTED": (
        Break(
            "        self.errors += 1\n        self.errors_by.add(labels, exemplar=exemplar)",
            "        self.errors += 1",
        ),
        Break("        self.dead_lettered_by.add(labels, exemplar=exemplar)\n", ""),
        Break("        self.retries_by_attempt[number] += 1\n", ""),
    ),
    "EXPOSED": (
        Break(
            '[own.sample(counts.processed, "success"), own.sample(failed, "failure")]',
            '[own.sample(counts.processed, "success")]',
        ),
        Break("    yield own.family(cat.DURATION, [own.sample(buckets)])\n", ""),
        Break(
            "yield own.family(cat.RETRIES, [own.sample(count, _numbered(number)) for number, count in numbered])",
            "_ = numbered",
        ),
        Break("    yield own.family(cat.RETRY_DELAY, delays)\n", ""),
        Break("    yield own.family(cat.DEAD_LETTERS, _by_error(own, counts.dead_lettered_by))\n", ""),
        Break("    yield own.family(cat.ERRORS, _by_error(own, counts.errors_by))\n", ""),
    ),
    "METRIC_NAMES": renamed(
        '"{domain}.{entity}.processed"',
        '"{domain}.{entity}.processing.duration"',
        '"{domain}.{entity}.retry.count"',
        '"{domain}.{entity}.retry.delay"',
        '"{domain}.{entity}.dlq.count"',
        '"{domain}.{entity}.error.count"',
        '"{domain}.{entity}.dlq.publish.failure"',
        '"kafka.consumer.lag"',
        '"kafka.consumer.records.lag.max"',
        '"kafka.consumer.records.consumed"',
        '"kafka.dlq.messages"',
        '"kafka.dlq.errors_by_type"',
        '"ingestion.events_processed"',
        '"ingestion.events_failed"',
    ),
    "PROCESS": (
        Break("in PROCESS_COLLECTOR.collect()]", "in ()]"),
        Break("[_threads, _network]", "[_threads]"),
    ),
    "SHOWN": (Break("        self.rebalances[what] += 1\n", ""),),
    "IN_HAND": (Break("in_flight=sum(map(_left, in_flight)),", "in_flight=0,"),),
    "LAG": (
        Break("max(0, end - position)", "max(0, position - end)"),
        Break("            self._asks(paused, self._answered)\n", ""),
    ),
    "STUCK": (
        Break("still_s >= STUCK_S and (end or 0) > before.end", "False"),
        Break("still_s >= STUCK_S and (end or 0) > before.end", "still_s >= STUCK_S"),
    ),
    "STUCK_HEALTH": (Break("    if stuck:\n", "    if False:\n"),),
    "HEALTH": (
        Break('if any(hold.name == "commit"', 'if any(hold.name == "nobody"'),
        Break("    if state.lost:", "    if False:"),
    ),
    "PROBES": (
        Break('text="It is shutting down.", fails_ready=True', 'text="It is shutting down."'),
        Break("/health/live", "/health/ready", "scaffold/template/deploy/kubernetes.yaml.tmpl"),
    ),
    "DRAIN_TIMED": (Break("        self.draining_since = now\n", ""),),
    "TRACED": (
        Break('        span.add_event(name, {"keepfast.retry_count"', '        _ = (name, {"keepfast.retry_count"'),
    ),
    "ALERTS": (
        Break(
            '("KeepfastHighErrorRate", cat.ERRORS, policy.error_share',
            '("KeepfastHighErrorRate", cat.ERRORS, policy.letter_share',
        ),
        Break(
            'cat.DEAD_LETTERS, policy.letter_share, "Dead letters"',
            'cat.DEAD_LETTERS, policy.error_share, "Dead letters"',
        ),
        *renamed(
            '"KeepfastHighPartitionLag"',
            '"KeepfastStuckPartitions"',
            '"KeepfastFrequentRebalances"',
            '"KeepfastShutdownTimeout"',
        ),
        Break("share = policy.publish_failure_share", "share = policy.error_share"),
        Break('any topic.")] = 10_000', 'any topic.")] = 100_000', "core/alerts.py"),
        Break('is frequent.")] = 1', 'is frequent.")] = 2', "core/alerts.py"),
    ),
    "LETTER_ALERTS": (
        Break(
            'A warning above this many letters in a day.")] = 0', 'A warning above this many letters in a day.")] = 1'
        ),
        Break(
            'Critical above this many letters in a day.")] = 10', 'Critical above this many letters in a day.")] = 11'
        ),
    ),
    "LAG_LIMITS": (
        Break('"financial": (100, 1_000)', '"financial": (101, 1_000)'),
        Break('"notification": (500, 5_000)', '"notification": (500, 5_001)'),
        Break('"other": (1_000, 10_000)', '"other": (1_001, 10_000)'),
    ),
    "RUNBOOK": renamed(
        'section="nothing-is-processed"',
        'section="frequent-rebalances"',
        'section="it-takes-too-long-to-stop"',
        'section="letters-cannot-be-written"',
    ),
    # -- the runner
    "RUNNER": (
        Break("        retry_floor_s=hooks.retry_floor_s,\n", ""),
        Break("retries = max(0, case.failures - 1)", "retries = case.failures", "runner/publishing.py"),
    ),
    "HOOKS": (
        Break("    if not callable(hook):", "    if False:"),
        Break("    if inspect.iscoroutinefunction(hook):", "    if False:"),
    ),
    "ANSWERS": (
        Break(
            '        if result["success"]:\n            return', '        if not result["success"]:\n            return'
        ),
    ),
    "SHARED_RULES": (
        judged("http-unavailable", "retryable", "non-retryable", file="classify/rules/http.py"),
        Break(
            'return not is_error(error) or classify(error).kind == "retryable"',
            'return is_error(error) and classify(error).kind == "retryable"',
            "classify/classification.py",
        ),
    ),
    "BACKOFF": (
        Break(
            "return int(policy_of(config).delay_ms(retry_count, random.random()))",
            "return int(policy_of(config).delay_ms(retry_count + 1, random.random()))",
        ),
        Break("delay_ms(retry_count, random.random())", "delay_ms(retry_count, 0.0)"),
    ),
    "ENDS_IN_ORDER": (Break("name, hook = self._at_end.pop()", "name, hook = self._at_end.pop(0)"),),
    "SHIM": (Break('"calculate_backoff", "is_retryable_error"]', '"is_retryable_error"]'),),
    # -- the files of a project, and what helps with its tests
    "PROJECT": (
        *renamed("`{{group}}`", "`POSTGRES_HOST`", "`RETRY_MAX_RETRIES`"),
        Break("tasks/db_connection.py", "tasks/connection.py"),
    ),
    "PACKAGE": (Break("[project.scripts]", "[project.gui-scripts]"),),
    "IMAGE": (
        Break("FROM python:3.13-slim", "FROM python:3.13"),
        Break("USER 1000:1000\n", ""),
        Break("--uid 1000", "--uid 1001"),
        Break("'/health'", "'/'"),
        Break("--interval=30s", "--interval=90s"),
        Break("EXPOSE 8080\n", ""),
        Break("    PIP_NO_CACHE_DIR=1 \\\n", ""),
        Break("COPY pyproject.toml README.md ./\n", "COPY . ./\n"),
        Break('ENTRYPOINT ["{{project}}-consumer"]', "ENTRYPOINT {{project}}-consumer"),
        Break(".env\n", "", "scaffold/template/.dockerignore.tmpl"),
    ),
    "COMPOSE": (
        Break("\n  postgres:\n", "\n  postgresql:\n"),
        *renamed(
            "KAFKA_BROKERS:",
            "KAFKA_INPUT_TOPIC:",
            "KAFKA_CONSUMER_GROUP:",
            "      POSTGRES_HOST:",
            "HEALTH_CHECK_PORT:",
        ),
        Break("      postgres: { condition: service_healthy }\n", ""),
    ),
    "POOLED": (
        Break("ON CONFLICT (id) DO NOTHING", ""),
        Break("                    self._idle.put(connection)", "                    connection.close()"),
    ),
    "POOL_SIZE": (
        Break('number("POSTGRES_POOL_MIN", 2)', 'number("POSTGRES_POOL_MIN", 3)'),
        Break('number("POSTGRES_POOL_MAX", 10)', 'number("POSTGRES_POOL_MAX", 11)'),
    ),
    "HARNESS": (
        Break(
            "            value=outgoing.value,\n            key=outgoing.key",
            '            value=b"",\n            key=outgoing.key',
        ),
    ),
    "FIXTURES": (Break("    with KafkaBroker() as broker:\n        yield broker", "    yield KafkaBroker()"),),
}
