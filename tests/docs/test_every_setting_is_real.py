"""Settings in README and docs, as TOML, variables or YAML, are taken by the loader that the app uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped] # comes with MkDocs, without types

from keepfast.core.errors import ConfigError
from keepfast.settings import AppSpec, Settings, load
from keepfast.settings.sources import targets
from tests.docs.blocks import Block, of
from tests.docs.commands import assignments

CONSUMERS = ("charge", "notify", "store")
KNOWN = {name for target in targets(()) for name in target.names}


def ours(environ: dict[str, str]) -> dict[str, str]:
    """What the loader would look at, or complain of."""
    return {name: value for name, value in environ.items() if name in KNOWN or name.startswith("KEEPFAST_")}


def loaded(cwd: Path, consumers: set[str], environ: dict[str, str]) -> Settings:
    trees = {name: {"topics": f"orders.{name}.v1"} for name in CONSUMERS if name in consumers}
    return load(AppSpec(name="payments", consumers=trees, batches=["store"]), environ=environ, cwd=cwd)


def meant(text: str) -> set[str]:
    """The consumers that are spoken of; `charge` if none is."""
    named = set(re.findall(r"\[consumers\.(\w+)", text)) | {
        name.lower() for name in re.findall(r"KEEPFAST_CONSUMERS_([A-Z]+)_", text)
    }
    return named or {"charge"}


def check(block: Block, cwd: Path, environ: dict[str, str]) -> None:
    if block.word == "refused":
        with pytest.raises(ConfigError):
            loaded(cwd, meant(block.text), environ)
    else:
        loaded(cwd, meant(block.text), environ)


@pytest.mark.parametrize("block", of("toml"), ids=lambda block: block.name)
def test_toml(block: Block, tmp_path: Path) -> None:
    (tmp_path / "keepfast.toml").write_text(block.text)
    check(block, tmp_path, {})


@pytest.mark.parametrize("block", of("ini"), ids=lambda block: block.name)
def test_dotenv(block: Block, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(block.text)
    check(block, tmp_path, {})


def with_assignments() -> list[Block]:
    return [block for block in of("sh", "console") if ours(dict(assignments(block)))]


@pytest.mark.parametrize("block", with_assignments(), ids=lambda block: block.name)
def test_variables_of_commands(block: Block, tmp_path: Path) -> None:
    check(block, tmp_path, ours(dict(assignments(block))))


@pytest.mark.parametrize("block", of("yaml"), ids=lambda block: block.name)
def test_variables_of_containers(block: Block, tmp_path: Path) -> None:
    for document in yaml.safe_load_all(block.text):
        check(block, tmp_path, ours(dict(_environment(document))))


def _environment(tree: Any) -> Iterator[tuple[str, str]]:
    """Variables anywhere in a compose file or a manifest."""
    if isinstance(tree, list):
        for one in tree:
            yield from _environment(one)
    if not isinstance(tree, dict):
        return
    for name, value in tree.items():
        if name == "environment" and isinstance(value, dict):
            yield from ((key, str(printed)) for key, printed in value.items())
        elif name == "env" and isinstance(value, list):
            yield from ((one["name"], str(one.get("value", "from elsewhere"))) for one in value)
        else:
            yield from _environment(value)
