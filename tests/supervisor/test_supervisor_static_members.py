"""Each supervised process keeps its identity in the group over restarts, and no two share one."""

from __future__ import annotations

from pathlib import Path

from keepfast.settings import AppSpec, Settings, load
from keepfast.supervisor import with_static_members
from keepfast.supervisor.supervisor import instance_id


def settings(cwd: Path, **charge: object) -> Settings:
    consumers: dict[str, dict[str, object]] = {
        "charge": {"topics": "orders.payment.v1", **charge},
        "ship": {"topics": "orders.shipment.v1"},
    }
    return load(AppSpec(name="payments", consumers=consumers), environ={}, cwd=cwd)


def ids(given: Settings, index: int, host: str = "node-7") -> dict[str, str | None]:
    made = with_static_members(given, index=index, host=host)
    return {name: own.group_instance_id for name, own in made.consumers.items()}


def test_named_after_app_host_and_place(tmp_path: Path) -> None:
    assert ids(settings(tmp_path), 3) == {"charge": "payments-node-7-3", "ship": "payments-node-7-3"}


def test_a_configured_name_is_kept_and_numbered(tmp_path: Path) -> None:
    given = settings(tmp_path, group_instance_id="till")
    assert [ids(given, index)["charge"] for index in (0, 1)] == ["till-0", "till-1"]


def test_it_is_known_whose_name_it_is_and_auto_is_classic(tmp_path: Path) -> None:
    given = settings(tmp_path, group_instance_id="till")
    made = with_static_members(given, index=0, host="node-7").consumers
    assert {name: own.named_by_supervisor for name, own in made.items()} == {"charge": False, "ship": True}
    assert {own.group_protocol for own in made.values()} == {"classic"}


def test_a_long_or_odd_name_is_made_to_fit_and_keeps_its_number() -> None:
    assert instance_id("häuser/1", 2) == "h_user_1-2"
    long = instance_id("x" * 400, 12)
    assert (len(long), long[-3:]) == (249, "-12")
