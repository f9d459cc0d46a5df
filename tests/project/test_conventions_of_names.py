"""Names and modules: one word for one thing, words that engineers know, and no module that only one other needs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import grimp
import pytest

from tests.support.project_files import ROOT, SOURCES, project_texts

DIALECT: Final = (
    "told",
    "said",
    "nobody",
    "somebody",
    "anybody",
    "whoever",
    "anew",
    "bury|buries|buried|burying",
    "loudly",
    "at work",
    "in hand",
    "for ever",
    "goes on|go on",
    "all the same",
    "stands still|stood still",
    "puts? (?:it )?right",
    "made again",
    "is away|are away",
)
"""Words and phrases that no documentation of Kafka or Python uses."""
ODD_CONSTANTS: Final = re.compile(r"(?:MOST|LONGEST|LARGEST|DEEPEST|LEAST|FEWEST|PATIENCE|LOOK|LOOKS|ANSWER)(?:_\w+)?")
"""Names of bounds and waits that others call MAX_, MIN_, …_TIMEOUT_S or …_INTERVAL_S."""

MAX_ONE_IMPORTER: Final = 28
"""Modules that exactly one other module imports; the aim is below 30."""
NOT_COUNTED: Final = (
    r"cli\..*",  # one file a command
    r"kafka\..*|deadletters\.spool\.(files|memory|objects|postgres)|telemetry\.otel",  # adapters
    r"testing\.fakes\.(sink|source|disk|flights)",  # which the fakes are, too
    r"audit\.(rules|checks_.*)|classify\.rules\..*",  # tables of rules
)


def public_classes(trees: Iterable[tuple[str, ast.Module]]) -> dict[str, list[str]]:
    """Names of classes at the top of modules, and the modules that have them."""
    found: dict[str, list[str]] = {}
    for name, tree in trees:
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(name)
    return found


def sources() -> list[tuple[str, ast.Module]]:
    return [(str(path.relative_to(ROOT)), ast.parse(path.read_text())) for path in sorted(SOURCES.rglob("*.py"))]


def test_no_two_public_classes_share_a_name() -> None:
    assert {name: modules for name, modules in public_classes(sources()).items() if len(modules) > 1} == {}


def test_the_guard_of_class_names_sees_two_alike() -> None:
    trees = [("a.py", ast.parse("class Plan: ...\nclass _Own: ...")), ("b.py", ast.parse("class Plan: ..."))]
    assert public_classes(trees) == {"Plan": ["a.py", "b.py"]}


def oddly_named(tree: ast.Module) -> list[str]:
    """Constants of a module whose names are in `ODD_CONSTANTS`."""
    return [
        part.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for part in ast.walk(target)
        if isinstance(part, ast.Name) and ODD_CONSTANTS.fullmatch(part.id)
    ]


def test_bounds_and_waits_have_the_names_that_everyone_uses() -> None:
    """`MAX_ITEMS`, `MIN_LEASE`, `REPLY_TIMEOUT_S`, `POLL_INTERVAL_S`."""
    assert {name: odd for name, tree in sources() if (odd := oddly_named(tree))} == {}


def test_the_guard_of_constants_sees_them() -> None:
    text = "A_S, LOOK_S = 1, 2\nLONGEST: Final = 3\nMOST_ITEMS = 4\nMAX_ITEMS = 5\nALMOST_ALL = 6\nif MOST: ..."
    assert oddly_named(ast.parse(text)) == ["LOOK_S", "LONGEST", "MOST_ITEMS"]


def dialect_in(text: str) -> list[str]:
    """Also inside of identifiers: `_told`, `buried_at`. Phrases in prose only: `for one in hand` is code."""
    found = []
    for words in DIALECT:
        pattern = re.compile(rf"(?<![A-Za-z])(?:{words})(?![A-Za-z])", re.IGNORECASE)
        if not pattern.search(text):  # of every file, and in nearly none of them
            continue
        found += [
            match[0]
            for line in text.splitlines()
            for match in pattern.finditer(line)
            if not re.search(rf"\bfor \w+ {re.escape(match[0])}|not {re.escape(match[0])}", line)
        ]
    return found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Nobody is told; nobody.", ["told", "Nobody", "nobody"]),
        ("self._told = told_at", ["told", "told"]),
        ("a household name", []),
        ("it buries what was buried", ["buries", "buried"]),
        ("Renewed", []),
        ("A record in hand\nwaits for ever.", ["in hand", "for ever"]),
        ("for card in hand: ...", []),
    ],
)
def test_the_guard_of_words_sees_them_in_sentences_and_names(text: str, words: list[str]) -> None:
    assert dialect_in(text) == words


def test_words_that_only_we_use_are_gone() -> None:
    found: dict[str, list[str]] = {}
    for name, text in project_texts():
        if name.startswith(("tests/", "packages/neotool-common/profile_tests/")) or name == "LICENSE":
            continue
        words = dialect_in(f"{Path(name).stem}\n{text}")
        if words:
            found[name] = words
    assert found == {}


def one_importer(graph: grimp.ImportGraph, package: str) -> dict[str, str]:
    """Modules that one module alone imports, and which; a door of its own package (`__init__`) is everybody's."""
    found = {}
    for module in sorted(graph.modules):
        importers = graph.find_modules_that_directly_import(module)
        inside = module.removeprefix(f"{package}.")
        if graph.find_children(module) or len(importers) != 1 or any(re.fullmatch(one, inside) for one in NOT_COUNTED):
            continue
        [importer] = importers
        if importer != module.rpartition(".")[0]:
            found[module] = importer
    return found


def test_modules_with_one_importer_become_fewer() -> None:
    found = one_importer(grimp.build_graph("keepfast", cache_dir=None), "keepfast")
    assert len(found) <= MAX_ONE_IMPORTER, "\n".join(f"{module} <- {importer}" for module, importer in found.items())


def test_the_guard_of_importers_counts_modules_and_not_doors() -> None:
    graph = grimp.ImportGraph()
    for importer, imported in [
        ("p.loop", "p.parts.timers"),
        ("p.loop", "p.parts"),
        ("p.parts", "p.parts.lanes"),
        ("p.loop", "p.clock"),
        ("p.parts.timers", "p.clock"),
        ("p.loop", "p.kafka.sink"),
    ]:
        graph.add_import(importer=importer, imported=imported)
    assert one_importer(graph, "p") == {"p.parts.timers": "p.loop"}
