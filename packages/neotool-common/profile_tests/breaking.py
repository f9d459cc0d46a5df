"""How keepfast is broken, to see tests fail: objects are replaced when a process starts.

A break is a function that replaces something. `test_what_is_broken_is_noticed` names one in the environment; the
`sitecustomize` in `broken/` calls `apply` in every Python process that inherits it, before anything else runs: in that
of pytest and in those that a test starts.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

VARIABLE: Final = "BROKEN_BY"
"""Variable with the module and the name of a break: `profile_tests.breaks.errors:network_errors_are_final`.
Its name does not begin with KEEPFAST_: some tests remove such variables from the processes that they start.
"""


@dataclass(frozen=True, slots=True)
class Break:
    """`make` breaks this process; `evidence` is the name in `evidence` of what it breaks."""

    evidence: str
    name: str
    make: Callable[[], object]

    @property
    def environment(self) -> Mapping[str, str]:
        """Of a process that is to be broken, with all that it starts."""
        root = Path(__file__).parents[3]
        package = root / "packages" / "neotool-common"
        path = [
            str(Path(__file__).with_name("broken")),
            *map(str, (root, package, root / "src", package / "src")),
            os.environ.get("PYTHONPATH", ""),
        ]
        return {VARIABLE: f"{self.make.__module__}:{self.name}", "PYTHONPATH": os.pathsep.join(filter(None, path))}


BREAKS: Final[dict[str, list[Break]]] = {}
"""By the name of the evidence; filled by importing `breaks`."""


def breaks(*evidence: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    """Decorates a function that breaks what these name."""

    def register(make: Callable[[], object]) -> Callable[[], object]:
        for one in evidence:
            add(one, make.__name__, make)
        return make

    return register


def add(evidence: str, name: str, make: Callable[[], object]) -> None:
    BREAKS.setdefault(evidence, []).append(Break(evidence, name, make))


def apply() -> None:
    """Break this process as the environment says."""
    module, _, name = os.environ[VARIABLE].partition(":")
    if not name:
        return  # nothing is to be broken
    importlib.import_module(module)
    [make] = {
        found.make for many in BREAKS.values() for found in many if found.name == name and _module(found) == module
    }
    make()


def _module(found: Break) -> str:
    return found.make.__module__


def replace(owner: Any, name: str, new: Any) -> Any:
    """Put something in the place of an attribute; returns what was there.

    Of a module, also where others have imported it by name.
    """
    before = vars(owner).get(name, getattr(owner, name))
    setattr(owner, name, new)
    if isinstance(owner, ModuleType) and not isinstance(before, int | float | str):  # which are equal by chance
        for module in [one for key, one in sys.modules.items() if key.partition(".")[0] == "keepfast"]:
            for alias, value in list(vars(module).items()):
                if value is before:
                    setattr(module, alias, new)
    return getattr(before, "__func__", before)


def wrap(owner: Any, name: str, around: Callable[[Any], Any]) -> None:
    """Put what `around` makes of an attribute in its place."""
    replace(owner, name, around(getattr(owner, name)))


def change(owner: Any, **values: Any) -> None:
    """Set attributes of an object that would rather not be changed."""
    for name, value in values.items():
        object.__setattr__(owner, name, value)
