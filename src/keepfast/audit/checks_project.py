"""Checks of the files of an app's project: README, tests, .dockerignore."""

from __future__ import annotations

import re

from keepfast.audit.rule import Finding, failed, not_applicable, passed, per_app
from keepfast.audit.subject import Subject

NO_FOLDER = "The files of the app's project were not found; name its folder with --project."
_CONFIGURATION = re.compile(r"KAFKA_BROKERS|KEEPFAST_|keepfast\.toml|(?im:^#+ .*(?:configur|settings))")


@per_app
def groups_are_documented(subject: Subject) -> Finding:
    if subject.folder is None:
        return not_applicable(NO_FOLDER)
    readme, env = subject.readme or "", subject.settings.app.env
    groups = [one.own.group for one in subject.consumers]
    missing = [name for name in groups if name not in readme and name.replace(f".{env}", ".{env}") not in readme]
    if not missing:
        return passed("README names every group.")
    absent = "README does not name" if subject.readme is not None else "There is no README that names"
    return failed(f"{absent} {', '.join(missing)}.", "Name each consumer group in the project's README.")


@per_app
def configuration_is_documented(subject: Subject) -> Finding:
    if subject.folder is None:
        return not_applicable(NO_FOLDER)
    if _CONFIGURATION.search(subject.readme or ""):
        return passed("README documents the configuration.")
    absent = "README does not document" if subject.readme is not None else "There is no README that documents"
    return failed(f"{absent} the configuration.", "Add a table of the relevant variables.")


@per_app
def has_tests(subject: Subject) -> Finding:
    if subject.folder is None:
        return not_applicable(NO_FOLDER)
    if subject.has("tests/**/test_*.py") or subject.has("test_*.py"):
        return passed("There are tests.")
    return failed("There are no tests.", "Write some with keepfast.testing.harness; `keepfast new` shows how.")


@per_app
def dockerignore(subject: Subject) -> Finding:
    if subject.dockerfile is None:
        return not_applicable("There is no Dockerfile." if subject.folder is not None else NO_FOLDER)
    if subject.has(".dockerignore"):
        return passed("There is a .dockerignore.")
    return failed(
        "There is no .dockerignore: .git, and perhaps .env, are sent to the build.",
        "Use the one from `keepfast new`.",
    )
