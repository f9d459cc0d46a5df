"""The commands, from click; and the exit codes."""

from __future__ import annotations

from collections.abc import Iterator

import click

from keepfast.cli import main
from keepfast.core.exit_codes import EXIT_CODES, NOT_RESTARTED
from tools.reference.markdown import MADE, code, fence, table

WIDTH = 100

INTRODUCTION = """# Commands

What `--help` says, command by command. Commands that print for people have `--json` for programs. Colours are
switched off by `NO_COLOR` and where there is no terminal. Errors are one sentence with what to do, on standard error;
`--debug` adds the traceback.

The brokers are those of `KAFKA_BROKERS` or of the other [settings](settings.md), of `--brokers`, or of the app that
`--app` names.
"""


def page() -> str:
    parts = [MADE + INTRODUCTION]
    for path, command in commands():
        text = command.get_help(context(path, command))
        parts.append(f"{'#' * min(3, len(path) + 1)} {' '.join(path)}\n\n{fence(text)}")
    parts.append(exit_codes())
    return "\n".join(parts)


def commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that is not hidden, groups before what is in them: `("keepfast", "dlq", "list")`."""
    yield ("keepfast",), main
    yield from _inside(main, ("keepfast",))


def _inside(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    within = context(path, group)
    for name in group.list_commands(within):
        command = group.get_command(within, name)
        if command is None or command.hidden:
            continue
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from _inside(command, (*path, name))


def context(path: tuple[str, ...], command: click.Command) -> click.Context:
    return click.Context(
        command,
        info_name=" ".join(path),
        max_content_width=WIDTH,
        terminal_width=WIDTH,
        help_option_names=["-h", "--help"],
    )


def exit_codes() -> str:
    rows = [
        (code(str(number)), says, "no" if number in NOT_RESTARTED else "yes") for number, says in EXIT_CODES.items()
    ]
    return (
        "## Exit codes\n\nOf `keepfast run`; the other commands use 0, 1, 2, 3 and 130 in the same sense. The last"
        " column is what `--processes` does,\nand what a restart policy of yours should: where it says no, starting"
        " again meets the same wall.\n\n" + table(("code", "says", "start again?"), rows)
    )
