"""What a newcomer types first."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from keepfast import __version__
from keepfast.cli import COMMANDS, main
from tests.support.command import keepfast

HEAVY = ("confluent_kafka", "msgspec", "pydantic", "asyncio", "keepfast.app", "keepfast.cli.run", "keepfast.cli.broker")


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_takes_less_than_300_ms(tmp_path: Path) -> None:
    # Processor time: how busy the machine is otherwise is not the command's fault. The first run may compile.
    taken = []
    for _ in range(3):
        before = cpu_s()
        assert keepfast("--help", cwd=tmp_path).returncode == 0
        taken.append(cpu_s() - before)
    assert min(taken) < 0.3


def test_help_loads_neither_the_client_nor_any_command() -> None:
    script = f"""
import sys
from click.testing import CliRunner
from keepfast.cli import main
assert CliRunner().invoke(main, ["--help"]).exit_code == 0
print([name for name in {HEAVY!r} if name in sys.modules and name != "asyncio"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


OF_OTHERS = (
    "confluent_kafka",
    "pydantic",
    "rich",
    "fsspec",
    "opentelemetry",
    "psycopg",
    "kafka",
    "uvloop",
    "dotenv",
    "prometheus_client",
    "jinja2",
    "yaml",
)


@pytest.mark.parametrize(
    ("statement", "heavy", "limit_s"),
    [
        ("import keepfast", (*OF_OTHERS, "msgspec", "click", "asyncio", "keepfast.core", "keepfast.app"), 0.15),
        (
            "from keepfast import App; App('x')",
            (*OF_OTHERS, "click", "keepfast.kafka", "keepfast.settings.loading"),
            0.6,
        ),
    ],
    ids=["keepfast", "App"],
)
def test_an_import_is_quick_and_loads_only_what_it_needs(
    statement: str, heavy: tuple[str, ...], limit_s: float
) -> None:
    script = f"import sys\n{statement}\nprint([name for name in {heavy!r} if name in sys.modules])"
    taken = []
    for _ in range(3):
        before = cpu_s()
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        taken.append(cpu_s() - before)
        assert done.stdout.strip() == "[]"
    assert min(taken) < limit_s


def test_help_names_every_command() -> None:
    shown = CliRunner().invoke(main, ["--help"]).output
    assert all(f"  {name} " in shown for name in COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_explains_itself(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.output


def test_the_help_of_run_teaches_with_an_example_and_hides_what_is_internal() -> None:
    shown = CliRunner().invoke(main, ["run", "--help"]).output
    assert '@app.consumer("orders.payment.v1")' in shown
    assert "keepfast run app:app --reload" in shown
    assert "Exit codes:" in shown
    assert "--parent-fd" not in shown
    assert "--child" not in shown


def test_the_example_of_the_help_is_an_app(tmp_path: Path) -> None:
    """It gets as far as a wrong setting: the module, the app and the handler are right."""
    shown = CliRunner().invoke(main, ["run", "--help"]).output
    _, _, after = shown.partition("In app.py:\n")
    code, _, _ = after.partition("  Then:")
    (tmp_path / "app.py").write_text("\n".join(line[4:] for line in code.splitlines()))
    done = keepfast("run", "app:app", cwd=tmp_path, KEEPFAST_SHUTDOWN_TIMEOUT_S="soon")
    assert (done.returncode, "KEEPFAST_SHUTDOWN_TIMEOUT_S" in done.stderr) == (2, True), done.stderr


def test_the_version_is_one_line() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"keepfast {__version__}\n"


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["rnu"])
    assert result.exit_code == 2
    assert "No such command" in result.output


def test_no_colours_where_they_are_not_wanted(tmp_path: Path) -> None:
    assert "\x1b" not in keepfast("run", "nope:app", cwd=tmp_path, NO_COLOR="1").stderr
    assert "\x1b" not in keepfast("run", "nope:app", cwd=tmp_path).stderr
