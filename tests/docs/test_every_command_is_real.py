"""Commands in README and docs: options exist and take what they are given; what costs nothing is run and compared."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from keepfast.cli import main
from keepfast.telemetry.catalogue import CATALOGUE
from tests.docs.blocks import ROOT, Block, blocks, of, pages
from tests.docs.commands import Command, commands
from tools.reference.metrics import in_prometheus

NOT_OURS = {
    "cd",
    "cp",
    "curl",
    "docker",
    "git",
    "kafka-consumer-groups.sh",
    "kafka-topics.sh",
    "pip",
    "pre-commit",
    "promtool",
    "pytest",
    "uvicorn",
}
"""Commands that readers have from elsewhere."""
FOREIGN = {
    "ack_policy", "asyncio_mode", "graceful_timeout", "max_workers", "neotool_common", "post_worker_init",
    "retry_utils", "value_deserializer", "worker_exit",
}  # fmt: skip
"""Names of other libraries and servers."""
CHEAP = ("explain",)
MAX_NOT_RUN = 6


def shell_blocks() -> list[Block]:
    return of("sh", "console")


@pytest.mark.parametrize("block", shell_blocks(), ids=lambda block: block.name)
def test_it_could_be_typed(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "payments.jsonl").write_text('{"id": "a1"}\n')
    for command in commands(block):
        match command.words:
            case ("keepfast", *words):
                _parsed(main, "keepfast", list(words))
                _compared(command)
            case ("make", *targets):
                known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
                assert {target for target in targets if "=" not in target} <= known
            case ("python", "-m", module, *_):
                assert importlib.util.find_spec(module), command
            case words:
                assert Path(words[0]).name in NOT_OURS, command


def _parsed(command: click.Command, name: str, words: list[str]) -> None:
    """As click would, down to the command that would run; raises UsageError."""
    if {"--help", "-h", "--version"} & set(words):
        words = [word for word in words if not word.startswith("-")]
    with click.Context(command, info_name=name) as context:
        if not isinstance(command, click.Group) or (
            command.invoke_without_command and words[:1] and words[0][0] == "-"
        ):
            command.parse_args(context, words)
        elif words:
            found = command.get_command(context, words[0])
            assert found is not None, f"{name} has no command {words[0]}"
            _parsed(found, f"{name} {words[0]}", words[1:])


def test_commands_in_help_texts_exist() -> None:
    """In backticks, and in examples."""
    missing = {
        f"{name}: keepfast {shown}"
        for name, command in _each(main, "keepfast")
        for text in (command.help or "", *(one.help or "" for one in command.params if isinstance(one, click.Option)))
        for shown in re.findall(r"(?:`|^ *)keepfast +([a-z][^`\n]*)", text, re.MULTILINE)
        if not _exists(main, shown.split())
    }
    assert missing == set()


def _each(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for word in command.list_commands(context):
            found = command.get_command(context, word)
            assert found is not None
            yield from _each(found, f"{name} {word}")


def _exists(command: click.Command, words: list[str]) -> bool:
    """Whether the words up to the first option name a command."""
    if not isinstance(command, click.Group) or not words or words[0].startswith("-"):
        return True
    found = command.get_command(click.Context(command), words[0])
    return found is not None and _exists(found, words[1:])


def _compared(command: Command) -> None:
    if command.words[1] not in CHEAP or not command.prints:
        return
    done = CliRunner().invoke(main, list(command.words[1:]))
    assert done.exit_code == 0, done.output
    assert [line.rstrip() for line in done.output.splitlines()] == command.prints.rstrip("\n").splitlines()


def test_few_blocks_cannot_run_and_each_says_why() -> None:
    marked = [block for block in blocks() if not block.runs]
    assert all(re.fullmatch(r"not run, \w.*", block.word) for block in marked), marked
    assert len(marked) <= MAX_NOT_RUN, [block.name for block in marked]


def test_every_block_has_a_language_that_a_test_knows() -> None:
    known = {"python", "sh", "console", "toml", "ini", "yaml", "json", "text", "markdown"}
    strange = [block.name for block in blocks() if block.runs and block.language not in known]
    assert [name for name in strange if not name.startswith("CONTRIBUTING.md")] == []


def test_names_in_the_text_are_names_in_the_code() -> None:
    """Settings, options, metrics, events of the log: every `name_like_this` of the documentation is in the sources."""
    code = "\n".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))
    metrics = {in_prometheus(metric) for metric in CATALOGUE}
    known = {*re.findall(r"\w+", code), *metrics}
    for page in pages():
        if "decisions" in page.parts:
            continue
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        spans = re.findall(r"`(?!test_)([a-z]+(?:_[a-z]+)+)\b[^`]*`", text)
        assert set(spans) - known - FOREIGN == set(), page.name
        named = re.findall(r"\b(?:keepfast|kafka|orders_payment)_[a-z_]+\b", " ".join(re.findall(r"`[^`]*`", text)))
        assert set(named) - known == set(), page.name


def test_pages_exist_that_are_linked_to() -> None:
    """In README and CONTRIBUTING; MkDocs looks after the links of the docs."""
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
        assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_nothing_installs_keepfast_from_an_index() -> None:
    """It is on none: an extra is installed from the reader's checkout or wheel, or by the names of its packages."""
    texts = [*pages(), *(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.tmpl")]
    by_name = re.compile(r"pip install [\"']?keepfast\b|install [\"']?keepfast\[")
    found = {str(path.relative_to(ROOT)) for path in texts if by_name.search(path.read_text())}
    assert found == set()
