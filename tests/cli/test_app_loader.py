"""One or two sentences, with what to do, exit code 2, no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import APP, keepfast

FILES = {
    "good.py": APP,
    "named.py": APP.replace("app", "payments"),
    "two.py": APP + 'other = App("other")\napplication = 1\n',
    "none.py": "x = 1\n",
    "factory.py": "from keepfast import App\ndef create_app():\n    return App('x')\n",
    "the_class.py": "from keepfast import App as app\n",
    "broken.py": "def f(:\n    pass\n",
    "raises.py": "import json\n\ndef setup():\n    return json.loads('{')\n\nsetup()\n",
    "evil.py": "raise ValueError('red \\x1b[31m alert\\nsecond line')\n",
    "needs.py": "import no_such_package.part\n",
    "exits.py": "import sys\nsys.exit(7)\n",
    "refused.py": APP.replace("payment: dict", "a, b, c, d"),
    "empty.py": 'from keepfast import App\napp = App("empty")\n',
    "lazy.py": "def __getattr__(name):\n    raise RuntimeError('no database')\n",
    "odd/signal.py": APP,
    "odd/not-a-name.py": APP,
    "src/inside.py": APP,
    "app/within.py": APP,
    "package/__init__.py": "",
    "package/main.py": "import package.other\n" + APP,
    "package/other.py": "",
    "package/bad.py": "import package.missing\n",
}

CASES = [
    ("nope:app", "There is no module 'nope'"),
    ("goood:app", "Did you mean good:app?"),
    ("package.nope:app", "There is no module 'package.nope'"),
    ("nope.deeper:app", "'nope' is missing"),
    ("within:app", "but it is in app/. Write app/within.py:app"),
    ("insid:app", "Did you mean inside:app?"),
    ("goood.py:app", "goood.py. Did you mean good.py?"),
    ("package/main:app", "Did you mean package.main:app or package/main.py:app?"),
    ("good:1x", "'1x' is not a Python identifier"),
    (":app", "is not a module name"),
    ("", "is not a module name"),
    ("named:app", "named has no 'app'. Did you mean named:payments?"),
    ("two:ohter", "Its Apps are: app, other. Did you mean two:other?"),
    ("two:application", "is not an App; it is of type int. Its Apps are: app, other."),
    ("none:app", 'It has no App; create one with `app = App("name")`'),
    ("factory:create_app", "call it in the module: `app = create_app()`"),
    ("the_class:app", "is the class App, not an instance"),
    ("good:app.nope", "good has no 'app.nope'"),
    ("lazy:app", "no database"),
    ("broken:app", "failed at broken.py:1: SyntaxError"),
    ("raises:app", "failed at raises.py:4: JSONDecodeError: Expecting property name"),
    ("evil:app", "ValueError: red \\x1b[31m alert …"),
    (
        "needs:app",
        "failed at needs.py:1: ModuleNotFoundError: No module named 'no_such_package'. Install the package that",
    ),
    ("package.bad:app", "failed at package/bad.py:1: ModuleNotFoundError: No module named 'package.missing'"),
    ("exits:app", "exits the program at exits.py:2: it calls sys.exit(7)"),
    ("refused:app", "refused.py:6: "),
    ("empty:app", "has no consumers; decorate a function with @app.consumer"),
    ("odd/signal.py:app", "Rename the file."),
    ("odd/not-a-name.py:app", "is not a module name. Rename it."),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("project")
    for name, text in FILES.items():
        path = made / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return made


@pytest.mark.parametrize(("target", "printed"), CASES, ids=[target or "nothing" for target, _ in CASES])
def test_in_a_sentence(folder: Path, target: str, printed: str) -> None:
    done = keepfast("run", target, cwd=folder)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ")
    assert printed in done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "target", ["good", "good:app", "good.py", "package.main:app", "package/main.py:app", "src/inside.py", "inside:app"]
)
def test_a_right_target_gets_as_far_as_its_settings(folder: Path, target: str) -> None:
    done = keepfast("run", target, cwd=folder, KEEPFAST_SHUTDOWN_TIMEOUT_S="soon")
    assert done.returncode == 2
    assert "KEEPFAST_SHUTDOWN_TIMEOUT_S" in done.stderr


def test_debug_shows_the_traceback_and_then_the_sentence(folder: Path) -> None:
    done = keepfast("run", "raises:app", "--debug", cwd=folder)
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert "json.loads" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: Importing 'raises' failed at raises.py:4")


def test_all_problems_of_the_settings_are_numbered(folder: Path) -> None:
    wrong = {"KEEPFAST_SHUTDOWN_TIMEOUT_S": "soon", "KEEPFAST_CONSUMER_ORDER": "random", "KEEPFAST_NO_SUCH": "1"}
    done = keepfast("run", "good:app", cwd=folder, **wrong)
    lines = done.stderr.splitlines()
    assert done.returncode == 2
    assert lines[0] == "Error: 3 problems; nothing was started:"
    assert [line[:5] for line in lines[1:]] == ["  1. ", "  2. ", "  3. "]
    assert all(name in done.stderr for name in wrong)


def test_an_unknown_consumer_is_named_with_those_that_there_are(folder: Path) -> None:
    done = keepfast("run", "good:app", "--consumer", "chagre", cwd=folder)
    assert done.returncode == 2
    assert "'chagre'" in done.stderr
    assert "it has charge" in done.stderr


@pytest.mark.parametrize(
    "options",
    [["--processes", "0"], ["--processes", "x"], ["--log-level", "loud"], ["--reload", "--processes", "2"], []],
)
def test_wrong_options_are_usage_errors(folder: Path, options: list[str]) -> None:
    done = keepfast("run", *(["good:app", *options] if options else []), cwd=folder)
    assert done.returncode == 2
    assert "Usage: keepfast run" in done.stderr
    assert "Traceback" not in done.stderr
