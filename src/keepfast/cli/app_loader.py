"""Loads an App from `module:app` or `path/to/file.py:app`; errors say why it cannot be loaded and what to do."""

from __future__ import annotations

import difflib
import importlib
import importlib.machinery
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from keepfast.app import App
from keepfast.cli.errors import LoadError, error_message, location_of
from keepfast.core.errors import ConfigError
from keepfast.telemetry.clean import clean_error, clean_text

if TYPE_CHECKING:
    from keepfast.runner import KafkaConsumerRunner

DEFAULT_ATTRIBUTE = "app"
EXAMPLE = "Write it as module:app or path/to/file.py:app."


class AppTarget(NamedTuple):
    """A dotted module or a file, and an attribute in it."""

    module: str
    attribute: str

    @property
    def file(self) -> Path | None:
        return Path(self.module) if self.module.endswith(".py") else None

    @classmethod
    def parse(cls, text: str) -> AppTarget:
        """Raises LoadError if the text is neither a module nor a file."""
        module, _, attribute = text.rpartition(":") if ":" in text else (text, "", "")
        attribute = attribute or DEFAULT_ATTRIBUTE
        if not all(part.isidentifier() for part in attribute.split(".")):
            raise LoadError(f"{clean_text(attribute)!r} is not a Python identifier. {EXAMPLE}")
        if module.endswith(".py"):
            return cls(module, attribute)
        if not all(part.isidentifier() for part in module.split(".")):
            dotted = module.removesuffix("/").replace("/", ".")
            hint = f"Did you mean {dotted}:{attribute} or {module}.py:{attribute}?" if "/" in module else EXAMPLE
            raise LoadError(f"{clean_text(module)!r} is not a module name. {hint}")
        return cls(module, attribute)


def require_module(text: str, *, cwd: Path) -> None:
    """Raises LoadError if there is no such file or module. Imports nothing, so loading may still fail."""
    target = AppTarget.parse(text)
    if target.file is not None:
        _module_of(cwd / target.file)
        return
    top = target.module.partition(".")[0]
    if importlib.machinery.PathFinder.find_spec(top, [*map(str, _roots(cwd)), *sys.path]) is None:
        raise LoadError(_no_module(target.module, top, target, cwd))


def load_app(text: str, *, cwd: Path) -> App:
    """Import the module and return its App. Puts `cwd` and its `src` (for a file, its root folder) first on sys.path.

    Raises LoadError, or ConfigError if the module's own use of keepfast is wrong.
    """
    target = AppTarget.parse(text)
    module = _module(target, cwd)
    value = _value_in(module, target)
    if isinstance(value, App):
        return value
    raise LoadError(_no_app(value, module, target))


def load_app_or_runner(text: str, *, cwd: Path) -> App | KafkaConsumerRunner:
    """Import the module and return its App or KafkaConsumerRunner. Puts `cwd` and its `src` first on sys.path.

    Raises LoadError, or ConfigError if the module's own use of keepfast is wrong.
    """
    from keepfast.runner import KafkaConsumerRunner

    target = AppTarget.parse(text)
    module = _module(target, cwd)
    value = _value_in(module, target)
    if isinstance(value, App | KafkaConsumerRunner):
        return value
    raise LoadError(_no_app(value, module, target))


def _module(target: AppTarget, cwd: Path) -> ModuleType:
    name = target.module
    roots = _roots(cwd)
    if target.file is not None:
        root, name = _module_of(cwd / target.file)
        roots = [root]
    sys.path[:0] = [str(root) for root in roots if str(root) not in sys.path]
    module = _import(name, target, cwd)
    _must_be_that_file(module, target, cwd)
    return module


def _roots(cwd: Path) -> list[Path]:
    """The first directories of the import path: `cwd`, and `src` for a project in the src layout."""
    return [cwd, cwd / "src"] if (cwd / "src").is_dir() else [cwd]


def _module_of(file: Path) -> tuple[Path, str]:
    """The directory that must be on sys.path, and the dotted name under which the file is then imported."""
    if not file.is_file():
        near = _close(file.name, [path.name for path in file.parent.glob("*.py")])
        raise LoadError(f"There is no file {file}.{near}")
    parts = [] if file.stem == "__init__" else [file.stem]
    folder = file.resolve().parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    if not all(part.isidentifier() for part in parts):
        raise LoadError(f"{file} cannot be imported: {'.'.join(parts)!r} is not a module name. Rename it.")
    return folder, ".".join(parts)


def _import(name: str, target: AppTarget, cwd: Path) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ConfigError as error:  # one of our decorators rejected its arguments
        raise ConfigError(*(f"{location_of(error, within=cwd)}: {problem}" for problem in error.problems)) from error
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise LoadError(_no_module(name, missing, target, cwd)) from error
        raise LoadError(_failed(name, error, cwd) + _install_hint(missing)) from error
    except (Exception, SystemExit) as error:  # anything that user code may raise on import
        raise LoadError(_failed(name, error, cwd)) from error


def _no_module(name: str, missing: str, target: AppTarget, cwd: Path) -> str:
    message = f"There is no module {name!r} here ({cwd})"
    if missing != name:
        message += f": {missing!r} is missing"
    parts = name.split(".")
    folder = cwd / "app"
    if folder.joinpath(*parts).with_suffix(".py").is_file() or folder.joinpath(*parts, "__init__.py").is_file():
        file = f"{folder.name}/{'/'.join(parts)}.py"
        return f"{message}, but it is in {folder.name}/. Write {file}:{target.attribute}, or install the project."
    known = [path.stem for root in _roots(cwd) for path in root.glob("*.py")]
    known += [path.parent.name for root in _roots(cwd) for path in root.glob("*/__init__.py")]
    return f"{message}.{_close(name, known, f':{target.attribute}') or ' Run it from the directory that has it.'}"


def _failed(name: str, error: BaseException, cwd: Path) -> str:
    place = location_of(error, within=cwd)
    at = f" at {place}" if place else ""
    if isinstance(error, SystemExit):
        return (
            f"Importing {name!r} exits the program{at}: it calls sys.exit({error.code!r})."
            ' Move code that must not run on import below `if __name__ == "__main__":`.'
        )
    if isinstance(error, SyntaxError):
        return f"Importing {name!r} failed{at}: {type(error).__name__}: {clean_text(str(error.msg))}."
    return f"Importing {name!r} failed{at}: {clean_error(error)}."


def _install_hint(missing: str) -> str:
    return (
        f" Install the package that provides {missing.partition('.')[0]!r}, or correct the import." if missing else ""
    )


def _must_be_that_file(module: ModuleType, target: AppTarget, cwd: Path) -> None:
    """A file named like an already imported module, such as `signal.py`, would silently resolve to that module."""
    if target.file is None:
        return
    found = getattr(module, "__file__", None)
    if found is None or Path(found).resolve() != (cwd / target.file).resolve():
        raise LoadError(
            f"{target.file} cannot be loaded: {module.__name__!r} is also the name of {found or 'a built-in module'},"
            " which takes precedence. Rename the file."
        )


def _value_in(module: ModuleType, target: AppTarget) -> object:
    value: Any = module
    for part in target.attribute.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise LoadError(f"{target.module} has no {target.attribute!r}.{_apps_hint(module, target)}") from None
        except Exception as error:  # a module's own __getattr__
            raise LoadError(f"{target.module}:{target.attribute} cannot be read: {error_message(error)}") from error
    return value


def _no_app(value: object, module: ModuleType, target: AppTarget) -> str:
    where = f"{target.module}:{target.attribute}"
    if type(value).__name__ == "KafkaConsumerRunner":
        return f"{where} is a KafkaConsumerRunner; run it with {target.attribute}.run(). This command needs an App."
    message = f"{where} is not an App; it is of type {type(value).__name__}."
    if isinstance(value, type) and issubclass(value, App):
        message = f"{where} is the class App, not an instance."
    hint = _apps_hint(module, target)
    if callable(value) and not isinstance(value, type) and "Did you mean" not in hint:
        hint = f" If it returns one, call it in the module: `app = {target.attribute}()`."
    return message + hint


def _apps_hint(module: ModuleType, target: AppTarget) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, App) and not name.startswith("_")]
    runners = [name for name, value in vars(module).items() if type(value).__name__ == "KafkaConsumerRunner"]
    if runners and not names:
        return f" It has a KafkaConsumerRunner: {target.module}:{runners[0]}."
    if not names:
        return ' It has no App; create one with `app = App("name")`.'
    if len(names) == 1:
        return f" Did you mean {target.module}:{names[0]}?"
    near = difflib.get_close_matches(target.attribute, names, n=1)
    return f" Its Apps are: {', '.join(names)}." + (f" Did you mean {target.module}:{near[0]}?" if near else "")


def _close(name: str, known: list[str], tail: str = "") -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {near[0]}{tail}?" if near else ""
