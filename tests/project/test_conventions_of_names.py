"""Names and modules: one word for one thing, words that engineers know, and no module that only one other needs."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import grimp
import pytest

from tests.support.project_files import ROOT, SOURCES, project_texts

# Lower these when there are fewer; never raise them.
DIALECT: Final[Mapping[str, int]] = {
    "told": 460,
    "said": 131,
    "nobody": 142,
    "somebody": 68,
    "whoever": 80,
    "anew": 46,
    "bury": 202,
}
"""How often a word that no documentation of Kafka or Python uses stands in src, docs and README.md, in any form."""
FORMS: Final = {"bury": "bury|buries|buried|burying"}

MAX_ONE_IMPORTER: Final = 24
"""Modules that exactly one other module imports; the aim is below 30."""
NOT_COUNTED: Final = (
    r"cli\..*",  # one file a command
    r"kafka\..*|deadletters\.spool\.(files|memory|objects|postgres)|telemetry\.otel",  # adapters
    r"testing\.fakes\.(sink|source|disk|flights)",  # which the fakes are, too
    r"audit\.(clauses|checks)_.*|classify\.rules\..*",  # tables of rules
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


def dialect_in(text: str) -> Counter[str]:
    """Also inside of identifiers: `_told`, `buried_at`."""
    return Counter(
        {
            word: len(re.findall(rf"(?<![A-Za-z])(?:{FORMS.get(word, word)})(?![A-Za-z])", text, re.IGNORECASE))
            for word in DIALECT
        }
    )


@pytest.mark.parametrize(
    ("text", "word", "count"),
    [
        ("Nobody is told; nobody.", "nobody", 2),
        ("self._told = told_at", "told", 2),
        ("a household name", "told", 0),
        ("it buries what was buried", "bury", 2),
        ("Renewed", "anew", 0),
    ],
)
def test_the_guard_of_words_sees_them_in_sentences_and_names(text: str, word: str, count: int) -> None:
    assert dialect_in(text)[word] == count


def test_words_that_only_we_use_become_fewer() -> None:
    found: Counter[str] = Counter()
    for name, text in project_texts():
        if name.startswith(("src/", "docs/")) or name == "README.md":
            found.update(dialect_in(text))
            found.update(dialect_in(Path(name).stem))
    assert {word: (found[word], most) for word, most in DIALECT.items() if found[word] > most} == {}


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
