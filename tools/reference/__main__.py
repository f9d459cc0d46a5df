"""`make reference`: writes what is derived from the code and committed."""

from __future__ import annotations

from tools.reference.pages import COMMITTED, ROOT

for path, make in COMMITTED.items():
    target, text = ROOT / path, make()
    if not target.is_file() or target.read_text() != text:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        print(f"reference: wrote {path}")
