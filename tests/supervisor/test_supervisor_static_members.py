"""Each supervised process keeps its identity in the group over restarts, and no two share one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from keepfast.engine.plan import Plan
from keepfast.settings import AppSpec, Settings, load
from keepfast.supervisor import SupervisorNumber, with_static_members
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


def test_a_second_supervisor_on_the_host_makes_other_names(tmp_path: Path) -> None:
    given = settings(tmp_path)
    made = [with_static_members(given, index=0, host="node-7", supervisor=number) for number in (0, 1)]
    assert [one.consumers["charge"].group_instance_id for one in made] == ["payments-node-7-0", "payments-node-7-s1-0"]


def test_supervisors_of_an_app_have_numbers_of_their_own_and_keep_them_over_restarts(tmp_path: Path) -> None:
    def another(target: str = "app:app", *consumers: str) -> SupervisorNumber:
        return SupervisorNumber(target, consumers, state_dir=str(tmp_path / "state"), cwd=tmp_path)

    first, second, third = another(), another(), another()
    assert [first.acquire(), second.acquire(), third.acquire()] == [0, 1, 2]
    assert [another("app:other").acquire(), another("app:app", "charge").acquire()] == [0, 0], (
        "others clash with nobody"
    )
    first.release()
    assert another().acquire() == 0, "the one that was restarted"
    second.release()
    assert another().acquire() == 1


def test_without_a_state_directory_the_number_is_0(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    assert SupervisorNumber("app:app", (), state_dir=str(tmp_path / "state"), cwd=tmp_path).acquire() == 0


def test_the_message_of_a_name_that_is_taken_says_whose_it_is_and_what_to_do() -> None:
    plan = Plan(name="charge", group="payments.charge", topics=("orders",))
    assert plan.name_taken() == ""
    made = replace(plan, group_instance_id="payments-node-7-0", named_by_supervisor=True).name_taken()
    assert "'payments-node-7-0' was made by the supervisor" in made
    assert "KEEPFAST_CONSUMER_GROUP_INSTANCE_ID for each supervisor" in made
    assert "'till-0'" in replace(plan, group_instance_id="till-0").name_taken()


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
