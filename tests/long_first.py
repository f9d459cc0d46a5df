"""Files that take long, longest first: they are begun first, so that nobody waits for a last one at the end.

A file that is not listed comes after these, in the order of names. Look again (`pytest --durations=50`) when much has
changed.
"""

from __future__ import annotations

from typing import Final

LONG_FIRST: Final = (
    # Most of their time they wait: for a minute of churn, for brokers that are away, for sessions that end.
    "scenarios/test_members_that_join_and_leave_every_2_s_lose_nothing.py",
    "simulator/test_the_engine_keeps_its_promises_in_simulation.py",
    "conformance/test_a_source_shares.py",
    "scenarios/test_keys_that_wait_cost_memory_and_no_threads.py",
    "scenarios/test_a_record_that_kills_its_process_is_buried_and_nobody_else_is.py",
    "scenarios/test_a_broker_away_for_20_s_while_burying_loses_no_letter.py",
    "cli/test_run_says_what_is_missing.py",
    "cli/test_demo.py",
    "cli/test_dlq_replay.py",
    "cli/test_new.py",
    "cli/test_what_a_newcomer_gets_wrong.py",
    "cli/test_doctor.py",
    "cli/test_dev.py",
    "scenarios/test_health_changes_when_something_is_wrong_and_not_otherwise.py",
    "scenarios/test_a_frozen_broker_for_20_s_under_load_stalls_and_goes_on.py",
    "scenarios/test_several_processes_are_seen_as_one_app.py",
    "scenarios/test_sigterm_while_the_broker_is_frozen_is_over_by_the_deadline.py",
    "simulator/test_the_oracle_catches_planted_bugs.py",
    "testing/test_a_kafka_broker_lives_and_dies.py",
    "cli/test_dlq_list_and_show.py",
    "conformance/test_a_source_reads.py",
    "scenarios/test_a_revoke_during_work_waits_for_the_record_in_hand.py",
    "scenarios/test_a_broker_that_restarts_under_load_loses_nothing.py",
    "scenarios/test_kill_9_while_spooling_loses_no_letter.py",
    "scenarios/test_a_member_killed_with_kill_9_mid_work_loses_nothing.py",
    "deadletter/test_fuzzed_letters_wedge_nothing.py",
    "cli/test_a_killed_child_gets_its_partitions_back_at_once.py",
    "scenarios/test_a_backlog_of_100_000_records_keeps_memory_flat.py",
    "scenarios/test_commits_that_fail_for_a_while_are_made_up_for.py",
    "simulator/test_a_seed_gives_the_same_trace_everywhere.py",
    "scenarios/test_a_fast_handler_that_suddenly_hangs_does_not_stop_the_loop.py",
    "scenarios/test_a_handler_that_hangs_is_timed_out_and_its_record_buried.py",
    "scenarios/test_runners_on_clients_of_the_user_hand_over_without_loss.py",
    "scenarios/test_a_runner_processes_retries_and_buries_with_every_kind_of_consumer.py",
    "scenarios/test_a_record_in_a_retry_topic_comes_back_when_it_is_due.py",
    "scenarios/test_a_spool_takes_letters_that_kafka_does_not.py",
    "scenarios/test_a_run_full_of_secrets_shows_none_of_them.py",
    "scenarios/test_a_full_spool_disk_stops_the_lane_and_nothing_else.py",
    "testing/simulator/test_the_world_is_deterministic_and_keeps_kafkas_rules.py",
    "cli/test_send.py",
    "kafka/test_source.py",
    "supervisor/test_a_dead_child_is_started_again.py",
)
