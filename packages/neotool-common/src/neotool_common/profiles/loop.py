"""The loop article: a fetch loop that skips a failed record loses it. The numbers are ours, in its order."""

from __future__ import annotations

from typing import Final

from keepfast.audit import checks_errors, checks_groups, checks_settings
from keepfast.audit.profile import Profile
from keepfast.audit.rule import must, should
from neotool_common.profiles import checks_errors as errors
from neotool_common.profiles import checks_groups as groups
from neotool_common.profiles.hooks import REPLACED

LOOP: Final = Profile(
    "loop",
    "the loop article",
    (
        must("loop:1", "The commit of a later record does not skip a failed one."),
        must("loop:2", "A failed record is retried without a restart."),
        must("loop:3", "A record is committed only after it succeeded."),
        should("loop:4", "Processing is idempotent: a record may be delivered twice.", checks_groups.idempotent),
        should("loop:5", "A record can be retried until it succeeds."),
        should("loop:6", "There is a delay before every retry: 3 s for unlimited retries."),
        should("loop:7", "A retry is logged with topic, partition and offset.", checks_settings.logged_at("WARNING")),
        should("loop:8", "Which errors are retried can be configured."),
        should(
            "loop:9",
            "A lost connection to a database is retried.",
            checks_errors.retried("sqlstate:08006", "sqlstate:57P01"),
        ),
        should("loop:10", "Undecodable records are not retried, but logged or stored.", errors.decode_errors),
        should("loop:11", "The loop is implemented once, with the function and its reader as parameters."),
        should("loop:12", "Other records need not wait for a failing one: retry topics with growing delays."),
        must("loop:13", "Shutdown closes the reader and loses nothing."),
        must("loop:14", "A failed fetch is logged, and fetching continues."),
        should("loop:15", "The record after a failed one waits for it.", groups.sequential),
        should("loop:16", "Several loops run in one process, each with its own reader and function."),
    ),
    replaced=REPLACED,
)
