"""Breaks of what `evidence` names, up to the settings."""

from __future__ import annotations

from collections.abc import Mapping

from tests.audit.one_break import Break, judged, renamed

FINAL, AGAIN = "non-retryable", "retryable"

ENGINE: Mapping[str, tuple[Break, ...]] = {
    # -- what errors mean
    "CATEGORIES": (
        Break(", *SERVICE_RULES", ""),
        Break(
            "rules.classify(error, lookup) or unknown_error(lookup)",
            "rules.classify(error, case)",
            "classify/classification.py",
        ),
    ),
    "PYTHON_ERRORS": (
        judged("network", AGAIN, FINAL),
        judged("timeout", AGAIN, FINAL),
        judged("configuration", FINAL, AGAIN),
    ),
    "NOT_VALID": (
        judged("pydantic", FINAL, AGAIN),
        judged("msgspec", FINAL, AGAIN),
        Break(
            'return "MISSING_REQUIRED_FIELD"\n    return "ENUM_INVALID" if kinds',
            'return None\n    return "ENUM_INVALID" if kinds',
        ),
    ),
    "STATUSES": (
        Break("_http(502, 503, 504, 521", "_http(502, 503, 521"),
        Break('"http:429",\n        "retryable"', '"http:429",\n        "non-retryable"'),
        Break('_http(401, 403, 407),\n        "non-retryable"', '_http(401, 403, 407),\n        "retryable"'),
        Break('"http:404",\n        "not-found"', '"http:404",\n        "retryable"'),
    ),
    "CONTENTION": (
        judged("sqlstate-conflict", AGAIN, FINAL),
        judged("db-pool", AGAIN, FINAL),
    ),
    "CONSTRAINTS": (judged("sqlstate-constraint", FINAL, AGAIN),),
    "DISCONNECTED": (
        judged("db-down", AGAIN, FINAL),
        judged("sqlstate-down", AGAIN, FINAL),
    ),
    "KAFKA_ERRORS": (judged("kafka-down", AGAIN, FINAL), judged("kafka-passing", AGAIN, FINAL)),
    "UNKNOWN": (
        Break("lookup = Lookup(unknown, not_found, now_wall)", 'lookup = Lookup("retry", not_found, now_wall)'),
    ),
    "OWN_RULES": (Break("(_index(own), _index(RULES)) if own", "(_index(RULES), _index(own)) if own"),),
    "NEVER_RAISES": (Break("except BaseException as error:", "except ZeroDivisionError as error:"),),
    "GARBAGE": (judged("decode", FINAL, AGAIN),),
    "FRAUD_TABLE": (
        judged("decode", FINAL, AGAIN),
        judged("sqlstate-conflict", AGAIN, FINAL, "classify/rules/databases.py"),
        judged("value", FINAL, AGAIN),
    ),
    "SUNK": (
        Break(
            '"discard",\n        name="discard"',
            '"non-retryable",\n        name="discard"',
            "classify/rules/language.py",
        ),
    ),
    # -- retries
    "CLASSIFIED_FIRST": (
        Break(
            "            found,\n            attempt=attempt",
            "            classify(RuntimeError()),\n            attempt=attempt",
        ),
    ),
    "FORMULA": (
        Break("float(self.multiplier) ** retry_count", "float(self.multiplier) * retry_count"),
        Break("base + jitter * 0.1 * base", "base + jitter * 0.2 * base"),
        Break("min(grown, self.max_delay_ms)", "grown"),
    ),
    "FOR_EVER": (
        Break("defaults = (3000, 3000, 1.0, False)", "defaults = (1000, 1000, 1.0, False)"),
        Break(
            "if policy.max_retries is not None and attempt",
            "if attempt > (policy.max_retries or 3) and attempt",
            "core/judge.py",
        ),
    ),
    "RETRIED": (
        Break("attempt > policy.max_retries:", "attempt >= policy.max_retries:"),
        Break("attempt > policy.max_retries:", "attempt > policy.max_retries + 1:"),
    ),
    "ELAPSED": (Break("elapsed_s + delay_s > policy.max_elapsed_s", "elapsed_s > policy.max_elapsed_s"),),
    "ROUTED": (
        Break("attempt > policy.max_retries:", "attempt >= policy.max_retries:"),
        Break(
            'verdicts.DeadLetter(_reason(error) or f"{type(error).__name__} is final ({found.rule})", found.code)',
            "verdicts.RetryAfter(0.01)",
        ),
    ),
    "RATE": (
        Break(
            "floor_s=max(self._floor_s, plan.retry_floor_s()) if plan.retry_floor_s else self._floor_s", "floor_s=0.0"
        ),
        Break("        if policy.min_delay_ms:\n", "        if False:\n", "core/guards.py"),
    ),
    "RATES": (
        Break("_Bucket(1 / policy.per_s,", "_Bucket(0.5 / policy.per_s,"),
        Break("_Bucket(1 / per_s,", "_Bucket(0.5 / per_s,"),
    ),
    "MOVED": (
        Break(
            "        self._publish(record)\n\n    def drop",
            '        self._publish(record) if kind != "move" else self._done(record, "topic")\n\n    def drop',
        ),
    ),
    "TIMED_OUT": (
        Break(
            ">= timeout_s:\n                self._overdue(run, at, now)",
            ">= timeout_s * 1000:\n                self._overdue(run, at, now)",
        ),
    ),
    "BREAKER": (
        Break("self.outages >= self._policy.failures and", "self.outages > self._policy.failures and"),
        Break(
            "elif self.state is BreakerState.HALF_OPEN:\n            self.close()",
            "elif self.state is BreakerState.HALF_OPEN:\n            self._open(now)",
        ),
    ),
    # -- letters
    "ENVELOPE": renamed(
        '"original_message": original',
        '"error_type": letter.error_type',
        '"error_message": letter',
        '"error_classification": letter',
        '"failed_at": None',
        '"retry_count": letter',
        '"stack_trace": letter',
    ),
    "NESTED": (
        *renamed('"type": "error_type"', '"message": "error_message"', '"timestamp": "failed_at"'),
        Break('"original_topic",\n', ""),
        Break('"original_partition",\n', ""),
        Break('"original_offset",\n', ""),
        Break('"consumer_group",\n', ""),
    ),
    "SPRING_HEADERS": (
        *renamed(
            '"kafka_dlt-original-topic"',
            '"kafka_dlt-original-partition"',
            '"kafka_dlt-original-offset"',
            '"kafka_dlt-original-timestamp"',
            '"kafka_dlt-exception-fqcn"',
            '"kafka_dlt-exception-message"',
            '"kafka_dlt-exception-stacktrace"',
        ),
        Break('to_bytes(4, "big"', 'to_bytes(4, "little"'),
    ),
    "BYTES_KEPT": (Break("_compact(parsed) == value and _is_shallow(parsed)", "_is_shallow(parsed)"),),
    "PUBLISHED_AGAIN": (
        Break("FIRST_BACKOFF_S * 2.0 ** min(max(0, failures - 1), 10)", "FIRST_BACKOFF_S"),
        Break("        self._timers.add(now + delay_s, record)\n", ""),
    ),
    "UNCOMMITTED": (
        Break(
            "self._not_published(record, error, now)\n            case Kept",
            'self._done(record, "topic")\n            case Kept',
        ),
    ),
    "SPOOLED": (Break("return ToSpool() if has_spool and not transient else", "return"),),
    "LETTER_TOPIC_MADE": (
        Break("if not all(own.dead_letter.create_topic for own in users):", "if False:"),
        Break(
            "admin.create_topic(letter, partitions=partitions, timeout_s=ASK_TIMEOUT_S, config=config)",
            "pass",
        ),
    ),
    "LETTERS_STAY": (Break('"retention.ms": "-1"', '"retention.ms": "1000"'),),
    "LETTER_HEALTH": (Break("if refused.records:", "if False:"),),
    "LETTER_NAMES": (
        Break('] = "{domain}.{entity}.dlq"', '] = "{domain}.{entity}.dead"'),
        Break("if field not in fields or spec", 'if field != "domain" or field not in fields or spec', "core/names.py"),
    ),
    "REPLAYED": (
        Break(
            "routed = self._router.route(filed)\n        if isinstance(routed, str):",
            "routed = self._router.route(filed)\n        if True:",
        ),
        Break("(*letter.headers, *encoded(told.items()))", "encoded(told.items())", "deadletters/ours.py"),
    ),
    "BURIED_AGAIN": (Break("replay_count=ours.replays(record.headers)", "replay_count=0"),),
    "CAUSES": (Break("(-cause.count, cause.fingerprint)", "(cause.count, cause.fingerprint)"),),
    # -- commits, order, groups
    "MANUAL": (
        Break('"enable.auto.commit": False', '"enable.auto.commit": True'),
        Break('"enable.auto.offset.store": False', '"enable.auto.offset.store": True'),
        *renamed('"enable.auto.commit": _', '"enable.auto.offset.store": _', file="settings/client_properties.py"),
    ),
    "NOT_LOST": (Break("low = self._state.find(0, self._low)", "low = self._state.find(0, self._state.rfind(1) + 1)"),),
    "COMMITTED_AFTER": (
        Break("self._state.extend(bytes(len(offsets)))", 'self._state.extend(b"\\x01" * len(offsets))'),
    ),
    "CONFIRMED": (
        Break(
            "        if self.each:\n            partition.awaiting.append(holder)",
            "        if False:\n            partition.awaiting.append(holder)",
        ),
    ),
    "COMMITTED_EACH": (Break('self.each = self._policy.mode == "each"', "self.each = False"),),
    "COMMITS_RETRIED": (
        Break("            self._dirty[place] = part.partition\n            error =", "            error ="),
        Break("return self._failures >= TRIP_FAILURES or", "return"),
    ),
    "FENCED": (
        Break("return self._current.get(place) == epoch", "return place in self._current"),
        Break("        self._current.pop(place, None)", "        pass"),
    ),
    "PARTITION_ORDER": (Break("if partition.place in self._busy:", "if False:"),),
    "KEY_ORDER": (Break("self._keyed = keyed", "self._keyed = False"),),
    "OWN_GROUP": (Break("raw.problems.extend(_shared_groups(built))", ""),),
    "GROUP_NAMES": (Break('return f"{app}.{consumer}"', 'return f"{app}-{consumer}"'),),
    "TOPIC_NAMES": (Break('"_".join(segments[1:])', '"-".join(segments[1:])'),),
    "ENV_NAMES": (Break('{"env": self._app.env})', '{"env": "local"})'),),
    "COOPERATIVE": (
        Break("self._open.incremental_unassign([ClientPlace(*place) for place in places])", "self._open.unassign()"),
        Break('assignor: str = "cooperative-sticky"', 'assignor: str = "range"', "kafka/config.py"),
    ),
    "FAN_OUT": (Break("shared) for spec in specs]", "shared) for spec in specs[:1]]"),),
    "DECLARED": (Break('if self._batches and not self._value("idempotent"):', "if False:"),),
    "DECODED": (Break("return _decoder(parse, on_null, wanted, names)", "return _bytes_decoder(on_null)"),),
    "BATCHED": (
        Break("if count > 1 else None", "if count > 2 else None"),
        Break("(1 if self._singly else self._policy.size) - sum(", "1 - sum(", "engine/batch_lanes.py"),
    ),
    "SIDE_BY_SIDE": (Break("if len(self._workers) - len(self._cancelled) >= self._capacity:", "if self._workers:"),),
    # -- the loop and its end
    "FETCHED_AGAIN": (
        Break("            say_client_error(self.plan.name, error, now)", "            pass"),
        Break("if error.fault in (Fault.FENCED, Fault.FATAL):", "if True:"),
    ),
    "NOT_EVICTED": (Break("            self.intake.poll(now, 0.0)\n", "            pass\n"),),
    "BOUNDED": (
        Break("len(partition.buffer) >= records", "bool(partition.buffer)"),
        Break("        if self._is_full(partition):", "        if False:"),
    ),
    "FORGOTTEN": (Break("        self.buffer.clear()\n        self.awaiting.clear()", "        pass"),),
    "QUICK": (
        Break(
            "max(0.0, min(self._idle_limit_s, due_s))",
            "0.0 if self._clock.monotonic() % 1 < 0.001 else __import__('time').sleep(0.05) or 0.0",
        ),
    ),
    "TUNED": (Break("self._open.consume(limit, 0)", "self._open.consume(limit * 10, 0)"),),
    "DRAINED": (
        Break("waiting = len(parts.in_flight) + settling", "waiting = settling"),
        Break("self.deadline = min(self.deadline, stop.deadline)", "self.deadline = now"),
    ),
    "SIGNALS": (Break("install((signal.SIGTERM, signal.SIGINT),", "install((signal.SIGINT,),"),),
    "INTAKE_CLOSED": (
        Break("self._source.pause([partition.place for partition in self._ownership])", "self._source.pause([])"),
    ),
    "CUT_SHORT": (Break("if waiting and now < self.deadline:", "if now < self.deadline:"),),
    "DRAIN_REPORTED": (
        Break("REPORT_S = 5.0", "REPORT_S = 50.0"),
        Break('log.info("drain_waiting"', 'log.debug("drain_waiting"'),
    ),
    "DEADLINE": (Break("if waiting and now < self.deadline:", "if waiting:"),),
}
