"""Maps exceptions to error messages and exit codes."""

from __future__ import annotations

import select
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from keepfast.core.errors import ConfigError, Fenced, Halt, KeepfastError, StartError
from keepfast.core.exit_codes import EXIT_FENCED, EXIT_HALTED, EXIT_NOT_STARTED, EXIT_UNEXPECTED, EXIT_USAGE
from keepfast.telemetry.clean import clean_error, clean_text

_MAX_LINE = 2000


class LoadError(KeepfastError):
    """The app cannot be loaded: there is no such module or attribute, or its code fails on import."""


@contextmanager
def report_errors(*, debug: bool) -> Iterator[None]:
    """Exit on an exception from within, with its message on standard error; with `debug`, after its traceback."""
    try:
        yield
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise  # click reports these itself
    except Exception as error:  # the edge of the program: every error becomes a message
        if isinstance(error, BrokenPipeError) and _reader_is_gone():
            raise  # as in `keepfast dlq causes | head`; click exits without a message
        if debug:
            click.echo("\n".join(clean_text(line, _MAX_LINE) for line in traceback.format_exc().splitlines()), err=True)
        click.echo(f"{click.style('Error:', fg='red', bold=True)} {error_message(error)}", err=True)
        sys.exit(exit_code_of(error))


def _reader_is_gone() -> bool:
    """Whether standard output is a pipe whose reader is gone."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return False
    watch = select.poll()
    watch.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in watch.poll(0))


def exit_code_of(error: Exception) -> int:
    """The exit code for this error."""
    match error:
        case ConfigError() | LoadError():
            return EXIT_USAGE
        case StartError():
            return EXIT_NOT_STARTED
        case Halt():
            return EXIT_HALTED
        case Fenced():
            return EXIT_FENCED
        case _:
            return EXIT_UNEXPECTED


def error_message(error: Exception) -> str:
    """What happened and what to do, free of control characters from embedded values."""
    match error:
        case ConfigError(problems=[_, _, *_] as problems):
            numbered = [f"  {number}. {_clean(problem)}" for number, problem in enumerate(problems, 1)]
            return "\n".join([f"{len(numbered)} problems; nothing was started:", *numbered])
        case KeepfastError():
            return _clean(str(error)) or type(error).__name__
        case _:
            at = location_of(error)
            where = f" ({at})" if at else ""
            return f"Unexpected {clean_error(error)}{where}. Run again with --debug for the traceback."


def location_of(error: BaseException, *, within: Path | None = None) -> str:
    """`file:line` of the innermost frame in user code, else in any code; files below `within` are relative to it.

    Empty if the error has no traceback.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_relative(error.filename, within)}:{error.lineno}"
    frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    if not frames:
        return ""
    filename, line = next((frame for frame in reversed(frames) if _is_user_code(frame[0])), frames[-1])
    return f"{_relative(filename, within)}:{line}"


def _is_user_code(filename: str) -> bool:
    """Whether the file belongs neither to the interpreter, nor to an installed package, nor to keepfast."""
    path = Path(filename)
    ours = Path(__file__).resolve().parents[1]
    if filename.startswith("<") or "site-packages" in path.parts or path.is_relative_to(ours):
        return False
    return not any(path.is_relative_to(root) for root in {Path(traceback.__file__).parent})


def _relative(filename: str, within: Path | None) -> str:
    path = Path(filename)
    return str(path.relative_to(within)) if within is not None and path.is_relative_to(within) else filename


def _clean(text: str) -> str:
    return "\n".join(clean_text(line, _MAX_LINE) for line in text.splitlines())
