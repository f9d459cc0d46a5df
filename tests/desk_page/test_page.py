"""The page without a browser: what each role sees and may do, marks, notes, reveals, the audit."""

from __future__ import annotations

import html
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from keepfast.core.schemas import SchemaRef
from keepfast.deadletters.letter import Letter
from keepfast.desk.case_filter import CaseFilter
from keepfast.desk.cases import CaseState
from keepfast.desk.letters import SchemaReading
from keepfast.desk_page.tokens import Role
from keepfast.testing.topics import TopicAdmin
from tests.desk_page.conftest import ServedDesk
from tests.support.broker_client import Client
from tests.support.command import keepfast
from tests.support.desk_scene import letters, records, written

SCREENS = ("/", "/records", "/discarded", "/replay", "/runs", "/consumers", "/timeline", "/audit", "/storage")
COUNT = 120


def csrf_of(text: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', text)
    assert found is not None
    return found[1]


def test_a_person_on_call_reads_marks_restores_notes_and_reveals(kafka: TopicAdmin, served: ServedDesk) -> None:
    Client(kafka).produce(served.letters, records(COUNT))
    page = served.page("admin")
    start = page.get("/").text
    assert f"<em>{COUNT}</em>" in start
    assert "4 causes" in start
    cause = next(one for one in served.desk.causes() if one.error_type == "KeyError")
    text = page.get(f"/causes/{cause.fingerprint}").text
    assert "The field currency is missing at shop/pricing.py:48." in text
    assert 'class="differs"' in text, "two samples differ"
    assert "<td>coupon</td>" in text
    # put aside, with everything that matches
    csrf = csrf_of(text)
    form = {
        "csrf": csrf,
        "back": "/",
        "everything": "1",
        "seen_ms": str(served.desk.now_ms()),
        "cause": cause.fingerprint,
    }
    done = page.post("/mark", data={**form, "show": "waiting", "do": "discard", "why": "load test"})
    assert done.headers["location"] == f"/?done=discarded&n={cause.count}"
    assert served.desk.summary().counts[CaseState.DISCARDED] == cause.count
    assert "load test" in page.get("/discarded").text
    done = page.post("/mark", data={**form, "show": "put-aside", "do": "restore"})
    assert done.headers["location"] == f"/?done=restored&n={cause.count}"
    # one message: masked, then revealed
    case = served.desk.cases(CaseFilter(causes=frozenset({cause.fingerprint}))).cases[0]
    address = f"/message?id={quote(case.id)}"
    masked = page.get(address).text
    assert "text of 4" in masked
    assert "Oslo" not in masked
    revealed = page.post("/message/reveal", data={"csrf": csrf, "case": case.id}).text
    assert "Oslo" in revealed
    assert page.post("/note", data={"csrf": csrf, "case": case.id, "note": "mine", "back": address}).status_code == 303
    assert "mine" in page.get(address).text
    # a decision keeps the note of another person, and a note the name of who decided
    served.desk.acting_as("ada", "page").mark([case.id], "discarded", why="no address")
    served.desk.acting_as("bob", "page").note(case.id, "asked them")
    text = html.unescape(page.get(address).text)
    assert "Marked as discarded by ada: no address" in text
    assert "asked them" in text
    served.desk.mark([case.id], "restored")
    assert "asked them" in page.get(address).text
    # what is needed for the audit
    fail = {"csrf": csrf, "case": case.id, "do": "fail", "back": address}
    assert "needs+a+reason" in page.post("/mark", data=fail).headers["location"]
    audit = [(one.action, one.by, one.via) for one in served.desk.audit()]
    assert ("reveal", "admin-person", "page") in audit
    assert {one[0] for one in audit} >= {"discard", "restore", "note", "reveal"}
    assert "admin-person" in page.get("/audit").text


def read(letter: Letter) -> SchemaReading:
    """In place of a registry, which has the schema 1 alone."""
    if letter.schema is None or letter.schema.id != 1:
        return SchemaReading(None, "the registry does not know its schema")
    return SchemaReading(b'{"city": "Oslo"}', f"read by {letter.schema}")


@pytest.mark.parametrize("served", [read], indirect=True)
def test_values_are_decoded_by_the_registry_and_masked_as_others(kafka: TopicAdmin, served: ServedDesk) -> None:
    client, [known, unknown] = Client(kafka), list(letters(2))
    for letter, number in ((known, 1), (unknown, 99)):
        ref = SchemaRef(format="avro", subject="shop.order.v1-value", id=number, version=3)
        client.produce(served.letters, [written(replace(letter, value=b"\0\0\0\0\x01\x08Oslo", schema=ref))])
    page = served.page("admin")
    assert "<em>2</em>" in page.get("/").text
    cases = {case.partition: case.id for case in served.desk.cases(CaseFilter()).cases}
    masked = page.get(f"/message?id={quote(cases[known.partition])}").text
    assert "avro shop.order.v1-value version 3 (id 1)" in masked
    assert "text of 4" in masked
    assert "Oslo" not in masked
    form = {"csrf": csrf_of(masked), "case": cases[known.partition]}
    assert "&#34;city&#34;: &#34;Oslo&#34;" in page.post("/message/reveal", data=form).text
    with served.api() as api:
        revealed = api.post("/case/reveal", json={"case": cases[known.partition]}).json()
    assert json.loads(revealed["value"]["decoded"]) == {"city": "Oslo"}
    broken = page.get(f"/message?id={quote(cases[unknown.partition])}").text
    assert "the registry does not know its schema" in broken
    assert "version 3 (id 99)" in broken


def test_what_fails_after_the_page_was_made_is_not_part_of_all(kafka: TopicAdmin, served: ServedDesk) -> None:
    client = Client(kafka)
    client.produce(served.letters, records(20))
    page = served.page("replayer")
    csrf = csrf_of(page.get("/records").text)
    seen_ms = served.desk.now_ms()
    later = records(5, topic="other.v1", now=seen_ms / 1000 + 90_000)
    client.produce(served.letters, later)
    form = {"csrf": csrf, "everything": "1", "seen_ms": str(seen_ms), "do": "discard", "show": "all", "back": "/"}
    assert page.post("/mark", data=form).headers["location"].endswith("n=20")
    served.desk.refresh()
    assert served.desk.summary().counts[CaseState.OPEN] == 5


@pytest.mark.parametrize("role", ["viewer", "replayer", "admin"])
def test_each_screen_is_shown_to_each_role_and_offers_what_it_may_do(
    kafka: TopicAdmin, served: ServedDesk, role: Role
) -> None:
    Client(kafka).produce(served.letters, records(30))
    page = served.page(role)
    for screen in SCREENS:
        answer = page.get(screen)
        assert answer.status_code == 200, f"{screen}: {answer.text[:300]}"
        assert 'id="command"' in answer.text, "the equivalent command"
        assert "style=" not in answer.text, "no inline style"
        assert "<script>" not in answer.text
    case = served.desk.cases().cases[0]
    text = page.get(f"/message?id={quote(case.id)}").text
    assert ("Reveal values" in text) == (role == "admin")
    assert ("Put aside" in text) == (role != "viewer")
    assert page.get("/causes/none").status_code == 404
    assert page.get("/message?id=none").status_code == 404


def test_the_command_of_each_screen_works_as_copied(kafka: TopicAdmin, served: ServedDesk, tmp_path: Path) -> None:
    Client(kafka).produce(served.letters, records(8, topic=f"{served.letters}.gone"))
    page = served.page("admin")
    page.get("/")
    case, [first, *_] = served.desk.cases().cases[0], served.desk.causes()
    screens = [*SCREENS, f"/message?id={quote(case.id)}", f"/causes/{first.fingerprint}?show=all&since=2h"]
    screens += [f"/replay?cause={first.fingerprint}", f"/replay?case={quote(case.id)}", "/discarded?q=it's"]
    for screen in screens:
        found = re.search(r'<code id="command">([^<]+)</code>', page.get(screen).text)
        assert found is not None, screen
        name, *words = shlex.split(html.unescape(found[1]))
        done = keepfast(*words, cwd=tmp_path, KEEPFAST_DESK_TOPIC=served.desk.options.desk_topic)
        missing = screen.startswith("/replay")  # the topic of the records does not exist, and the plan says so
        assert (name, done.returncode) == ("keepfast", 1 if missing else 0), f"{screen}: {found[1]}: {done.stderr}"


def test_nothing_is_read_or_written_without_a_token(kafka: TopicAdmin, served: ServedDesk) -> None:
    Client(kafka).produce(served.letters, records(3))
    served.desk.refresh()
    case = served.desk.cases().cases[0]
    anonymous = served.anonymous()
    for screen in (*SCREENS, f"/message?id={quote(case.id)}", "/discarded.jsonl"):
        assert anonymous.get(screen).headers["location"] == "/login"
    acting = ("/message/reveal", "/message/try", "/message/edit", "/archive", "/storage/purge")
    for path in (*acting, "/mark", "/note", "/replay", "/runs", "/runs/order", "/consumers", "/logout"):
        assert anonymous.post(path, data={"case": case.id, "do": "discard"}).status_code == 401, path
    assert anonymous.get("/live").status_code == 401
    with served.api(None) as api:
        for path in ("/summary", "/causes", "/cases", "/audit", "/runs", "/openapi.json"):
            assert api.get(path).status_code == 401
        acting = ("/case/reveal", "/case/try", "/case/edit", "/cases/archive", "/storage/purge")
        for path in (*acting, "/cases/mark", "/plans", "/runs", "/control", "/case/note"):
            assert api.post(path, json={}).status_code == 401
    with served.api("viewer") as api:
        assert api.post("/cases/mark", json={"cases": [case.id], "do": "discard"}).status_code == 403
        assert api.post("/case/reveal", json={"case": case.id}).status_code == 403
    with served.api("replayer") as api:
        for path, body in (("/case/try", {}), ("/case/edit", {"value": "x"}), ("/cases/archive", {})):
            assert api.post(path, json={"case": case.id, **body}).status_code == 403, path
        assert api.post("/storage/purge", json={"count": 9}).status_code == 403
    served.desk.refresh()
    assert served.desk.summary().counts == {CaseState.OPEN: 3}
    assert served.desk.audit() == []


def test_the_api_does_what_the_page_does(kafka: TopicAdmin, served: ServedDesk) -> None:
    Client(kafka).produce(served.letters, records(COUNT))
    with served.api("replayer") as api:
        assert sum(api.get("/summary").json()["counts"].values()) == COUNT
        causes = api.get("/causes").json()
        assert len(causes) == 4
        some = api.get("/cases", params={"cause": causes[0]["fingerprint"], "size": 3}).json()
        assert len(some["cases"]) == 3
        ids = [one["id"] for one in some["cases"]]
        assert api.post("/cases/mark", json={"cases": ids, "do": "discard", "why": "x"}).json()["changed"] == 3
        assert api.post("/cases/mark", json={"cases": ids, "do": "fail"}).status_code == 400
        assert api.post("/cases/mark", json={"show": "put-aside", "do": "restore"}).json()["changed"] == 3
        history = api.get("/case", params={"id": ids[0]}).json()
        assert history["case"]["state"] == "open"
        assert api.get("/case", params={"id": "none"}).status_code == 404
        assert [one["via"] for one in api.get("/audit").json()] == ["api", "api"]


def test_a_redirect_never_leaves_the_desk(kafka: TopicAdmin, served: ServedDesk) -> None:
    page = served.page("replayer")
    csrf = csrf_of(page.get("/").text)
    for back in (
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "/x\r\nset-cookie: a=b",
    ):
        answer = page.post("/note", data={"csrf": csrf, "case": "none", "note": "x", "back": back})
        assert answer.headers["location"].startswith("/?"), back
