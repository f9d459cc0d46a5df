"""What MkDocs calls while it builds the documentation: links into the sources are kept.

Pages link to files of the project as they stand beside them (`../tests/…`), so that the links work where the project is
read as files. For the site, each file that is linked to becomes a page of its own. A link to what does not exist is a
warning, which `--strict` makes an error.
"""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]

log = logging.getLogger("mkdocs.hooks.site")
SOURCES = "sources"
_FENCED = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<to>\.\.?/[^)\s#]+)(?P<part>#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Decision records need no line in the navigation: they are those that there are."""
    [decisions] = [part["Decisions"] for part in config.nav if isinstance(part, dict) and "Decisions" in part]
    folder = Path(config.docs_dir)
    decisions += [str(path.relative_to(folder)) for path in sorted(folder.glob("decisions/[0-9]*.md"))]
    return config


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages of sources that are linked to."""
    pages = [(file.src_uri, file.content_string) for file in files.documentation_pages()]
    for path in sorted({target for uri, text in pages for target in _leading_out(uri, text)}):
        if (ROOT / path).is_file():
            files.append(File.generated(config, _page_of(path), content=_source(path)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:  # noqa: ARG001 - MkDocs' shape
    """Links that lead out of the documentation become links to the pages of the sources; folders are only named."""
    uri = page.file.src_uri
    if uri.startswith(f"{SOURCES}/"):
        return markdown

    def replaced(link: re.Match[str]) -> str:
        path = _target(uri, link["to"])
        if path is None:
            return link[0]
        if not (ROOT / path).exists():
            log.warning("%s links to %s, which does not exist", uri, path)
        if not (ROOT / path).is_file():
            return f"{link['text']} (`{path}`)"
        return f"[{link['text']}]({posixpath.relpath(_page_of(path), posixpath.dirname(uri) or '.')})"

    return _outside_of_blocks(markdown, lambda text: _LINK.sub(replaced, text))


def _leading_out(uri: str, markdown: str) -> Iterator[str]:
    text = _outside_of_blocks(markdown, lambda text: text, inside=lambda _: "")
    yield from (path for link in _LINK.finditer(text) if (path := _target(uri, link["to"])) is not None)


def _target(uri: str, to: str) -> str | None:
    """Where a link of this page leads, from the project's root; None if it stays within the documentation."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(uri), to))
    return None if path.startswith("docs/") else path


def _outside_of_blocks(
    markdown: str, change: Callable[[str], str], inside: Callable[[str], str] = lambda text: text
) -> str:
    parts = _FENCED.split(markdown)
    return "".join(inside(part) if number % 2 else change(part) for number, part in enumerate(parts))


def _page_of(path: str) -> str:
    return f"{SOURCES}/{path}.md" if not path.endswith(".md") else f"{SOURCES}/{path}"


def _source(path: str) -> str:
    text = (ROOT / path).read_text()
    if path.endswith(".md"):
        return f"---\nsearch: {{exclude: true}}\n---\n\n````markdown\n{text}\n````\n"
    return f"---\ntitle: {Path(path).name}\nsearch: {{exclude: true}}\n---\n\n# `{path}`\n\n````python\n{text}\n````\n"
