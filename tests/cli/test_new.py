"""`keepfast new` makes a package that is whole: its tests pass, its types hold, and `keepfast dev` runs it."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from neotool_common.profiles import PROFILES

from keepfast.core.errors import ConfigError
from keepfast.scaffold import ProjectNames, render
from keepfast.testing.jars import KAFKA_VERSION
from tests.support.command import environment, keepfast, running
from tests.support.postgres import running as running_postgres
from tests.support.waiting import DEADLINE_S, wait_until

ROOT = Path(__file__).parents[2]
TOPIC = "orders.payment.v1"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    done = keepfast("new", "shop-payments", "--topic", TOPIC, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "keepfast dev shop_payments.app:app" in done.stderr
    return folder / "shop-payments"


def inside(project: Path, *command: str, **variables: str) -> subprocess.Popen[str]:
    """In the project, as its owner would: nothing of this test session reaches it."""
    environ = {name: value for name, value in environment(**variables).items() if not name.startswith("PYTEST")}
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=project,
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def cached(folder: Path) -> list[str]:
    """Options with which mypy finds keepfast's own types in a copy of the cache that `make check` has filled."""
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    if (ROOT / ".mypy_cache").exists():
        shutil.copytree(ROOT / ".mypy_cache", folder / "types")
    codes = [f"--enable-error-code={code}" for code in ours["enable_error_code"]]
    return ["--cache-dir", str(folder / "types"), "--python-version", ours["python_version"], *codes]


def test_its_own_tests_pass_its_types_hold_and_it_breaks_no_rule(project: Path, tmp_path: Path) -> None:
    tests = inside(project, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    types = inside(project, "-m", "mypy", "--strict", *cached(tmp_path))
    shape = inside(
        project, "-m", "ruff", "check", "--isolated", "--no-cache", "--ignore", "RUF200", "."
    )  # hatch fills {root:uri}
    check = ("-P", "-m", "keepfast", "check", "shop_payments.app:app", "--strict")
    documents = [option for profile in PROFILES for option in ("--profile", profile.name)]
    served = {"HEALTH_CHECK_ENABLED": "true"}  # these tests switch health off; nobody else does
    rules = [inside(project, *check, **served), inside(project, *check, *documents, **served)]
    processes = (tests, types, shape, *rules)
    printed = [process.communicate(timeout=100)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0, 0, 0], "\n".join(printed)
    assert "12 passed" in printed[0]


@pytest.fixture(scope="module")
def dotenv(project: Path) -> Iterator[str]:
    """A `.env` that names a database, as the project's owner writes it; its URL."""
    with running_postgres() as url:
        parts = urlsplit(url)
        host = parts.hostname or parse_qs(parts.query)["host"][0]
        lines = [
            f"POSTGRES_HOST={host}",
            f"POSTGRES_USER={parts.username or 'postgres'}",
            f"POSTGRES_DB={parts.path[1:]}",
        ]
        lines += [f"POSTGRES_PORT={parts.port}"] if parts.port else []
        lines += [f"POSTGRES_PASSWORD={parts.password}"] if parts.password else []
        (project / ".env").write_text("\n".join(lines))
        with psycopg.connect(url) as connection:
            connection.execute((project / "schema.sql").read_text())
        yield url
    (project / ".env").unlink()


def saved(url: str) -> list[tuple[str, int]]:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT id, amount FROM messages ORDER BY id").fetchall()


def test_dev_runs_it_as_it_is_on_the_database_of_its_dotenv(project: Path, tmp_path: Path, dotenv: str) -> None:
    printed, here = tmp_path / "printed", {"XDG_RUNTIME_DIR": str(tmp_path)}
    with running("dev", "shop_payments.app:app", cwd=project, printed=printed, **here) as process:
        example = 'keepfast send orders.payment.v1 \'{"id": "id-1", "amount": 1}\''
        wait_until(lambda: f"To send a record, from another terminal: {example}\n" in printed.read_text(), "the start")
        for amount in (12, -1):
            done = keepfast("send", TOPIC, f'{{"id": "a1", "amount": {amount}}}', cwd=project, **here)
            assert done.returncode == 0, done.stderr
        wait_until(
            lambda: '"dead_lettered"' in printed.read_text() and "processed a1" in printed.read_text(), "both records"
        )
        assert saved(dotenv) == [("a1", 12)]
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0
    assert "NEGATIVE_AMOUNT" in printed.read_text()


def in_the_project(project: Path, script: str, **variables: str) -> list[str]:
    path = os.pathsep.join(["src", os.environ.get("PYTHONPATH", "")])
    process = inside(project, "-c", script, PYTHONPATH=path, **variables)
    printed, _ = process.communicate(timeout=100)
    return printed.splitlines()


def test_its_store_keeps_each_message_once_and_its_pool_is_closed(project: Path, dotenv: str) -> None:
    script = """
from shop_payments.app import app, lifespan
from shop_payments.tasks.message import Message
with lifespan(app) as resources:
    store = resources.store
    for amount in (1, 2):
        store.save(Message("b1", amount))
    try:
        store.save(Message("b2", 2**70))
    except Exception as error:
        print(type(error).__name__)
    store.save(Message("b3", 3))
print(store._pool.closed)
"""
    assert in_the_project(project, script) == ["NumericValueOutOfRange", "True"]
    assert [row for row in saved(dotenv) if row[0].startswith("b")] == [("b1", 1), ("b3", 3)]


def test_without_its_database_it_does_not_start(project: Path, dotenv: str) -> None:
    script = """
from shop_payments.app import app, lifespan
from shop_payments.tasks import database
database.CONNECT_TIMEOUT_S = 1.0
try:
    with lifespan(app):
        print("started")
except Exception as error:
    print(error)
    print(type(error).__name__)
"""
    reported = in_the_project(project, script, POSTGRES_HOST="127.0.0.1", POSTGRES_PORT="1")
    assert reported[-1] == "PoolTimeout"
    assert reported[-2].startswith("no PostgreSQL at 127.0.0.1:1 (")
    assert "Connection refused); " in reported[-2]
    assert reported[-2].endswith("docker compose up -d postgres; one of your own: POSTGRES_HOST in .env")
    assert len(reported) == 2, "one error, and no warnings of the pool"
    assert dotenv


def test_its_settings_repeat_no_default(project: Path) -> None:
    assert tomllib.loads((project / "keepfast.toml").read_text()) == {}
    assert "class MemoryStore" not in "".join(path.read_text() for path in (project / "src").rglob("*.py"))


def test_the_image_is_slim_non_root_and_has_a_health_check(project: Path) -> None:
    dockerfile = (project / "Dockerfile").read_text()
    assert re.search(r"^FROM python:3\.\d+-slim$", dockerfile, re.MULTILINE)
    assert "--uid 1000" in dockerfile
    assert dockerfile.index("USER 1000:1000") < dockerfile.index("ENTRYPOINT")
    assert "HEALTHCHECK --interval=30s --timeout=10s --start-period=40s --retries=3" in dockerfile
    assert "/health'" in dockerfile
    assert "EXPOSE 8080" in dockerfile
    assert "PIP_NO_CACHE_DIR=1" in dockerfile
    steps = ["COPY pyproject.toml", "pip install", "COPY src", "pip install --no-deps"]
    assert [dockerfile.index(step) for step in steps] == sorted(dockerfile.index(step) for step in steps)
    scripts = tomllib.loads((project / "pyproject.toml").read_text())["project"]["scripts"]
    assert f'ENTRYPOINT ["{next(iter(scripts))}"]' in dockerfile
    assert {".env", ".git", "tests"} <= set((project / ".dockerignore").read_text().splitlines())


def test_the_compose_file_brings_kafka_and_postgres(project: Path) -> None:
    yaml: Any = importlib.import_module("yaml")
    services = yaml.safe_load((project / "compose.yaml").read_text())["services"]
    assert set(services) == {"kafka", "topics", "postgres", "consumer"}
    assert services["kafka"]["image"] == f"apache/kafka:{KAFKA_VERSION}"
    consumer = services["consumer"]
    reported = consumer["environment"]
    assert (reported["KAFKA_INPUT_TOPIC"], reported["KAFKA_CONSUMER_GROUP"]) == (TOPIC, "shop-payments.handle")
    assert (reported["POSTGRES_HOST"], reported["POSTGRES_DB"], reported["HEALTH_CHECK_PORT"]) == (
        "postgres",
        "shop_payments",
        8080,
    )
    assert set(consumer["depends_on"]) == {"postgres", "topics"}
    inner = services["consumer"]["environment"]["KAFKA_BROKERS"]
    assert f"INSIDE://{inner}" in services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"--topic={TOPIC}" in services["topics"]["command"]


def test_the_readme_names_the_group_the_configuration_and_the_other_layout(project: Path) -> None:
    readme = (project / "README.md").read_text()
    named = {"`shop-payments.handle`", "`orders.payment.dlq`", "`POSTGRES_HOST`", "`RETRY_MAX_RETRIES`"}
    other = {"flows/consumer.py", "tasks/db_connection.py", "tasks/dlq_publisher.py", "retry_utils.py"}
    assert [text for text in sorted(named | other) if text not in readme] == []


def test_nothing_is_overwritten_and_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    done = keepfast("new", "shop", "--dry-run", cwd=tmp_path)
    assert (done.returncode, "shop/src/shop/app.py" in done.stdout) == (0, True)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "mine").write_text("precious")
    done = keepfast("new", "shop", cwd=tmp_path)
    assert (done.returncode, "nothing was written" in done.stderr) == (2, True), done.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["shop", "mine"]
    done = keepfast("new", "shop", "--into", "deep/er", cwd=tmp_path)
    assert (done.returncode, (tmp_path / "deep" / "er" / "pyproject.toml").is_file()) == (0, True), done.stderr


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("2pay", "Try pay."),
        ("My Shop!", "Try my-shop."),
        ("", "start with a letter"),
        ("a" * 60, "at most 50 characters"),
        ("logging", "Try logging-consumer."),
        ("class", "Try class-consumer."),
        ("keepfast", "conflict with"),
        ("../away", "Try away."),
    ],
)
def test_a_name_that_cannot_be_one_is_refused_in_a_sentence(name: str, printed: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ProjectNames.of(name)
    [problem] = refused.value.problems
    assert printed in problem


def test_every_name_of_a_project_fits_and_every_template_is_filled() -> None:
    names = ProjectNames.of("shop")
    assert (names.topic, names.group, names.dead_letter_topic) == ("shop.event.v1", "shop.handle", "shop.event.dlq")
    left = [str(path) for path, text in render(names).files.items() if "{{" in text or "__package__" in str(path)]
    assert left == []
    with pytest.raises(ConfigError, match="--topic is 'a b'"):
        ProjectNames.of("shop", "a b")


def packed(folder: Path) -> Path:
    [wheel] = (folder / "wheels").glob("*.whl")
    return wheel


def test_it_installs_keepfast_from_its_own_wheel_and_never_from_an_index(project: Path, tmp_path: Path) -> None:
    wheel = packed(project)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    target = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(tmp_path)]
    done = inside(project, "-m", "pip", "install", *target, ".", PIP_CONFIG_FILE=os.devnull)
    assert (done.communicate(timeout=60)[0], done.returncode) == ("", 0)
    [metadata] = tmp_path.glob("shop_payments-*.dist-info/METADATA")
    needed = [line for line in metadata.read_text().splitlines() if line.startswith("Requires-Dist: keepfast")]
    assert needed == [f"Requires-Dist: keepfast @ {wheel.as_uri()}#sha256={digest}"]
    written = [project / path for path in render(ProjectNames.of("shop-payments")).files]
    asks = re.compile(r"pip install[^\n]*(keepfast|find-links)")
    assert [path for path in written if asks.search(path.read_text())] == []


def test_the_wheel_is_the_keepfast_that_made_it(project: Path, tmp_path: Path) -> None:
    done = inside(tmp_path, "-P", "-m", "keepfast", "new", "again", PYTHONPATH=str(packed(project)))
    printed, _ = done.communicate(timeout=60)
    assert done.returncode == 0, printed
    assert packed(tmp_path / "again").read_bytes() == packed(project).read_bytes()


def test_a_wheel_can_be_given_and_must_be_one_of_keepfast(project: Path, tmp_path: Path) -> None:
    own = tmp_path / "keepfast-9.9-py3-none-any.whl"
    own.write_bytes(packed(project).read_bytes())
    done = keepfast("new", "shop", "--wheel", str(own), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert packed(tmp_path / "shop").name == own.name
    for name, content, printed in [
        ("other-9.9-py3-none-any.whl", own.read_bytes(), "not a wheel of keepfast"),
        ("keepfast-9.8-py3-none-any.whl", b"torn", "is damaged"),
        ("keepfast-9.7-py3-none-any.whl", None, "cannot be read: No such file or directory"),
    ]:
        if content is not None:
            (tmp_path / name).write_bytes(content)
        done = keepfast("new", "never", "--wheel", str(tmp_path / name), cwd=tmp_path)
        assert (done.returncode, printed in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "never").exists()
