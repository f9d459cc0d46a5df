"""Whether hooks can be called as the runner will call them: found out before anything starts, all at once."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from keepfast.core.errors import ConfigError

LoggerAdapter: TypeAlias = "logging.LoggerAdapter[Any]"

_CALLS: Final[Mapping[str, tuple[tuple[str, ...], dict[str, str]]]] = {
    # how each one that is given something is called; the others are called with nothing
    "process_message": (("message",), {}),
    "message_factory": (("data",), {}),
    "dlq_publisher": (("message", "error"), {"retry_count": "0"}),
    "running_flag_setter": (("True",), {}),
    "message_context": (("message",), {}),
}


def refuse(must: Mapping[str, object], may: Mapping[str, object], logger: object) -> None:
    """Raises ConfigError with everything that is wrong with hooks that there must be, and that there may be."""
    hooks = {**must, **{name: hook for name, hook in may.items() if hook is not None}}
    problems = [problem for name, hook in hooks.items() if (problem := _problem(name, hook))]
    if logger is not None and not isinstance(logger, logging.Logger | logging.LoggerAdapter):
        problems.append(f"logger must be a logging.Logger; got something of type {type(logger).__name__}.")
    if problems:
        raise ConfigError(*(f"KafkaConsumerRunner: {problem}" for problem in problems))


def _problem(name: str, hook: object) -> str | None:
    if not callable(hook):
        return f"{name} must be a function; got something of type {type(hook).__name__}."
    if inspect.iscoroutinefunction(hook):
        return f"{name} is async def, and would do nothing when it is called; make it a plain function."
    try:
        signature = inspect.signature(hook)
    except (TypeError, ValueError):
        return None  # built in: its signature is unknown
    arguments, options = _CALLS.get(name, ((), {}))
    try:
        signature.bind(*arguments, **options)
    except TypeError as error:
        shown = ", ".join([*arguments, *(f"{key}={value}" for key, value in options.items())])
        return f"{name} cannot be called as {name}({shown}): {error}."
    return None
