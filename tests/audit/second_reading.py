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

FAILED_BEFORE: Final[Mapping[str, tuple[str, ...]]] = {
    "standard:2.2": (
        f"{_ENVELOPE}::test_json_is_readable_however_it_is_written_and_its_bytes_are_beside_it",
        f"{_DECODED}::test_the_type_that_is_reported_is_the_librarys",
    ),
    "fraud:envelope": (
        f"{_ENVELOPE}::test_json_is_readable_however_it_is_written_and_its_bytes_are_beside_it",
        f"{_DECODED}::test_missing_fields_are_different_causes_and_are_named_where_messages_are_masked",
    ),
    "fraud:monitoring.3": (_EXACT,),
    "spring:poison.1": (_EXACT,),
    "pattern:high.1": (
        "deadletters/spool/test_query.py::test_letters_are_found_by_what_they_say",
        "deadletters/spool/test_query.py::test_the_table_is_queried_by_columns",
        "cli/test_spool.py::test_filters_choose_what_is_listed_and_drained",
    ),
    "fraud:errors.3": (
        f"{_CARDS}::test_the_forms_that_payment_companies_know_are_found_and_masked",
        f"{_CARDS}::test_headers_of_tracing_are_not_scanned",
        f"{_CARDS}::test_a_number_of_its_own_does_not_inherit_the_sign_of_its_parent",
    ),
    "spring:dlt.2": (
        f"{_SPRING}::test_a_letter_of_spring_is_read_and_its_record_is_replayed_byte_for_byte",
        f"{_REPLAYED}::test_every_record_comes_back_as_it_was_and_nothing_of_spring_with_it",
    ),
    "spring:reprocessing.3": (f"{_SPRING}::test_a_letter_of_spring_is_read_and_its_record_is_replayed_byte_for_byte",),
    "spring:rebalance": (
        f"{_MEMBERS}::test_a_group_whose_members_have_another_assignor_names_the_setting_that_joins_it",
    ),
    "pattern:runbook.1": ("audit/test_what_overrules_a_rule.py::test_what_only_our_repository_has_is_not_checkable",),
}
