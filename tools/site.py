"""What MkDocs calls while it builds the documentation: the reference is made, links to the sources are checked.

Pages link to files of the project as they stand beside them (`../tests/…`), so that the links work where the project
is read as files. In the site such a link becomes the file's name, or, with `extra.sources` set to an address, a link to
it there. A file that does not exist is a warning, which `--strict` makes an error.
"""

from __future__ import annotations

import logging
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mkdocs.structure.files import File  # noqa: E402 - after the path, which our own modules need

from tools.reference.pages import PAGES  # noqa: E402

log = logging.getLogger("mkdocs.hooks.site")
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<to>\.\.?/[^)\s#]+)(?P<part>#[^)\s]*)?\)")


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages that are made from the code."""
    for name, make in PAGES.items():
        files.append(File.generated(config, name, content=make()))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:  # noqa: ARG001 - MkDocs' shape
    """Links that lead out of the documentation become links to the sources, or names."""
    folder = posixpath.dirname(page.file.src_uri)

    def replaced(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, link["to"]))
        if target.startswith("docs/"):
            return link[0]
        if not (ROOT / target).exists():
            log.warning("%s links to %s, which does not exist", page.file.src_uri, target)
        sources = config.extra.get("sources")
        return f"[{link['text']}]({sources}/{target})" if sources else f"{link['text']} (`{target}`)"

    parts, at = [], 0
    for fenced in _FENCED.finditer(markdown):
        parts += [_LINK.sub(replaced, markdown[at : fenced.start()]), fenced[0]]
        at = fenced.end()
    return "".join([*parts, _LINK.sub(replaced, markdown[at:])])
