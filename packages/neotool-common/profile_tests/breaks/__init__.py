"""Breaks of keepfast, a few for each evidence of a rule: importing this fills the table of `breaking`.

A break must not keep a module from being imported: it has to be noticed by what a test asserts.
"""

from __future__ import annotations

from profile_tests.breaking import BREAKS
from profile_tests.breaks import commits, errors, letters, loop, project, retries, runner, settings, telemetry

__all__ = [
    "BREAKS",
    "commits",
    "errors",
    "letters",
    "loop",
    "project",
    "retries",
    "runner",
    "settings",
    "telemetry",
]
