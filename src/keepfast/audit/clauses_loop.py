"""The loop article: a fetch loop that skips a failed record loses it. Numbered by us, in its order."""

from __future__ import annotations

from typing import Final

from keepfast.audit import checks_errors as errors
from keepfast.audit import checks_groups as groups
from keepfast.audit import checks_settings as settings
from keepfast.audit.checks_errors import retried
from keepfast.audit.clause import Clause, must, should

LOOP: Final[tuple[Clause, ...]] = (
    must("loop:1", "A failed record is not passed by the commit of a later one."),
    must("loop:2", "A failed record does not need a restart to be tried again."),
    must("loop:3", "A record is committed after it succeeded, and only then."),
    should("loop:4", "Processing is idempotent: a record may come twice.", groups.idempotent),
    should("loop:5", "A record can be tried until it succeeds, whoever mends what is broken."),
    should("loop:6", "Before every retry there is a delay: 3 s where it is tried for ever."),
    should("loop:7", "A retry is logged with topic, partition and offset.", settings.logged_at("WARNING")),
    should("loop:8", "It can be chosen which errors are retried."),
    should(
        "loop:9",
        "A lost connection to a database is retried.",
        retried("sqlstate:08006", "sqlstate:57P01"),
    ),
    should("loop:10", "What cannot be decoded is not retried, but logged or kept.", errors.decode_errors),
    should("loop:11", "The loop is written once, and takes the function and its reader."),
    should("loop:12", "Other records need not wait for one that fails: retry topics with growing delays."),
    must("loop:13", "The end closes the reader and loses nothing."),
    must("loop:14", "A fetch that fails is logged, and one goes on fetching."),
    should("loop:15", "The next record of a failed one waits for it.", groups.sequential),
    should("loop:16", "Several loops run in one process, each with its own reader and function."),
)
