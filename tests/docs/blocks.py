"""The fenced blocks of README and docs, and what a comment before a block says about it.

    <!-- test: more -->              continues where the Python block before it on the page ended
    <!-- test: dead-lettered CODE --> its handlers dead-letter the example with this code, instead of processing it
    <!-- test: discarded -->         its handlers discard it
    <!-- test: loses a message -->   the loop that keepfast is there for; its loss is shown by a test
    <!-- test: refused -->           the settings are wrong on purpose: the loader must say so
    <!-- test: not run, why -->      cannot run here; counted

Readers see none of them: Markdown hides comments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(
    r"(?:^[ ]*<!-- test: (?P<word>[^\n]*?) -->\n+)?"
    r"^(?P<indent>[ ]*)```(?P<language>[\w-]*)(?P<options>[^\n]*)\n(?P<text>.*?)^(?P=indent)```[ ]*$",
    re.DOTALL | re.MULTILINE,
)
LOSES = "loses a message"
_TITLE = re.compile(r'title="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    page: str
    line: int
    language: str
    title: str
    word: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def runs(self) -> bool:
        return not self.word.startswith("not run")


@cache
def pages() -> tuple[Path, ...]:
    """What people write; the reference is made from the code."""
    written = [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "reference"]
    return (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *written)


@cache
def blocks() -> tuple[Block, ...]:
    return tuple(block for page in pages() for block in blocks_of(page))


def blocks_of(page: Path) -> list[Block]:
    text, found = page.read_text(), []
    for match in _FENCE.finditer(text):
        indent = len(match["indent"])
        lines = [line[indent:] for line in match["text"].splitlines()]
        title = _TITLE.search(match["options"])
        number = text.count("\n", 0, match.start("language")) + 1
        found.append(
            Block(
                page=str(page.relative_to(ROOT)),
                line=number,
                language=match["language"],
                title=title[1] if title else "",
                word=match["word"] or "",
                text="\n".join(lines) + "\n",
            )
        )
    return found


def of(*languages: str) -> list[Block]:
    """Those in these languages that can run."""
    return [block for block in blocks() if block.language in languages and block.runs]


@dataclass(frozen=True, slots=True)
class Unit:
    """Python that belongs together: a block, and those before it that it continues from."""

    name: str
    word: str
    text: str


def units() -> list[Unit]:
    """Line numbers are kept where a unit is one block: a failure names the line of the page."""
    made: list[Unit] = []
    before: Block | None = None
    text = ""
    files: dict[str, str] = {}
    for block in of("python"):
        if block.word == LOSES:
            continue
        if before is not None and before.page != block.page:
            before, files = None, {}
        if block.word == "more" and before is not None:
            text += "\n\n" + block.text
        else:
            text = "\n" * block.line + _with_imports(block.text, files)
        if block.title:
            files[block.title.removesuffix(".py")] = block.text
        made.append(Unit(block.name, "" if block.word == "more" else block.word, text))
        before = block
    return made


def _with_imports(text: str, files: dict[str, str]) -> str:
    """A file that was shown before on the page stands in place of its import."""
    for name, content in files.items():
        text = re.sub(rf"^from {name} import [^\n]*\n", lambda _, content=content: content, text, flags=re.MULTILINE)  # type: ignore[misc]
    return text
