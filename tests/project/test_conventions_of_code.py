"""What the code keeps to beyond what the linters can see."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.support.project_files import ROOT, SOURCES

FUNCTION_LINES = 60

SIMULATION = ROOT / "simulation"

CORE_DEPENDENCIES = {"click", "confluent_kafka", "msgspec"}
# The pytest plugin is loaded by pytest only.
# Files, or folders of files, that are imported only where their package is there.
ALSO_ALLOWED = {
    "desk_page": {"jinja2", "starlette", "uvicorn"},  # the extra `desk`
    "testing/pytest_plugin.py": {"pytest"},
    "kafka/kafka_python": {"kafka"},
    "demo/screen.py": {"rich"},
    "cli/live_view.py": {"rich"},
}

WALL_CLOCKS = {"monotonic", "perf_counter", "time", "now"}
"""Calls that tell how late it is, whoever uses the processor; processor time may be asserted anywhere."""

MEASURED = re.compile(r"(?:took|longest|slowest|quickest)(?:_|$)")
"""What a time is called that a helper has measured."""

CLOCK_OR_TIME = re.compile(rf"\b(?:{'|'.join(WALL_CLOCKS)})\(|{MEASURED.pattern}")
"""What a file has that bounds a time."""

NOT_RUN = {"skip", "skipif", "xfail", "importorskip"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def too_long(name: str, tree: ast.Module) -> list[str]:
    """Functions, constructors included, that are longer than `FUNCTION_LINES`, without their decorators."""
    return [
        f"{name}:{node.lineno}: {node.name} has {lines} lines"
        for node in ast.walk(tree)
        if isinstance(node, Function) and node.end_lineno is not None
        if (lines := node.end_lineno - node.lineno + 1) > FUNCTION_LINES
    ]


def imported_at_once(tree: ast.Module) -> Iterator[str]:
    """Top-level names of the packages that importing the module imports, whatever happens."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def modules_imported(tree: ast.Module, known: Collection[str]) -> set[str]:
    """Which of the known modules it imports, wherever: in functions and for the types alone, too."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names | ({node.module} if names - set(known) else set())
    return found & set(known)


def cycles(imports: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Groups of modules each of which imports all others of its group, by way of others or not."""
    reached = {name: _reached(name, imports) for name in imports}
    groups = {frozenset({name, *(one for one in reached[name] if name in reached[one])}) for name in imports}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def _reached(name: str, imports: Mapping[str, Collection[str]]) -> set[str]:
    found: set[str] = set()
    left = [name]
    while left:
        new = set(imports[left.pop()]) - found
        found |= new
        left += new
    return found


def is_elapsed_time(node: ast.AST) -> bool:
    """Whether a clock is read in it and an earlier time subtracted."""
    return any(
        isinstance(part, ast.BinOp)
        and isinstance(part.op, ast.Sub)
        and isinstance(part.left, ast.Call)
        and ast.unparse(part.left.func).rpartition(".")[2] in WALL_CLOCKS
        for part in ast.walk(node)
    )


def bounds_elapsed_time(test: Function) -> bool:
    """Whether it asserts that something took less than a time."""
    taken = {
        ast.unparse(target)
        for part in ast.walk(test)
        if isinstance(part, ast.Assign) and is_elapsed_time(part.value)
        for target in part.targets
    }
    on_the_wall = not any(clock in ast.unparse(test) for clock in ("process_time", "cpu_s"))
    return any(
        is_elapsed_time(low) or ast.unparse(low) in taken or (on_the_wall and _is_called_a_time(low))
        for part in ast.walk(test)
        if isinstance(part, ast.Assert)
        for compared in ast.walk(part.test)
        if isinstance(compared, ast.Compare)
        for low, sign in zip([compared.left, *compared.comparators], compared.ops, strict=False)
        if isinstance(sign, ast.Lt | ast.LtE)
    )


def _is_called_a_time(node: ast.AST) -> bool:
    names = (getattr(part, "id", None) or getattr(part, "attr", None) or "" for part in ast.walk(node))
    return any(MEASURED.match(name) for name in names)


def modules(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def test_no_function_is_too_long() -> None:
    found = [line for path in modules(SOURCES) for line in too_long(str(path.relative_to(ROOT)), parsed(path))]
    assert found == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("def f():\n" + "    x = 1\n" * (FUNCTION_LINES - 1), 0),
        ("def f():\n" + "    x = 1\n" * FUNCTION_LINES, 1),
        ("class C:\n    def __init__(self):\n" + "        self.x = 1\n" * (FUNCTION_LINES - 1), 0),
        ("class C:\n    def __init__(self):\n" + "        self.x = 1\n" * FUNCTION_LINES, 1),
        ("async def f():\n" + "    x = 1\n" * FUNCTION_LINES, 1),
    ],
)
def test_the_guard_of_lengths_sees_what_is_too_long(text: str, count: int) -> None:
    assert len(too_long("sample.py", ast.parse(text))) == count


def test_optional_packages_are_imported_only_where_they_are_used() -> None:
    found = []
    for path in modules(SOURCES):
        name = path.relative_to(SOURCES).as_posix()
        folder = path.parent.relative_to(SOURCES).as_posix()
        also = ALSO_ALLOWED.get(name, set()) | ALSO_ALLOWED.get(folder, set())
        allowed = CORE_DEPENDENCIES | {"keepfast"} | also | sys.stdlib_module_names
        imported = set(imported_at_once(parsed(path)))
        found += [f"{name} imports {package}" for package in sorted(imported - allowed)]
    assert found == []


def test_no_modules_import_each_other() -> None:
    """Not even for type checking: what two modules need of each other has an owner of its own."""
    names = {path: _module(path, path.is_relative_to(SOURCES)) for path in modules(SOURCES) + modules(SIMULATION)}
    imports = {name: modules_imported(parsed(path), names.values()) - {name} for path, name in names.items()}
    assert cycles(imports) == []


def _module(path: Path, in_package: bool) -> str:
    parts = path.relative_to(SOURCES.parent if in_package else ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_loops_are_built_in_one_place() -> None:
    """App, runner, harness and simulator: a part that one of them forgot would be missing there alone."""
    found = {
        str(path.relative_to(ROOT))
        for path in modules(SOURCES) + modules(SIMULATION)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Loop"
    }
    assert found == {"src/keepfast/wiring/consumers.py"}


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({"p.a": "from p.b import B", "p.b": "import p.c", "p.c": ""}, []),
        ({"p.a": "from p import b", "p.b": "if TYPE_CHECKING:\n    from p.a import A"}, [["p.a", "p.b"]]),
        ({"p.a": "import p.b", "p.b": "def f():\n    import p.c", "p.c": "from p.a import A"}, [["p.a", "p.b", "p.c"]]),
        ({"p": "from p.a import A", "p.a": "from p import b", "p.b": ""}, []),
    ],
)
def test_the_guard_of_imports_sees_cycles(texts: dict[str, str], expected: list[list[str]]) -> None:
    assert cycles({name: modules_imported(ast.parse(text), texts) for name, text in texts.items()}) == expected


def test_no_test_is_skipped_or_expected_to_fail() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.attr}"
        for path in modules(ROOT / "tests")
        if any(word in path.read_text() for word in NOT_RUN)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and node.attr in NOT_RUN and "pytest" in ast.unparse(node.value)
    ]
    assert found == []


def test_tests_that_bound_elapsed_time_run_alone() -> None:
    """On a loaded machine they would fail for no fault of the code: they are marked `timing`."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for folder in ("tests", "examples")
        for path in modules(ROOT / folder)
        if CLOCK_OR_TIME.search(path.read_text())
        for node in parsed(path).body
        if isinstance(node, Function) and node.name.startswith("test_") and bounds_elapsed_time(node)
        if not any("timing" in ast.unparse(mark) for mark in node.decorator_list)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("assert time.monotonic() - begun < 2", True),
        ("took_s = time.monotonic() - begun\n    assert 1 <= took_s < 2", True),
        ("assert backend.now() - before <= 0.5", True),
        ("code, took_s = terminated_after(member)\n    assert took_s < 2", True),
        ("assert longest_pause(loop) < 1", True),
        ("assert time.monotonic() - begun > 2", False),
        ("assert took_s >= 2", False),
        ("assert time.monotonic() < deadline", False),
        ("assert time.process_time() - begun < 2", False),
    ],
)
def test_the_guard_of_elapsed_time_sees_bounds(body: str, expected: bool) -> None:
    [test] = ast.parse(f"def test_sample():\n    {body}\n").body
    assert isinstance(test, Function)
    assert bounds_elapsed_time(test) is expected


def test_methods_of_protocols_have_a_body_that_type_checkers_accept() -> None:
    """A docstring alone returns None, says pyright: where something is returned, `...` stands behind it."""
    found = [
        f"{path.relative_to(ROOT)}:{method.lineno}: {method.name}"
        for path in modules(SOURCES)
        for protocol in ast.walk(parsed(path))
        if isinstance(protocol, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in protocol.bases)
        for method in protocol.body
        if isinstance(method, Function) and method.returns is not None and ast.unparse(method.returns) != "None"
        if ast.unparse(method.body[-1]) != "..." and not isinstance(method.body[-1], ast.Return)
    ]
    assert found == []
