"""Which code of keepfast keeps a rule, and which tests fail when that code is broken: what several rules share.

That they do fail is tried: `breaks` has breaks for each of these, and `test_what_is_broken_is_noticed` makes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Evidence:
    """Which file of keepfast keeps a rule, and which tests would fail if it did not."""

    code: str
    tests: tuple[str, ...]


def path_of(name: str) -> str:
    """Return the path of a test file from the root; `name` is as in evidence."""
    folder, _, rest = name.partition("/")
    if folder == "examples":
        return name
    return f"packages/neotool-common/profile_tests/{rest}" if folder == "profiles" else f"tests/{name}"


def by(code: str, *tests: str) -> Evidence:
    return Evidence(code, tests)


_RULE_BY_RULE: Final = "scenarios/test_every_rule_of_the_standard_about_dead_letters_and_commits.py"
_EXACT: Final = (
    "scenarios/test_metrics_have_the_exact_counts_of_a_run_with_known_failures.py"
    "::test_the_counts_names_and_labels_are_exact"
)
_CLASSIFIED: Final = "classify/test_rules_language.py"
_DATABASES: Final = "classify/test_rules_databases.py"
_DEFAULTS: Final = "settings/test_sources_and_their_order.py::test_one_topic_is_all_that_a_consumer_needs"
_NAMES: Final = "settings/test_the_names_of_the_texts.py::test_a_name_of_the_texts_sets_its_setting"
_SHOWS: Final = "engine/test_status.py"
_ENDS: Final = "engine/test_shutdown.py"
_LETTERS: Final = "scenarios/test_a_dead_letter_keeps_the_bytes_of_its_record.py::test_key_value_and_headers_are_exact"
_SIGTERM: Final = "scenarios/test_sigterm_mid_handler_finishes_it_and_commits.py"
_HEALTH: Final = "http/test_health.py"
_RULES: Final = "monitoring/test_rules_and_dashboard.py"

# -- what errors mean

CATEGORIES: Final = by(
    "classify/rules/table.py",
    "classify/test_rules_table.py::test_every_category_of_the_standard_has_rules",
    "classify/test_classification_never_raises.py::test_an_exception_of_any_make_is_classified",
)
PYTHON_ERRORS: Final = by("classify/rules/language.py", f"{_CLASSIFIED}::test_what_an_exception_means")
NOT_VALID: Final = by("classify/rules/language.py", f"{_CLASSIFIED}::test_validation_is_final_with_the_narrowest_code")
STATUSES: Final = by(
    "classify/rules/http.py", "classify/test_rules_http.py::test_a_status_decides_whichever_client_brings_it"
)
CONTENTION: Final = by(
    "classify/rules/databases.py",
    f"{_DATABASES}::test_a_deadlock",
    f"{_DATABASES}::test_a_lock_that_is_not_had_in_time",
    f"{_DATABASES}::test_a_pool_that_is_used_up",
)
CONSTRAINTS: Final = by("classify/rules/databases.py", f"{_DATABASES}::test_one_statement")
DISCONNECTED: Final = by(
    "classify/rules/databases.py",
    f"{_DATABASES}::test_a_connection_that_was_closed",
    f"{_DATABASES}::test_a_standby_that_cannot_write",
)
KAFKA_ERRORS: Final = by(
    "classify/rules/services.py", "classify/test_rules_services.py::test_an_error_of_confluent_kafka"
)
UNKNOWN: Final = by("classify/classification.py", f"{_CLASSIFIED}::test_unknown_errors_go_where_the_setting_says")
OWN_RULES: Final = by(
    "classify/rules/rule_book.py", "classify/test_rules_of_users.py::test_a_users_rule_goes_before_every_built_in_one"
)
NEVER_RAISES: Final = by("engine/calls.py", "engine/test_workers.py::test_a_worker_survives_whatever_a_handler_raises")
GARBAGE: Final = by(
    "classify/rules/language.py",
    f"{_CLASSIFIED}::test_what_an_exception_means",
    "scenarios/test_garbage_bytes_become_verdicts_not_crashes.py::test_every_kind_of_garbage_meets_its_verdict",
)
FRAUD_TABLE: Final = by(
    "classify/rules/language.py",
    "scenarios/test_every_row_of_the_fraud_services_error_table.py::test_what_becomes_of_it",
)
SUNK: Final = by(
    "redact/sensitive.py",
    "scenarios/test_every_row_of_the_fraud_services_error_table.py::test_a_card_number_is_in_no_letter_and_in_no_line_of_the_log",
)

# -- retries

CLASSIFIED_FIRST: Final = by(
    "engine/failures.py",
    "engine/test_failures.py::test_what_an_error_means_is_decided_by_the_users_rules_before_anything_is_retried",
)
FORMULA: Final = by(
    "core/policies.py", "core/test_policies.py::test_the_delay_is_the_formula_of_the_standard_with_jitter_after_the_cap"
)
FOR_EVER: Final = by(
    "core/policies.py",
    "core/test_policies.py::test_retrying_for_ever_waits_exactly_3_seconds_by_default",
    "core/test_judge.py::test_for_ever_means_for_ever_every_three_seconds",
)
RETRIED: Final = by(
    "core/judge.py", "core/test_judge.py::test_a_record_is_dead_lettered_when_its_retries_are_used_up_and_not_before"
)
ELAPSED: Final = by("core/judge.py", "core/test_judge.py::test_no_retry_begins_after_the_time_a_record_may_take")
ROUTED: Final = by("core/judge.py", f"{_RULE_BY_RULE}::test_it_is_kept")
RATE: Final = by(
    "engine/failures.py",
    "scenarios/test_rate_limits_are_kept_and_used.py::test_a_minimum_delay_holds_for_retries_too",
    "engine/test_failures.py::test_no_retry_waits_less_than_the_plan_says_at_that_moment",
)
RATES: Final = by(
    "core/guards.py",
    "core/test_guards.py::test_no_more_starts_than_the_rate_allows_in_any_stretch_of_time",
    "core/test_guards.py::test_partitions_have_a_rate_of_their_own_and_a_minimum_delay_holds_for_all",
)
MOVED: Final = by(
    "engine/forwarding.py",
    "engine/test_forwarding.py::test_a_record_is_finished_when_its_copy_is_acknowledged_and_not_before",
    "scenarios/test_retry_topics_end_in_the_dead_letter_topic.py::test_the_letter_is_about_the_original_record",
)
TIMED_OUT: Final = by(
    "engine/timeouts.py",
    "engine/test_timeouts.py::test_a_thread_that_hangs_is_given_up_and_its_record_has_timed_out",
    f"{_RULE_BY_RULE}::test_it_is_kept",
)
BREAKER: Final = by(
    "core/guards.py",
    "core/test_guards.py::test_four_outages_do_not_open_the_breaker_and_five_do",
    "core/test_guards.py::test_a_probe_that_goes_through_closes_it_and_forgets_the_past",
)

# -- letters

ENVELOPE: Final = by(
    "deadletters/envelope.py", "deadletters/test_envelope.py::test_an_envelope_says_what_where_and_why"
)
NESTED: Final = by(
    "deadletters/nested.py", "deadletters/test_envelope.py::test_the_nested_format_groups_the_same_facts"
)
SPRING_HEADERS: Final = by(
    "deadletters/spring.py",
    "deadletters/test_spring.py::test_texts_are_utf_8_and_numbers_are_big_endian_of_4_and_8_bytes",
)
BYTES_KEPT: Final = by(
    "deadletters/inline.py",
    "deadletters/test_writing.py::test_everything_written_is_read_back",
)
PUBLISHED_AGAIN: Final = by(
    "engine/forwarding.py",
    "engine/test_forwarding.py::test_without_a_spool_it_stays_red_and_is_tried_for_ever",
    "engine/test_forwarding.py::test_each_wait_before_it_is_tried_again_is_longer_up_to_half_a_minute",
)
UNCOMMITTED: Final = by(
    "engine/forwarding.py",
    "engine/test_forwarding.py::test_without_a_spool_it_stays_red_and_is_tried_for_ever",
    f"{_RULE_BY_RULE}::test_4_1_nothing_is_committed_while_the_dead_letter_cannot_be_published",
)
SPOOLED: Final = by(
    "engine/forwarding.py",
    "engine/test_forwarding.py::test_what_does_not_pass_by_itself_goes_to_the_spool_at_once",
    "scenarios/test_a_spool_takes_letters_that_kafka_does_not.py::test_the_lane_goes_on_and_the_letters_arrive_later",
)
LETTER_TOPIC_MADE: Final = by(
    "wiring/cluster.py",
    "cli/test_run_says_what_is_missing.py::test_a_dead_letter_topic_that_may_not_be_made",
    _LETTERS,
)
LETTERS_STAY: Final = by("wiring/cluster.py", _LETTERS)
LETTER_HEALTH: Final = by(
    "http/health.py",
    "http/test_health.py::test_a_consumer",
    "scenarios/test_health_changes_when_something_is_wrong_and_not_otherwise.py"
    "::test_pauses_and_an_open_breaker_are_healthy_a_missing_dead_letter_topic_is_red",
)
LETTER_NAMES: Final = by(
    "core/policies.py", "core/test_names.py::test_the_patterns_of_the_texts_can_be_written", _DEFAULTS
)
REPLAYED: Final = by(
    "desk/run.py",
    "deadletters/test_writing.py::test_a_replayed_record_is_the_original_and_a_header_of_ours",
    "cli/test_dlq_replay.py::test_only_what_was_chosen_is_sent",
)
BURIED_AGAIN: Final = by(
    "deadletters/publisher.py",
    "deadletters/test_publisher.py::test_headers_of_an_earlier_letter_are_replaced_and_its_count_goes_on",
)
CAUSES: Final = by(
    "desk/causes.py", "desk/test_causes_and_masking.py::test_cases_are_counted_by_cause_the_most_frequent_first"
)

# -- commits, order, groups

MANUAL: Final = by(
    "kafka/config.py",
    "kafka/test_config.py::test_offsets_are_never_moved_by_the_client",
    "settings/test_client_properties.py::test_properties_that_would_break_a_promise_are_refused_with_the_reason",
)
NOT_LOST: Final = by(
    "core/ledger.py",
    "core/test_ledger.py::test_an_unfinished_record_holds_the_watermark_while_later_ones_finish",
    "simulation/test_the_engine_keeps_its_promises_in_simulation.py::test_no_promise_is_broken_in_any_seed",
)
COMMITTED_AFTER: Final = by("core/ledger.py", f"{_RULE_BY_RULE}::test_4_1_nothing_is_committed_by_itself")
CONFIRMED: Final = by(
    "engine/commits.py",
    f"{_RULE_BY_RULE}::test_4_1_commits_are_synchronous_and_come_at_once_after_success_and_after_a_dead_letter",
)
COMMITTED_EACH: Final = by("engine/commits.py", f"{_RULE_BY_RULE}::test_4_2_commits_are_not_batched_across_records")
COMMITS_RETRIED: Final = by(
    "engine/commits.py",
    "scenarios/test_commits_that_fail_for_a_while_are_retried.py::test_nothing_starts_while_they_fail_and_everything_is_committed_after",
    "engine/test_commits_refused.py::test_a_time_out_is_for_all_partitions",
)
FENCED: Final = by(
    "engine/ownership.py",
    "engine/test_ownership.py::test_an_epoch_is_current_from_its_beginning_until_its_end_or_the_next_one",
)
PARTITION_ORDER: Final = by(
    "core/lanes.py", "core/test_lanes.py::test_a_partition_has_one_run_out_at_a_time_in_offset_order"
)
KEY_ORDER: Final = by(
    "core/lanes.py",
    "scenarios/test_key_order_is_kept_with_64_workers.py::test_5_000_records_of_200_keys_keep_their_order",
)
OWN_GROUP: Final = by(
    "settings/loading.py", "settings/test_every_problem_is_reported_at_once.py::test_two_consumers_cannot_share_a_group"
)
GROUP_NAMES: Final = by("core/names.py", "core/test_names.py::test_the_default_group_names_app_and_function", _DEFAULTS)
TOPIC_NAMES: Final = by("core/names.py", "core/test_names.py::test_domain_and_entity_come_from_the_topic")
ENV_NAMES: Final = by(
    "settings/consumers.py",
    "settings/test_sources_and_their_order.py::test_env_is_filled_into_topics_groups_and_dead_letter_topics",
)
COOPERATIVE: Final = by(
    "kafka/source.py", "conformance/test_a_source_shares.py::test_partitions_that_stay_are_never_revoked"
)
FAN_OUT: Final = by(
    "wiring/assembly.py",
    "scenarios/test_two_consumers_of_one_app_run_side_by_side.py::test_two_consumers_of_one_app_run_side_by_side",
)
DECLARED: Final = by("settings/consumers.py", "engine/test_calls_batches.py::test_batches_need_idempotency")
DECODED: Final = by("decode/annotation.py", "decode/test_annotation.py::test_an_annotation_chooses_its_decoder")
BATCHED: Final = by(
    "core/batches.py",
    "core/test_batches.py::test_the_first_bad_record_is_found_and_everything_before_it_is_finished_once",
    "engine/test_batches.py::test_a_full_batch_goes_out_at_once",
)
SIDE_BY_SIDE: Final = by(
    "engine/workers.py", "engine/test_workers.py::test_coroutines_run_side_by_side_and_come_back_in_bundles"
)

# -- the loop and its end

FETCHED_AGAIN: Final = by(
    "engine/loop.py", f"{_SHOWS}::test_a_fetch_that_fails_is_reported_and_the_next_one_brings_records"
)
NOT_EVICTED: Final = by(
    "engine/loop.py",
    "scenarios/test_a_handler_slower_than_max_poll_interval_is_not_evicted.py::test_a_handler_slower_than_max_poll_interval_is_not_evicted",
)
BOUNDED: Final = by("engine/intake.py", f"{_SHOWS}::test_a_partition_is_paused_when_it_is_full_and_not_before")
FORGOTTEN: Final = by("core/runs.py", "core/test_runs_partitions.py::test_a_closed_partition_keeps_nothing")
QUICK: Final = by(
    "engine/loop.py",
    "scenarios/test_an_idle_consumer_calls_its_handler_within_10_ms.py::test_the_median_of_50_is_below_10_ms",
)
TUNED: Final = by("kafka/source.py", "conformance/test_a_source_reads.py::test_a_sweep_takes_no_more_than_its_limit")
DRAINED: Final = by(
    "engine/shutdown.py",
    f"{_ENDS}::test_what_is_in_hand_is_finished_and_committed_and_nothing_else_starts",
    f"{_SIGTERM}::test_sigterm_mid_handler_finishes_it_and_commits",
)
SIGNALS: Final = by("engine/lifecycle.py", f"{_SIGTERM}::test_sigterm_mid_handler_finishes_it_and_commits")
INTAKE_CLOSED: Final = by("engine/intake.py", f"{_ENDS}::test_no_partition_is_read_any_more_an_idle_one_neither")
CUT_SHORT: Final = by(
    "engine/shutdown.py",
    f"{_ENDS}::test_who_waits_for_a_retry_is_not_waited_for",
    "scenarios/test_sigterm_mid_wait_cuts_the_wait_short.py::test_sigterm_mid_wait_cuts_the_wait_short",
)
DRAIN_REPORTED: Final = by("engine/shutdown.py", f"{_ENDS}::test_its_progress_is_reported_every_five_seconds")
DEADLINE: Final = by(
    "engine/shutdown.py",
    f"{_ENDS}::test_by_its_deadline_it_is_over_and_what_was_not_finished_is_not_committed",
)

# -- settings

VARIABLES: Final = by("core/policies.py", _NAMES)
RETRY_SETTINGS: Final = by(
    "core/policies.py", _NAMES, "runner/test_retry.py::test_the_defaults_are_those_of_the_standard"
)
SETTING: Final = by("settings/model.py", _DEFAULTS)
DEFAULTS: Final = by("settings/model.py", _DEFAULTS)
DRAIN_DEFAULT: Final = by("settings/model.py", _DEFAULTS)
HEALTH_PORT: Final = by("settings/model.py", _DEFAULTS, _NAMES)
PROFILES: Final = by("settings/catalogue.py", "settings/test_retry_profiles.py::test_the_profiles_that_are_built_in")
FLOORS: Final = by(
    "core/policies.py", "settings/test_timings.py::test_short_timings_are_refused_with_where_they_came_from"
)
THIRD: Final = by(
    "core/policies.py",
    "core/test_policies.py::test_timings_must_fit_together_even_in_tests",
    "core/test_policies.py::test_a_heartbeat_of_a_third_of_the_session_is_fine",
)
RETRY_SUM: Final = by(
    "settings/consumers.py", "settings/test_timings.py::test_a_poll_interval_below_the_retry_sum_only_warns"
)
ONE_PLACE: Final = by(
    "settings/loading.py",
    "settings/test_sources_and_their_order.py::test_environment_wins_over_dotenv_over_file_over_code_over_defaults",
)
TYPED: Final = by("settings/loading.py", "settings/test_the_catalogue.py::test_what_is_set_arrives_as_a_typed_field")
DOTENV: Final = by("settings/loading.py", "settings/test_the_names_of_the_texts.py::test_it_works_in_dotenv_too")
CHECKED_WHOLE: Final = by(
    "settings/loading.py",
    "settings/test_every_problem_is_reported_at_once.py::test_problems_of_all_sources_come_together_each_with_its_place",
)

# -- logs, metrics, health, alerts

LOGGED: Final = by(
    "telemetry/event_log.py", "engine/test_failures.py::test_the_log_says_what_the_standard_asks_for_at_its_levels"
)
STRUCTURED: Final = by(
    "telemetry/logs.py", "telemetry/test_logs.py::test_a_json_line_has_time_level_logger_event_and_fields"
)
COUNTED: Final = by(
    "engine/counts.py", "engine/test_failures.py::test_failures_are_counted_by_type_classification_and_code", _EXACT
)
EXPOSED: Final = by("engine/metrics.py", _EXACT)
METRIC_NAMES: Final = by(
    "telemetry/catalogue.py",
    "telemetry/test_prometheus.py::test_every_name_that_the_documents_ask_for_is_in_the_catalogue",
)
PROCESS: Final = by(
    "telemetry/prometheus.py",
    "telemetry/test_prometheus.py::test_the_operating_system_tells_memory_processor_threads_files_and_network",
)
SHOWN: Final = by("engine/status.py", f"{_SHOWS}::test_lag_is_what_is_not_finished_of_what_the_client_has_seen", _EXACT)
IN_HAND: Final = by("engine/status.py", f"{_SHOWS}::test_lag_is_what_is_not_finished_of_what_the_client_has_seen")
LAG: Final = by(
    "engine/status.py",
    f"{_SHOWS}::test_lag_is_what_is_not_finished_of_what_the_client_has_seen",
    "scenarios/test_lag_grows_while_a_partition_is_not_fetched.py::test_the_ends_of_paused_partitions_are_asked_for",
)
STUCK: Final = by(
    "engine/status.py", f"{_SHOWS}::test_a_partition_is_stuck_when_its_lag_grows_and_nothing_of_it_finishes"
)
STUCK_HEALTH: Final = by("http/health.py", f"{_HEALTH}::test_a_partition_that_is_stuck_and_one_that_is_paused_by_hand")
HEALTH: Final = by("http/health.py", f"{_HEALTH}::test_a_consumer")
PROBES: Final = by(
    "http/health.py",
    f"{_HEALTH}::test_while_it_drains_it_is_live_and_not_ready",
    "scaffold/test_project_deployment.py::test_each_probe_asks_its_own_question",
)
DRAIN_TIMED: Final = by(
    "engine/lifecycle.py",
    "scenarios/test_health_changes_when_something_is_wrong_and_not_otherwise.py"
    "::test_pauses_and_an_open_breaker_are_healthy_a_missing_dead_letter_topic_is_red",
)
TRACED: Final = by(
    "telemetry/tracing.py",
    "telemetry/test_tracing.py::test_a_failed_attempt_ends_with_what_was_decided_and_open_ones_are_bounded",
)
ALERTS: Final = by(
    "monitoring/alerts.py",
    f"{_RULES}::test_there_are_the_seven_alerts_and_those_of_lag_and_letters",
    "monitoring/test_alerts.py::test_exactly_these_alerts_fire",
)
LETTER_ALERTS: Final = by("core/alerts.py", f"{_RULES}::test_there_are_the_seven_alerts_and_those_of_lag_and_letters")
LAG_LIMITS: Final = by("core/alerts.py", f"{_RULES}::test_how_much_lag_is_too_much_depends_on_the_kind_of_topic")
RUNBOOK: Final = by("monitoring/alerts.py", f"{_RULES}::test_every_alert_links_to_a_section_of_the_runbook")

# -- the runner

RUNNER: Final = by(
    "runner/assembly.py",
    "scenarios/test_a_runner_processes_retries_and_dead_letters_with_every_kind_of_consumer.py::test_a_runner_processes_retries_and_dead_letters",
)
HOOKS: Final = by(
    "runner/checking.py",
    "runner/test_hooks.py::test_every_problem_of_the_hooks_is_reported_before_anything_starts",
)
ANSWERS: Final = by(
    "runner/hooks.py",
    "runner/test_hooks.py::test_these_results_mean_success",
    "runner/test_hooks.py::test_these_results_mean_failure_with_that_error",
)
SHARED_RULES: Final = by("runner/retry.py", "runner/test_retry.py::test_errors_are_classified_as_the_pattern_does")
BACKOFF: Final = by(
    "runner/retry.py",
    "runner/test_retry.py::test_the_back_off_grows_from_the_initial_delay_to_the_cap",
    "runner/test_retry.py::test_jitter_adds_up_to_a_tenth_and_never_takes_away",
)
ENDS_IN_ORDER: Final = by(
    "runner/runner.py",
    "scenarios/test_a_runner_stops_on_signals_and_on_stop.py"
    "::test_sigterm_finishes_the_record_in_hand_commits_it_and_calls_the_hooks_of_the_end_in_order",
)
SHIM: Final = by(
    "runner/__init__.py", "runner/test_runner_import_shim.py::test_the_paths_of_the_pattern_lead_to_our_runner"
)

# -- the files of a project, and what helps with its tests

PROJECT: Final = by(
    "scaffold/template/README.md.tmpl",
    "cli/test_new.py::test_the_readme_names_the_group_the_configuration_and_the_other_layout",
)
PACKAGE: Final = by(
    "scaffold/template/pyproject.toml.tmpl",
    "cli/test_new.py::test_its_own_tests_pass_its_types_hold_and_it_breaks_no_rule",
)
IMAGE: Final = by(
    "scaffold/template/Dockerfile.tmpl",
    "cli/test_new.py::test_the_image_is_slim_non_root_and_has_a_health_check",
)
COMPOSE: Final = by(
    "scaffold/template/compose.yaml.tmpl", "cli/test_new.py::test_the_compose_file_brings_kafka_and_postgres"
)
POOLED: Final = by(
    "scaffold/template/src/__package__/tasks/database.py.tmpl",
    "cli/test_new.py::test_its_store_keeps_each_message_once_and_its_pool_is_closed",
)
POOL_SIZE: Final = by(
    "scaffold/template/src/__package__/tasks/config.py.tmpl",
    "cli/test_new.py::test_its_own_tests_pass_its_types_hold_and_it_breaks_no_rule",
)
HARNESS: Final = by("testing/harness/memory.py", "testing/test_harness.py::test_each_record_is_found_where_it_ended")
FIXTURES: Final = by(
    "testing/pytest_plugin.py",
    "testing/test_pytest_plugin.py::test_the_fixtures_start_a_broker_when_asked",
)
