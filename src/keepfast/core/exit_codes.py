"""How a process of ours ends: the exit codes, and what each means to the process that started it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXIT_OK: Final = 0
EXIT_UNEXPECTED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOT_STARTED: Final = 3
EXIT_HALTED: Final = 4
EXIT_DEADLINE: Final = 5
EXIT_FENCED: Final = 6
EXIT_SIGINT: Final = 130
EXIT_SIGTERM: Final = 143

EXIT_CODES: Final[Mapping[int, str]] = {
    EXIT_OK: "A clean end: what was finished is committed, and the group was left.",
    EXIT_UNEXPECTED: "Something unexpected failed; a command did not get through its list, or found a broken rule.",
    EXIT_USAGE: "The command line or the configuration is wrong. Nothing was started; every problem is listed.",
    EXIT_NOT_STARTED: "The broker, a topic or a right was missing at the start, for 30 s (`--wait`: forever).",
    EXIT_HALTED: (
        "A handler or a rule halted the app; its record stays unfinished and comes again after the restart. Or a task"
        " that a handler started raised SystemExit: then only what the drain did not finish comes again."
    ),
    EXIT_DEADLINE: "The drain deadline passed. What was not finished or not committed comes again.",
    EXIT_FENCED: "Another process took this static member's identity. Two must not run under one name.",
    EXIT_SIGINT: "A second Ctrl-C (SIGINT) ended it at once; or a command was interrupted, and says how to continue.",
    EXIT_SIGTERM: "A second SIGTERM ended it at once.",
}
"""Code → what it says."""

NOT_RESTARTED: Final = frozenset({EXIT_USAGE, EXIT_NOT_STARTED, EXIT_HALTED, EXIT_FENCED})
"""A restart would meet the same wall (2, 3), or was forbidden by a verdict (4) or by another member (6)."""
