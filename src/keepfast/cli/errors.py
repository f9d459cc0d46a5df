"""How an exception becomes a sentence and an exit code."""

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
    """The app that was named cannot be had: no such module or attribute, or its code fails when it is imported."""


@contextmanager
def said_plainly(*, debug: bool) -> Iterator[None]:
    """An exception from within ends the process, with its sentence on standard error; in debug after its traceback."""
    try:
        yield
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise  # click says these itself
    except Exception as error:  # the edge of the program: every error becomes a sentence
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            raise  # as in `keepfast dlq list | head`; click ends the process without words
        if debug:
            click.echo("\n".join(clean_text(line, _MAX_LINE) for line in traceback.format_exc().splitlines()), err=True)
        click.echo(f"{click.style('Error:', fg='red', bold=True)} {sentence(error)}", err=True)
        sys.exit(code_of(error))


def _nobody_reads() -> bool:
    """Whether standard output is a pipe whose reader is gone."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return False
    watch = select.poll()
    watch.register(descriptor, 0)
    return any(event & select.POLLERR for _, event in watch.poll(0))


def code_of(error: Exception) -> int:
    """The exit code that this error stands for."""
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


def sentence(error: Exception) -> str:
    """What happened and what to do, without control characters that a value in it may bring along."""
    match error:
        case ConfigError(problems=[_, _, *_] as problems):
            numbered = [f"  {number}. {_clean(problem)}" for number, problem in enumerate(problems, 1)]
            return "\n".join([f"{len(numbered)} problems; nothing was started:", *numbered])
        case KeepfastError():
            return _clean(str(error)) or type(error).__name__
        case _:
            at = place_of(error)
            where = f" ({at})" if at else ""
            return f"Unexpected {clean_error(error)}{where}. Run it again with --debug to see the traceback."


def place_of(error: BaseException, *, within: Path | None = None) -> str:
    """`file:line` of the innermost frame of the user's code, else of any code; a file below `within` relative to it.

    Empty if the error has no traceback.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_relative(error.filename, within)}:{error.lineno}"
    frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    if not frames:
        return ""
    filename, line = next((frame for frame in reversed(frames) if _is_of_the_user(frame[0])), frames[-1])
    return f"{_relative(filename, within)}:{line}"


def _is_of_the_user(filename: str) -> bool:
    """Neither the interpreter's, nor an installed package's, nor ours."""
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
