"""As `evidence`: what is seen from outside, the runner, the files of a project, and what helps with tests."""

from __future__ import annotations

from typing import Final

from keepfast.audit.clause import by

_EXACT: Final = (
    "scenarios/test_metrics_tell_the_exact_counts_of_a_run_with_known_failures.py"
    "::test_the_counts_names_and_labels_are_exact"
)
_SHOWS: Final = "engine/test_what_a_loop_shows_and_obeys.py"
_HEALTH: Final = "http/test_health_is_judged_by_what_consumers_show.py"
_RULES: Final = "monitoring/test_rules_and_dashboard.py"

# -- logs, metrics, health, alerts

LOGGED: Final = by(
    "engine/failures.py", "engine/test_cases.py::test_the_log_says_what_the_standard_asks_for_at_its_levels"
)
STRUCTURED: Final = by(
    "telemetry/logs.py", "telemetry/test_logs.py::test_a_json_line_has_time_level_logger_event_and_fields"
)
COUNTED: Final = by(
    "engine/status.py", "engine/test_cases.py::test_failures_are_counted_by_type_classification_and_code", _EXACT
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
    "scaffold/test_how_a_new_project_is_deployed.py::test_each_probe_asks_its_own_question",
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
    "monitoring/test_each_alert_fires_when_it_should.py::test_exactly_these_alerts_fire",
)
LETTER_ALERTS: Final = by("core/alerts.py", f"{_RULES}::test_there_are_the_seven_alerts_and_those_of_lag_and_letters")
LAG_LIMITS: Final = by("core/alerts.py", f"{_RULES}::test_how_much_lag_is_too_much_depends_on_the_kind_of_topic")
RUNBOOK: Final = by("monitoring/alerts.py", f"{_RULES}::test_every_alert_links_to_a_section_of_the_runbook")

# -- the runner

RUNNER: Final = by(
    "runner/assembly.py",
    "scenarios/test_a_runner_processes_retries_and_buries_with_every_kind_of_consumer.py::test_a_runner_processes_retries_and_buries",
)
HOOKS: Final = by(
    "runner/checking.py",
    "runner/test_hooks.py::test_everything_that_is_wrong_with_the_hooks_is_said_before_anything_starts",
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
    "scenarios/test_a_runner_ends_as_it_is_told.py"
    "::test_sigterm_finishes_the_record_in_hand_commits_it_and_calls_the_hooks_of_the_end_in_order",
)
SHIM: Final = by(
    "runner/__init__.py", "runner/test_the_import_shim.py::test_the_paths_of_the_pattern_lead_to_our_runner"
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
    "cli/test_new.py::test_the_image_is_slim_runs_as_nobody_in_particular_and_is_looked_after",
)
COMPOSE: Final = by(
    "scaffold/template/compose.yaml.tmpl", "cli/test_new.py::test_the_compose_file_brings_kafka_and_postgres"
)
POOLED: Final = by(
    "scaffold/template/src/__package__/tasks/database.py.tmpl",
    "cli/test_new.py::test_its_store_keeps_each_message_once_in_postgres",
)
POOL_SIZE: Final = by(
    "scaffold/template/src/__package__/tasks/config.py.tmpl",
    "cli/test_new.py::test_its_own_tests_pass_its_types_hold_and_it_breaks_no_rule",
)
HARNESS: Final = by("testing/harness/memory.py", "testing/test_harness.py::test_each_record_is_found_where_it_ended")
FIXTURES: Final = by(
    "testing/pytest_plugin.py",
    "testing/test_the_broker_fixtures_serve_other_projects.py::test_the_fixtures_start_a_broker_when_asked",
)
