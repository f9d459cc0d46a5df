"""What the second reading of the documents found: rules that were called kept and were not. Each has its tests
now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_ENVELOPE: Final = "deadletters/test_envelope.py"
_DECODED: Final = "decode/test_failures.py"
_EXACT: Final = (
    "scenarios/test_metrics_have_the_exact_counts_of_a_run_with_known_failures.py"
    "::test_the_counts_names_and_labels_are_exact"
)
_CARDS: Final = "redact/test_sensitive.py"
_MEMBERS: Final = "kafka/test_source_membership.py"
_REPLAYED: Final = "scenarios/test_letters_of_every_version_of_spring_are_replayed_byte_for_byte.py"
_SPRING: Final = "deadletters/test_spring_letters.py"

_DATABASE: Final = "scenarios/test_a_database_that_is_unavailable_costs_no_letter.py"
_STATEMENTS: Final = "scenarios/test_every_record_that_fails_has_its_statement_in_the_log.py"
_SERVED: Final = "scenarios/test_a_runner_has_health_and_metrics_unless_the_user_serves_them.py"
_HOOKS: Final = "runner/test_hooks.py"
_PUBLISHING: Final = "runner/test_publishing.py"
_EVENT_LOG: Final = "telemetry/test_event_log.py"
_ALERTS: Final = "monitoring/test_rules_and_dashboard.py::test_every_alert_leads_to_lines_of_the_log_that_exist"
_BROKEN: Final = "profiles/test_every_rule_can_be_violated.py"
_EXAMPLES: Final = "examples/test_every_service_runs.py"
_STORY: Final = f"{_EXAMPLES}::test_nothing_is_lost_and_everything_is_where_it_belongs"
_INSTITUTION: Final = "examples/institution_enhancement/tests/test_institution_enhancement.py"
_KINDS: Final = (
    "scenarios/test_a_runner_processes_retries_and_dead_letters_with_every_kind_of_consumer.py"
    "::test_a_runner_processes_retries_and_dead_letters"
)

FAILED_BEFORE: Final[Mapping[str, tuple[str, ...]]] = {
    "fraud:errors.2": (
        f"{_DATABASE}::test_records_wait_and_are_stored_when_it_is_back",
        "classify/test_rules_databases.py::test_a_password_that_was_rotated",
        "classify/test_rules_databases.py::test_a_pool_that_is_used_up",
        "examples/card_fraud/test_card_fraud.py::test_the_server_cancels_a_statement_that_takes_too_long",
    ),
    "standard:2.2": (
        f"{_ENVELOPE}::test_json_is_readable_however_it_is_written_and_its_bytes_are_beside_it",
        f"{_DECODED}::test_the_type_that_is_reported_is_the_librarys",
        f"{_ENVELOPE}::test_an_envelope_says_what_where_and_why",
    ),
    "fraud:envelope": (
        f"{_ENVELOPE}::test_json_is_readable_however_it_is_written_and_its_bytes_are_beside_it",
        f"{_DECODED}::test_missing_fields_are_different_causes_and_are_named_where_messages_are_masked",
    ),
    "fraud:monitoring.3": (_EXACT,),
    "spring:poison.1": (_EXACT,),
    "pattern:runner.1": (
        f"{_HOOKS}::test_the_exceptions_of_the_pattern_say_whether_to_retry",
        f"{_SERVED}::test_a_runner_with_a_health_server_of_the_users_leaves_the_port_to_it_and_has_one_for_metrics",
        "runner/test_clients.py::test_another_version_of_kafka_python_is_refused_in_one_sentence",
    ),
    "pattern:runner.2": ("runner/test_runner_import_shim.py::test_pip_installs_it_from_a_checkout",),
    "pattern:runner.3": (
        f"{_PUBLISHING}::test_everything_but_false_means_published",
        f"{_PUBLISHING}::test_a_future_that_fails_means_not_published",
    ),
    "pattern:runner.4": (
        f"{_HOOKS}::test_statements_about_records_go_to_the_users_logger_with_their_fields_and_context",
    ),
    "standard:1.2.3.2": (
        f"{_HOOKS}::test_the_least_delay_is_asked_for_on_the_worker_after_each_call_of_process_message",
        _KINDS,
    ),
    "pattern:config.5": ("runner/test_retry.py::test_what_is_not_given_is_read_as_the_settings_of_an_app_are",),
    "standard:6.2.1": (f"{_STATEMENTS}::test_each_dead_letter_has_its_line_and_counts_of_retries_add_up",),
    "pattern:python.7": (f"{_EVENT_LOG}::test_a_line_about_a_record_says_what_was_raised_where_and_how_long_it_took",),
    "pattern:alerts.6": (
        _ALERTS,
        "monitoring/test_alerts.py::test_exactly_these_alerts_fire",
    ),
    "pattern:alerts.7": (
        "engine/test_lifecycle_missed_deadlines.py::test_what_one_process_notes_the_next_one_takes_once",
    ),
    "standard:1.2.1.3": (
        "settings/test_retry_profiles.py::test_a_longest_delay_alone_lowers_the_first_one_with_a_warning",
    ),
    "pattern:health.1": ("http/test_server.py::test_a_port_in_use_is_an_error_if_serving_was_configured",),
    "spring:retry.2": (f"{_BROKEN}::test_an_app_that_breaks_it_fails",),
    "pattern:docker.10": (f"{_BROKEN}::test_the_port_is_that_which_takes_effect",),
    "pattern:high.1": (
        "deadletters/spool/test_query.py::test_letters_are_found_by_what_they_say",
        "deadletters/spool/test_query.py::test_the_table_is_queried_by_columns",
        "cli/test_spool.py::test_filters_choose_what_is_listed_and_drained",
    ),
    "fraud:errors.3": (
        f"{_CARDS}::test_the_forms_that_payment_companies_know_are_found_and_masked",
        f"{_CARDS}::test_headers_of_tracing_are_not_scanned",
        f"{_CARDS}::test_a_number_of_its_own_does_not_inherit_the_sign_of_its_parent",
        f"{_CARDS}::test_an_id_that_grows_with_the_time_is_no_card",
        f"{_CARDS}::test_a_word_for_a_card_is_a_sign_however_it_is_assigned",
    ),
    "spring:dlt.2": (
        f"{_SPRING}::test_a_letter_of_spring_is_read_and_its_record_is_replayed_byte_for_byte",
        f"{_REPLAYED}::test_every_record_comes_back_as_it_was_and_nothing_of_spring_with_it",
        "deadletters/test_publisher.py::test_the_cause_of_an_error_that_has_none_is_the_error_itself",
    ),
    "spring:reprocessing.3": (f"{_SPRING}::test_a_letter_of_spring_is_read_and_its_record_is_replayed_byte_for_byte",),
    "spring:rebalance": (
        f"{_MEMBERS}::test_a_group_whose_members_have_another_assignor_names_the_setting_that_joins_it",
    ),
    "pattern:runbook.1": (
        "profiles/test_what_overrules_a_rule.py::test_what_only_our_repository_has_is_not_checkable",
        "profiles/test_what_overrules_a_rule.py::test_the_summary_names_the_decisions_that_overrule_and_counts_what_was_tried",
        "profiles/test_a_runner_is_checked_too.py::test_what_a_runner_leaves_out_is_found",
        "cli/test_check.py::test_people_get_what_is_broken_and_what_to_do_and_ci_gets_a_code",
        "cli/test_explain.py::test_for_people_it_says_what_happens_next_and_why",
    ),
    "pattern:practice.7": ("runner/test_retry.py::test_errors_are_classified_as_the_pattern_does",),
    "pattern:package.4": ("runner/test_runner_import_shim.py::test_the_paths_of_the_pattern_lead_to_our_runner",),
    "pattern:components.1": (
        "profiles/test_the_examples_keep_the_rules.py::test_the_runner_on_kafka_python_breaks_no_must_rule",
    ),
    "pattern:components.7": ("cli/test_new.py::test_its_store_keeps_each_message_once_and_its_pool_is_closed",),
    "pattern:python.9": (f"{_PUBLISHING}::test_it_gets_what_the_consumers_own_deserialiser_raised",),
    "spring:groups.1": (_STORY,),
    "fraud:consequences.3": (_STORY,),
    "standard:1.4.1": (
        _STORY,
        "examples/swapi_people/test_swapi_people.py::test_the_runner_ends_each_record_as_the_batches_do",
    ),
    "pattern:python.1": (
        f"{_EXAMPLES}::test_the_pool_is_closed_when_the_lifespan_ends",
        "examples/card_fraud/test_card_fraud.py::test_the_pool_is_closed_when_the_lifespan_ends",
        "examples/swapi_people/test_swapi_people.py::test_the_pool_of_the_runner_is_closed_however_it_ends",
    ),
    "pattern:package.1": (
        f"{_INSTITUTION}::test_it_is_the_package_that_the_pattern_draws_and_wired_word_for_word",
        _STORY,
    ),
    "pattern:config.7": (f"{_INSTITUTION}::test_the_variables_of_the_pattern_configure_it",),
}

TAKEN_BACK: Final[Mapping[str, str]] = {
    "fraud:errors.2": (
        "28P01 as an outage; PoolError of psycopg2 as one; TimeoutError as one; the example's time limit of statements"
    ),
    "fraud:errors.3": (
        "the expiry date behind the second track; `x-datadog-*` among the headers of tracing; `phone`, `ean` and"
        " `ticks` among the numbers of their own; ids of 18 digits; `primaryAccountNumber` as a sign"
    ),
    "standard:2.2": "`original_bytes`; the library's type in `error_type`; the `Z` at the end of `failed_at`",
    "fraud:envelope": "`original_bytes`; the name of a field outside of quotes",
    "fraud:monitoring.3": "codes of their own for missing fields and unknown values of enums",
    "spring:poison.1": "codes of their own for missing fields and unknown values of enums",
    "pattern:runner.1": (
        "the rule for NonRetryableException; the port for metrics beside a health server of the user's; the look at"
        " the version of kafka-python"
    ),
    "pattern:runner.2": "the dependency on keepfast of the checkout",
    "pattern:runner.3": "that only `False` means not published; awaiting a future",
    "pattern:runner.4": "the user's logger",
    "standard:1.2.3.2": "counting the calls; the wait before first attempts",
    "pattern:config.5": "reading `.env` and keepfast.toml for `RetryConfig()`",
    "standard:6.2.1": "lines about dead letters left out of the throttling",
    "pattern:python.7": "the time that an attempt took",
    "pattern:alerts.6": "the alert about spooled letters",
    "pattern:alerts.7": "the note of a process that misses its deadline",
    "standard:1.2.1.3": "lowering the first delay",
    "pattern:health.1": "that a port which was configured must be free",
    "spring:retry.2": "comparing the values that take effect",
    "pattern:docker.10": "the port that takes effect",
    "pattern:high.1": "the condition on groups; the column of the group; `--error-type` of the command",
    "spring:dlt.2": "the first origin of a letter of a letter; an error without a cause named as its own cause",
    "spring:reprocessing.3": "leaving out `retry_topic-*`; the first origin of a letter of a letter",
    "spring:rebalance": "the sentence that names the setting",
    "pattern:runbook.1": (
        "the decisions in the summary, and the count of what was tried; unvalidated values of a runner's hook; the page"
        " of rules in `check` and `explain`"
    ),
    "pattern:practice.7": "what is not an exception is retried",
    "pattern:package.4": "the exceptions in `neotool_common.error_classification`",
    "pattern:components.1": "`enable_auto_commit=False` in the example's consumer",
    "pattern:components.7": "closing the pool at the end of the lifespan",
    "pattern:python.9": "asking the consumer's own deserialiser for its error",
    "spring:groups.1": "the timeout worker of deals_escrow",
    "fraud:consequences.3": "`newer=` in the upserts of institution_enhancement and swapi_people",
    "standard:1.4.1": "`message_factory` of the runner of swapi_people",
    "pattern:python.1": "closing the pools of the examples",
    "pattern:package.1": "one hook of the runner; the logger that is given to it",
    "pattern:config.7": "the default of POSTGRES_POOL_MIN",
}
"""What was taken out of today's code, and tests of the row failed."""
