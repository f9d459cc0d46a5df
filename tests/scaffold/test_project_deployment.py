"""What `keepfast new` writes below deploy/: it fits the app, its settings and the exit codes, and needs no root."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Mapping
from configparser import RawConfigParser
from pathlib import Path, PurePosixPath
from typing import Any

import click
import msgspec
import pytest

from keepfast import App
from keepfast.cli import main
from keepfast.core.exit_codes import NOT_RESTARTED
from keepfast.scaffold import ProjectNames, render
from keepfast.settings import Settings
from tests.scaffold import keda
from tests.support.project_files import ROOT
from tools.reference import health

yaml: Any = importlib.import_module("yaml")
NAMES = ProjectNames.of("shop_pay", "orders.payment.v1")
FILES: Mapping[PurePosixPath, str] = render(NAMES).files
DNS = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SPARE_S = 5


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(FILES[PurePosixPath(name)]))


KUBERNETES = {one["kind"]: one for one in documents("deploy/kubernetes.yaml")}
POD = KUBERNETES["StatefulSet"]["spec"]["template"]["spec"]
[CONTAINER] = POD["containers"]
[SCALED] = documents("deploy/keda.yaml")
[COMPOSE] = documents("compose.yaml")


def unit() -> RawConfigParser:
    parser = RawConfigParser(strict=True)  # a key twice is an error
    parser.optionxform = str  # type: ignore[assignment, method-assign] # keys keep their capitals
    parser.read_string(FILES[PurePosixPath("deploy/shop_pay.service")])
    return parser


def settings_under(environ: Mapping[str, str], folder: Path) -> Settings:
    app = App("shop_pay")

    @app.consumer("orders.payment.v1")
    def handle(message: dict) -> None: ...  # type: ignore[type-arg]

    return app.settings(environ=environ, cwd=folder)


def test_its_variables_are_settings_and_every_pod_is_a_static_member(tmp_path: Path) -> None:
    [instance] = CONTAINER["env"]
    assert instance["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    reported = {**KUBERNETES["ConfigMap"]["data"], instance["name"]: "shop-pay-3"}
    settings = settings_under(reported, tmp_path)
    own = settings.consumers["handle"]
    assert (own.group_instance_id, own.group, own.topics) == ("shop-pay-3", NAMES.group, (NAMES.topic,))
    assert (settings.app.env, settings.health.port, settings.warnings) == ("production", 8080, ())
    assert all(isinstance(value, str) for value in KUBERNETES["ConfigMap"]["data"].values())


def test_what_it_had_in_hand_outlives_a_crash_of_the_container(tmp_path: Path) -> None:
    state = settings_under(KUBERNETES["ConfigMap"]["data"], tmp_path).state.dir
    [mounted] = [one["name"] for one in CONTAINER["volumeMounts"] if one["mountPath"] == state]
    [volume] = [one for one in POD["volumes"] if one["name"] == mounted]
    assert "emptyDir" in volume


def test_the_stop_timeout_is_longer_than_the_drain(tmp_path: Path) -> None:
    drain_s = settings_under(KUBERNETES["ConfigMap"]["data"], tmp_path).shutdown.timeout_s
    *_, pre_stop_s = CONTAINER["lifecycle"]["preStop"]["exec"]["command"]
    assert POD["terminationGracePeriodSeconds"] >= drain_s + float(pre_stop_s) + SPARE_S
    service = unit()["Service"]
    reported = dict(part.split("=", 1) for part in service["Environment"].split())
    drain_s = settings_under(reported, tmp_path).shutdown.timeout_s
    assert float(service["TimeoutStopSec"]) >= drain_s + SPARE_S
    grace = COMPOSE["services"]["consumer"]["stop_grace_period"]
    assert float(grace.removesuffix("s")) >= settings_under({}, tmp_path).shutdown.timeout_s + SPARE_S


@pytest.mark.parametrize(
    ("probe", "path"), [("startupProbe", "startup"), ("livenessProbe", "live"), ("readinessProbe", "ready")]
)
def test_each_probe_asks_its_own_question(probe: str, path: str) -> None:
    assert CONTAINER[probe]["httpGet"] == {"path": f"/health/{path}", "port": CONTAINER["ports"][0]["name"]}
    assert f"/health/{path}" in health.INTRODUCTION, "the reference of paths has it"


def test_it_runs_without_rights_that_it_does_not_need() -> None:
    assert {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000}.items() <= POD["securityContext"].items()
    own = CONTAINER["securityContext"]
    assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert POD["automountServiceAccountToken"] is False
    assert (unit()["Service"]["DynamicUser"], unit()["Service"]["NoNewPrivileges"]) == ("yes", "yes")


def test_names_are_legal_and_everything_finds_everything() -> None:
    for one in (*KUBERNETES.values(), SCALED):
        assert DNS.fullmatch(one["metadata"]["name"]), one["kind"]
        assert one["metadata"]["name"] == "shop-pay"
    labels = KUBERNETES["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    chosen = [KUBERNETES[kind]["spec"]["selector"]["matchLabels"] for kind in ("StatefulSet", "PodDisruptionBudget")]
    assert [*chosen, KUBERNETES["Service"]["spec"]["selector"]] == [labels] * 3
    assert KUBERNETES["StatefulSet"]["spec"]["serviceName"] == KUBERNETES["Service"]["metadata"]["name"]
    assert SCALED["spec"]["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "shop-pay"}


def test_it_is_scaled_by_the_lag_of_its_own_group_and_never_beyond_the_partitions() -> None:
    [trigger] = SCALED["spec"]["triggers"]
    asked = trigger["metadata"]
    assert (asked["consumerGroup"], asked["topic"]) == (NAMES.group, NAMES.topic)
    assert asked["bootstrapServers"] == KUBERNETES["ConfigMap"]["data"]["KAFKA_BROKERS"]
    assert all(isinstance(value, str) for value in asked.values()), "KEDA takes texts only"
    [partitions] = [part for part in COMPOSE["services"]["topics"]["command"] if part.startswith("--partitions=")]
    assert SCALED["spec"]["maxReplicaCount"] == int(partitions.partition("=")[2])
    assert SCALED["spec"]["minReplicaCount"] >= 1


def test_every_field_is_one_that_keda_knows() -> None:
    made = msgspec.convert(SCALED, keda.ScaledObject)
    assert made.spec.min_replica_count <= made.spec.max_replica_count
    wrong = msgspec.json.decode(msgspec.json.encode(SCALED))
    wrong["spec"]["triggers"][0]["metadata"]["lagTreshold"] = "5"
    with pytest.raises(msgspec.ValidationError, match="lagTreshold"):
        msgspec.convert(wrong, keda.ScaledObject)


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile, comments left out and lines joined."""
    text = re.sub(r"(?m)^#.*\n", "", FILES[PurePosixPath("Dockerfile")]).replace("\\\n", " ")
    return [
        (word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in text.split("\n") if line)
    ]


def test_the_image_is_slim_without_root_and_asks_for_its_health() -> None:
    found = instructions()
    last = dict(found)
    assert [rest for word, rest in found if word == "FROM"] == ["python:3.13-slim"]
    assert last["USER"] == "1000:1000"
    assert any("groupadd --gid 1000" in rest and "useradd --uid 1000" in rest for word, rest in found if word == "RUN")
    assert found.index(("USER", "1000:1000")) > max(n for n, (word, _) in enumerate(found) if word in ("RUN", "COPY"))
    check = last["HEALTHCHECK"]
    assert {"--interval=30s", "--timeout=10s", "--start-period=40s", "--retries=3"} <= set(check.split())
    asks = msgspec.json.decode(check.partition("CMD ")[2])
    assert asks[:2] == ["python", "-c"]
    compile(asks[2], "HEALTHCHECK", "exec")
    assert "/health'" in asks[2]
    assert "HEALTH_CHECK_PORT" in asks[2]
    assert msgspec.json.decode(last["ENTRYPOINT"]) == ["shop_pay-consumer"], "a list: SIGTERM reaches it, and no shell"
    assert last["EXPOSE"] == str(CONTAINER["ports"][0]["containerPort"])
    names = [rest.split() for word, rest in found if word == "COPY"]
    assert names[0][0] == "pyproject.toml", "dependencies before the code"
    assert all((source in {path.parts[0] for path in FILES}) for *sources, _ in names for source in sources)


def test_the_entry_point_of_the_image_is_one_of_the_package() -> None:
    project = tomllib.loads(FILES[PurePosixPath("pyproject.toml")])["project"]
    assert project["scripts"] == {"shop_pay-consumer": "shop_pay.app:main"}
    assert "def main()" in FILES[PurePosixPath("src/shop_pay/app.py")]


def test_compose_waits_for_what_the_consumer_needs(tmp_path: Path) -> None:
    services = COMPOSE["services"]
    own = services["consumer"]
    assert own["build"] == "."
    for name, needed in own["depends_on"].items():
        assert name in services
        healthy = needed["condition"] == "service_healthy"
        assert ("healthcheck" in services[name]) == healthy, f"{name} can say so"
    settings = settings_under({name: str(value) for name, value in own["environment"].items()}, tmp_path)
    assert (settings.kafka.brokers, settings.consumers["handle"].group) == (("kafka:29092",), NAMES.group)
    assert "kafka:29092" in services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert own["environment"]["POSTGRES_DB"] == services["postgres"]["environment"]["POSTGRES_DB"]


def test_the_probes_in_the_documentation_are_those_of_the_manifest() -> None:
    page = (ROOT / "docs/how-to/monitor.md").read_text()
    [block] = re.findall(r'```yaml title="in a Kubernetes container"\n(.*?)```', page, re.DOTALL)
    reported = yaml.safe_load(block)
    assert {name: probe["httpGet"]["path"] for name, probe in reported.items()} == {
        name: CONTAINER[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }


def test_systemd_starts_it_again_as_a_supervisor_would_and_signals_the_supervisor_alone() -> None:
    service = unit()["Service"]
    assert (service["Restart"], service["KillMode"], service["KillSignal"]) == ("on-failure", "mixed", "SIGTERM")
    assert set(map(int, service["RestartPreventExitStatus"].split())) == NOT_RESTARTED


def test_their_options_are_those_of_run() -> None:
    run = main.get_command(click.Context(main), "run")
    assert run is not None
    program, *words = unit()["Service"]["ExecStart"].split()
    assert program.endswith("/shop_pay-consumer")
    for options in (words, CONTAINER["args"]):
        run.make_context("run", ["shop_pay.app:app", *options], resilient_parsing=False)
