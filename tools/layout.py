"""Measures the layout of source trees side by side, for the table in docs/design.md.

    git worktree add --detach build/before COMMIT
    python -m tools.layout build/before .

A tree is a checkout with one package in `src`. Times are processor time: the median of alternating runs, in this
environment, whose compiled files are warm.
"""

from __future__ import annotations

import ast
import os
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import grimp

from tests.project.test_conventions_of_code import Function, cycles, modules_imported
from tests.project.test_conventions_of_names import one_importer, public_classes

RUNS = 10


class Tree:
    """One checkout."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.folder = next(path.parent for path in sorted(self.root.glob("src/*/__init__.py")))
        self.package = self.folder.name
        self.texts = {path: path.read_text(encoding="utf-8") for path in sorted(self.folder.rglob("*.py"))}
        self.trees = {self._module(path): ast.parse(text) for path, text in self.texts.items()}

    def _module(self, path: Path) -> str:
        parts = path.relative_to(self.folder.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Files and lines of each package."""
        files, lines = Counter[str](), Counter[str]()
        for path, text in self.texts.items():
            inside = path.relative_to(self.folder).parts
            name = inside[0] if len(inside) > 1 else "top level"
            files[name] += 1
            lines[name] += text.count("\n")
        return {name: (files[name], lines[name]) for name in sorted(files)}

    def figures(self) -> dict[str, str]:
        sizes = self.sizes().values()
        shared = [modules for modules in public_classes(self.trees.items()).values() if len(modules) > 1]
        imports = {name: modules_imported(tree, self.trees) - {name} for name, tree in self.trees.items()}
        functions = [node for tree in self.trees.values() for node in ast.walk(tree) if isinstance(node, Function)]
        longest = max((node.end_lineno or 0) - node.lineno + 1 for node in functions)
        sys.path.insert(0, str(self.folder.parent))
        graph = grimp.build_graph(self.package, cache_dir=None)
        sys.path.pop(0)
        single = [name for name in graph.modules if len(graph.find_modules_that_directly_import(name)) == 1]
        return {
            "files, lines": f"{sum(one for one, _ in sizes):,}, {sum(lines for _, lines in sizes):,}",
            "modules with one importer": str(len([name for name in single if not graph.find_children(name)])),
            "… that the test counts": str(len(one_importer(graph, self.package))),
            "names that public classes share": str(len(shared)),
            "import cycles": str(len(cycles(imports))),
            "longest function": f"{longest} lines",
            "wheel": f"{self._wheel_bytes() / 1000:,.0f} kB",
        }

    def _wheel_bytes(self) -> int:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
            subprocess.run(command, cwd=self.root, check=True, capture_output=True)
            [wheel] = Path(folder).iterdir()
            return wheel.stat().st_size

    def cpu_ms(self, *arguments: str) -> float:
        """Of a process that runs Python with this package and these arguments."""
        environ: dict[str, Any] = {**os.environ, "PYTHONPATH": str(self.folder.parent)}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], env=environ, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def main() -> None:
    trees = [Tree(Path(one)) for one in sys.argv[1:] or ["."]]
    figures = [tree.figures() for tree in trees]
    for name, arguments in [("import", "-c import {}"), ("--help", "-m {} --help")]:
        times: list[list[float]] = [[] for _ in trees]
        for _ in range(RUNS + 1):
            for tree, taken in zip(trees, times, strict=True):
                flag, _, rest = arguments.format(tree.package).partition(" ")
                taken.append(tree.cpu_ms(flag, *([rest] if flag == "-c" else rest.split())))
        for shown, taken in zip(figures, times, strict=True):
            shown[name] = f"{median(taken[1:]):.0f} ms"  # the first one compiles
    for name in figures[0]:
        print(" | ".join(["", name, *(shown[name] for shown in figures), ""]).strip())
    for tree in trees:
        print()
        for name, (files, lines) in tree.sizes().items():
            print(f"| `{name}` | {files} | {lines:,} |")


if __name__ == "__main__":
    main()
