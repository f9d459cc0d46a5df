"""Which code of holdfast keeps a rule, and which tests would fail if it did not: what several rules share."""

from __future__ import annotations

from typing import Final

from holdfast.audit.clause import by

_RULE_BY_RULE: Final = "scenarios/test_every_rule_of_the_standard_about_dead_letters_and_commits.py"
_EXACT: Final = (
    "scenarios/test_metrics_tell_the_exact_counts_of_a_run_with_known_failures.py"
    "::test_the_counts_names_and_labels_are_exact"
)

BREAKABLE: Final = "audit/test_every_rule_can_be_broken.py::test_an_app_that_breaks_it_fails"

CATEGORIES: Final = by(
    "core/rules/table.py",
    "classification/test_the_table_of_rules.py::test_every_category_of_the_standard_has_rules",
    "classification/test_python_errors.py::test_what_an_exception_means",
    BREAKABLE,
)
STATUSES: Final = by(
    "core/rules/http.py",
    "classification/test_http_clients.py::test_a_status_decides_whichever_client_brings_it",
    BREAKABLE,
)
DATABASES: Final = by("core/rules/databases.py", "classification/test_databases.py::test_a_deadlock", BREAKABLE)
KAFKA_ERRORS: Final = by(
    "core/rules/services.py", "classification/test_services.py::test_an_error_of_confluent_kafka", BREAKABLE
)
CLASSIFIED_FIRST: Final = by("runtime/cases.py", f"{_RULE_BY_RULE}::test_it_is_kept")
LOGGED: Final = by(
    "runtime/cases.py", "runtime/test_cases.py::test_the_log_says_what_the_standard_asks_for_at_its_levels"
)
LOG_LEVEL: Final = by(LOGGED.code, *LOGGED.tests, BREAKABLE)
COUNTED: Final = by("observe/catalogue.py", _EXACT)
EXPOSED: Final = by("web/serving.py", _EXACT, BREAKABLE)
METRIC_NAMES: Final = by(
    "observe/catalogue.py",
    "observe/test_metrics_as_text.py::test_every_name_that_the_documents_ask_for_is_in_the_catalogue",
)
VARIABLES: Final = by(
    "settings/catalogue.py",
    "settings/test_the_names_of_the_texts.py::test_a_name_of_the_texts_sets_its_setting",
    "runner/test_retry.py::test_the_defaults_are_those_of_the_standard",
)
FORMULA: Final = by(
    "core/policies.py", "core/test_policies.py::test_the_delay_is_the_formula_of_the_standard_with_jitter_after_the_cap"
)
CAPPED: Final = by(
    FORMULA.code, *FORMULA.tests, "audit/test_what_overrules_a_rule.py::test_it_is_overruled_by_a_decision"
)
CHOSEN: Final = by("settings/consumers.py", "audit/test_what_overrules_a_rule.py::test_it_is_overruled_by_a_decision")
RATE: Final = by(
    "core/pace.py",
    "scenarios/test_rate_limits_are_kept_and_used.py::test_a_minimum_delay_holds_for_retries_too",
    "runtime/test_cases.py::test_no_retry_waits_less_than_the_plan_says_at_that_moment",
)
ROUTED: Final = by("core/judge.py", f"{_RULE_BY_RULE}::test_it_is_kept")
ROUTED_UNLESS: Final = by(ROUTED.code, *ROUTED.tests, BREAKABLE)
RETRIED: Final = by(
    "core/judge.py", "core/test_judge.py::test_a_record_is_buried_when_its_retries_are_used_up_and_not_before"
)
RUNNER: Final = by(
    "runner/runner.py",
    "scenarios/test_a_runner_processes_retries_and_buries_with_every_kind_of_consumer.py::test_a_runner_processes_retries_and_buries",
)
HOOKS: Final = by(
    "runner/hooks.py",
    "runner/test_hooks.py::test_everything_that_is_wrong_with_the_hooks_is_said_before_anything_starts",
)
SHARED_RULES: Final = by("runner/retry.py", "runner/test_retry.py::test_errors_are_classified_as_the_pattern_does")
ENVELOPE: Final = by(
    "deadletter/envelope.py", "deadletter/test_json_letters.py::test_an_envelope_says_what_where_and_why"
)
NESTED: Final = by(
    "deadletter/nested.py", "deadletter/test_json_letters.py::test_the_nested_format_groups_the_same_facts"
)
SPRING_HEADERS: Final = by(
    "deadletter/spring.py",
    "deadletter/test_spring_headers.py::test_texts_are_utf_8_and_numbers_are_big_endian_of_4_and_8_bytes",
)
PUBLISHED_AGAIN: Final = by(
    "runtime/burying.py", "runtime/test_burying.py::test_without_a_spool_it_stays_red_and_is_tried_for_ever"
)
UNCOMMITTED: Final = by(
    "runtime/burying.py", f"{_RULE_BY_RULE}::test_4_1_nothing_is_committed_while_the_dead_letter_cannot_be_published"
)
LETTER_TOPIC_MADE: Final = by(
    "runtime/preflight.py", "cli/test_run_says_what_is_missing.py::test_a_dead_letter_topic_that_may_not_be_made"
)
LETTER_HEALTH: Final = by(
    "web/health.py",
    "scenarios/test_health_changes_when_something_is_wrong_and_not_otherwise.py"
    "::test_pauses_and_an_open_breaker_are_healthy_a_missing_dead_letter_topic_is_red",
)
LETTER_NAMES: Final = by(
    "core/names.py", "core/test_names.py::test_the_patterns_of_the_texts_can_be_written", BREAKABLE
)
FLOORS: Final = by(
    "core/policies.py",
    "core/test_policies.py::test_timings_below_the_floors_of_the_standard_are_refused_but_not_in_tests",
    BREAKABLE,
)
THIRD: Final = by("core/policies.py", "core/test_policies.py::test_a_heartbeat_of_a_third_of_the_session_is_fine")
NOT_EVICTED: Final = by(
    "runtime/loop.py",
    "scenarios/test_a_handler_slower_than_max_poll_interval_is_not_evicted.py::test_a_handler_slower_than_max_poll_interval_is_not_evicted",
    "settings/test_timings.py::test_a_poll_interval_below_the_retry_sum_only_warns",
)
SETTING: Final = by(
    "settings/catalogue.py",
    "settings/test_the_catalogue.py::test_the_defaults_of_the_list_are_those_of_the_policies",
    BREAKABLE,
)
MANUAL: Final = by(
    "kafka/config.py",
    "kafka/test_properties.py::test_offsets_are_never_moved_by_the_client",
    "settings/test_client_properties.py::test_properties_that_would_break_a_promise_are_refused_with_the_reason",
)
COMMITTED_AFTER: Final = by("core/ledger.py", f"{_RULE_BY_RULE}::test_4_1_nothing_is_committed_by_itself")
CONFIRMED: Final = by(
    "runtime/committer.py",
    f"{_RULE_BY_RULE}::test_4_1_commits_are_synchronous_and_come_at_once_after_success_and_after_a_dead_letter",
)
COMMITTED_EACH: Final = by("runtime/committer.py", f"{_RULE_BY_RULE}::test_4_2_commits_are_not_batched_across_records")
COMMITS_RETRIED: Final = by(
    "runtime/committer.py",
    "scenarios/test_commits_that_fail_for_a_while_are_made_up_for.py::test_nothing_starts_while_they_fail_and_everything_is_committed_after",
)
OWN_GROUP: Final = by(
    "settings/loading.py", "settings/test_every_problem_is_reported_at_once.py::test_two_consumers_cannot_share_a_group"
)
GROUP_NAMES: Final = by("core/names.py", "core/test_names.py::test_the_default_group_names_app_and_function", BREAKABLE)
SHOWN: Final = by("runtime/vitals.py", _EXACT)
KEY_ORDER: Final = by(
    "core/key_lanes.py",
    "scenarios/test_key_order_is_kept_with_64_workers.py::test_5_000_records_of_200_keys_keep_their_order",
)
PARTITION_ORDER: Final = by(
    "core/partition_lanes.py",
    "core/test_lanes.py::test_a_partition_has_one_run_out_at_a_time_in_offset_order",
    BREAKABLE,
)
COOPERATIVE: Final = by(
    "kafka/source.py", "conformance/test_a_source_shares.py::test_partitions_that_stay_are_never_revoked"
)
ONE_PLACE: Final = by(
    "settings/loading.py",
    "settings/test_sources_and_their_order.py::test_environment_wins_over_dotenv_over_file_over_code_over_defaults",
)
CHECKED_WHOLE: Final = by(
    "settings/loading.py",
    "settings/test_every_problem_is_reported_at_once.py::test_problems_of_all_sources_come_together_each_with_its_place",
)
PROJECT: Final = by(
    "scaffold/project.py",
    "cli/test_new.py::test_the_readme_names_the_group_the_configuration_and_the_other_layout",
    BREAKABLE,
)
IMAGE: Final = by(
    "scaffold/project.py",
    "cli/test_new.py::test_the_image_is_slim_runs_as_nobody_in_particular_and_is_looked_after",
    BREAKABLE,
)
PACKAGE: Final = by(
    "scaffold/project.py", "cli/test_new.py::test_its_own_tests_pass_its_types_hold_and_it_breaks_no_rule", BREAKABLE
)
REPLAYED: Final = by("desk/replay.py", "cli/test_dlq_replay.py::test_only_what_was_chosen_is_sent")
CAUSES: Final = by("desk/causes.py", "cli/test_dlq_list_and_show.py::test_causes_are_listed_the_most_frequent_first")
LETTERS_STAY: Final = by(
    "runtime/preflight.py",
    "scenarios/test_a_buried_record_keeps_its_bytes_in_the_letter.py::test_key_value_and_headers_are_exact",
)
SIDE_BY_SIDE: Final = by(
    "runtime/executors.py", "runtime/test_executors.py::test_coroutines_run_side_by_side_and_come_back_in_bundles"
)
TIMED_OUT: Final = by(
    "runtime/overdue.py",
    "scenarios/test_a_handler_that_hangs_is_timed_out_and_its_record_buried.py::test_a_thread_is_abandoned_and_everything_else_is_processed",
    BREAKABLE,
)
LAG: Final = by(
    "runtime/vitals.py",
    "scenarios/test_lag_grows_while_a_partition_is_not_fetched.py::test_the_ends_of_paused_partitions_are_asked_for",
)
STUCK: Final = by(
    "web/health.py",
    "runtime/test_what_a_loop_shows_and_obeys.py::test_a_partition_is_stuck_when_its_lag_grows_and_nothing_of_it_finishes",
)
HEALTH: Final = by("web/health.py", "web/test_health_is_judged_by_what_consumers_show.py::test_a_consumer", BREAKABLE)
HEALTH_SHOWS: Final = by("web/health.py", "web/test_health_is_judged_by_what_consumers_show.py::test_a_consumer")
NOT_LOST: Final = by(
    "core/ledger.py",
    "core/test_ledger.py::test_an_unfinished_record_holds_the_watermark_while_later_ones_finish",
    "simulator/test_the_engine_keeps_its_promises_in_simulation.py::test_no_promise_is_broken_in_any_seed",
)
DRAINED: Final = by(
    "runtime/draining.py",
    "scenarios/test_sigterm_mid_handler_finishes_it_and_commits.py::test_sigterm_mid_handler_finishes_it_and_commits",
)
CUT_SHORT: Final = by(
    "runtime/draining.py",
    "scenarios/test_sigterm_mid_wait_cuts_the_wait_short.py::test_sigterm_mid_wait_cuts_the_wait_short",
)
DEADLINE: Final = by(
    "runtime/lifecycle.py",
    "scenarios/test_a_handler_that_never_ends_does_not_hold_up_the_deadline.py::test_a_handler_that_never_ends_does_not_hold_up_the_deadline",
    BREAKABLE,
)
ENDS_IN_ORDER: Final = by(
    "runner/runner.py",
    "scenarios/test_a_runner_ends_as_it_is_told.py"
    "::test_sigterm_finishes_the_record_in_hand_commits_it_and_calls_the_hooks_of_the_end_in_order",
)
DECLARED: Final = by(
    "settings/consumers.py", "runtime/test_batch_handlers.py::test_batches_need_idempotency", BREAKABLE
)
DECODED: Final = by(
    "decode/annotation.py", "decode/test_decoding_by_annotation.py::test_an_annotation_chooses_its_decoder", BREAKABLE
)
GARBAGE: Final = by(
    "decode/failures.py",
    "scenarios/test_garbage_bytes_become_verdicts_not_crashes.py::test_every_kind_of_garbage_meets_its_verdict",
)
OWN_RULES: Final = by(
    "core/rules/book.py", "classification/test_rules_of_users.py::test_a_users_rule_goes_before_every_built_in_one"
)
POOLED: Final = by("scaffold/project.py", "cli/test_new.py::test_its_store_keeps_each_message_once_in_postgres")
SPOOLED: Final = by(
    "deadletter/spool/service.py",
    "scenarios/test_a_spool_takes_letters_that_kafka_does_not.py::test_the_lane_goes_on_and_the_letters_arrive_later",
)
BREAKER: Final = by(
    "core/breaker.py",
    "scenarios/test_an_outage_of_a_downstream_with_a_breaker_costs_no_letter.py::test_with_a_breaker_all_is_processed_afterwards",
)
BATCHED: Final = by(
    "runtime/batches.py",
    "scenarios/test_a_batch_of_500_with_3_bad_records_does_497_once_and_buries_3.py::test_with_one_transaction_a_call_the_bad_ones_are_found_by_halves",
)
BOUNDED: Final = by(
    "core/partitions.py",
    "scenarios/test_a_backlog_of_100_000_records_keeps_memory_flat.py::test_memory_stays_within_what_the_buffers_allow",
)
FRAUD_TABLE: Final = by(
    "core/rules/table.py", "scenarios/test_every_row_of_the_fraud_services_error_table.py::test_what_becomes_of_it"
)
SUNK: Final = by(
    "core/sensitive.py",
    "scenarios/test_every_row_of_the_fraud_services_error_table.py::test_a_card_number_is_in_no_letter_and_in_no_line_of_the_log",
)
PROFILES: Final = by("settings/catalogue.py", "settings/test_retry_profiles.py::test_the_profiles_that_are_built_in")
FAN_OUT: Final = by(
    "app/assembly.py",
    "scenarios/test_two_consumers_of_one_app_run_side_by_side.py::test_two_consumers_of_one_app_run_side_by_side",
)
BYTES_KEPT: Final = by(
    "deadletter/publisher.py",
    "deadletter/test_every_format_keeps_the_original_bytes.py::test_everything_written_is_read_back",
)
MOVED: Final = by(
    "runtime/moving.py",
    "scenarios/test_retry_topics_end_in_the_dead_letter_topic.py::test_the_letter_is_about_the_original_record",
)
SHIM: Final = by("runner/runner.py", "runner/test_the_import_shim.py::test_the_paths_of_the_pattern_lead_to_our_runner")
COMPOSE: Final = by("scaffold/project.py", "cli/test_new.py::test_the_compose_file_brings_kafka_and_postgres")
ALERTS: Final = by(
    "monitoring/alerts.py",
    "monitoring/test_rules_and_dashboard.py::test_there_are_the_seven_alerts_and_those_of_lag_and_letters",
    "monitoring/test_each_alert_fires_when_it_should.py::test_exactly_these_alerts_fire",
)
LAG_LIMITS: Final = by(
    "monitoring/alerts.py",
    "monitoring/test_rules_and_dashboard.py::test_how_much_lag_is_too_much_depends_on_the_kind_of_topic",
)
