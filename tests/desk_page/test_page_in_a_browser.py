"""The page in headless Chromium: nothing that a record contains is ever executed, live updates wait for a person at
work, keyboard, themes, the width of a phone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from keepfast.core.policies import LETTER_FORMATS
from keepfast.deadletters.fingerprint import fingerprint
from keepfast.deadletters.letter import Letter
from keepfast.deadletters.writing import write
from keepfast.testing.topics import TopicAdmin
from tests.desk_page.conftest import ServedDesk
from tests.desk_page.test_page import SCREENS
from tests.support.broker_client import Client, NewRecord
from tests.support.chromium import chromium
from tests.support.desk_scene import records

pytestmark = pytest.mark.chromium

XSS = (
    "<script>window.pwned=1</script>",
    '"><img src=x onerror=window.pwned=1>',
    "'><svg onload=window.pwned=1>",
    "javascript:window.pwned=1",
    "</textarea><script>window.pwned=1</script>",
    "</title></style></pre></code><iframe srcdoc='<script>parent.pwned=1</script>'>",
    "{{ 7*7 }}{% raw %}${7*7}",
    "<a href=javascript:window.pwned=1 autofocus onfocus=window.pwned=1>x</a>",
    "\u202e<b onmouseover=window.pwned=1>\u0000x",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=window.pwned=1>",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


def logged_in(browser: Browser, served: ServedDesk, **options: Any) -> Page:
    page = browser.new_context(**options).new_page()
    page.goto(f"{served.address}/login#token={served.tokens['admin']}")
    page.wait_for_url(f"{served.address}/")
    return page


def poisoned(text: str, number: int) -> NewRecord:
    letter = Letter(
        topic=f"t.{text}"[:200],
        partition=number,
        offset=number,
        key=text.encode(),
        value=json.dumps({text: text, "nested": {text: [text]}}).encode(),
        headers=((text, text.encode()), ("plain", text.encode())),
        error_type=text,
        error_class=text,
        error_message=f"{text} and {text}",
        error_code=text,
        classification=text,
        reason=text,
        fingerprint=fingerprint(text, text),
        stack_trace=f'Traceback\n  File "/srv/{text}.py", line 1, in {text}\n    x\n{text}: {text}',
        failed_at_ms=1_700_000_000_000 + number,
        group=text,
        handler=text,
        app_version=text,
        trace_id=text,
    )
    value, headers = write(letter, LETTER_FORMATS[number % len(LETTER_FORMATS)])
    return NewRecord(value, letter.key, headers)


def test_nothing_in_a_record_is_executed(kafka: TopicAdmin, served: ServedDesk, browser: Browser) -> None:
    client = Client(kafka)
    client.produce(served.letters, [poisoned(text, number) for number, text in enumerate(XSS)])
    client.produce(served.letters, [NewRecord(text.encode(), text.encode(), ((text, text.encode()),)) for text in XSS])
    page = logged_in(browser, served)
    problems: list[str] = []
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    page.on(
        "console", lambda message: problems.append(message.text) if "Content Security Policy" in message.text else None
    )
    page.on(
        "request", lambda request: problems.append(request.url) if not request.url.startswith(served.address) else None
    )
    served.desk.refresh()
    cases = served.desk.cases(size=100).cases
    assert len(cases) == 2 * len(XSS)
    for case in cases:
        served.desk.note(case.id, XSS[0] + XSS[1])
    addresses = [*SCREENS, *(f"/causes/{quote(one.fingerprint)}" for one in served.desk.causes() if one.fingerprint)]
    addresses += [f"/?q={quote(text)}&group={quote(text)}&show={quote(text)}&refused={quote(text)}" for text in XSS]
    addresses += [f"/audit?q={quote(text)}" for text in XSS[:2]]
    for address in addresses:
        page.goto(f"{served.address}{address}")
        assert page.evaluate("window.pwned") is None, address
    for case in cases:
        page.goto(f"{served.address}/message?id={quote(case.id, safe='')}")
        assert page.evaluate("window.pwned") is None, case.id
        page.click("#reveal")
        page.wait_for_load_state()
        assert page.evaluate("window.pwned") is None, case.id
    assert problems == []


def test_the_page_is_live_and_waits_while_a_person_selects(
    kafka: TopicAdmin, served: ServedDesk, browser: Browser
) -> None:
    client, made = Client(kafka), records(60)
    client.produce(served.letters, made[:40])
    page = logged_in(browser, served)
    expect(page.locator(".live")).to_have_attribute("data-state", "live")
    expect(page.locator("#verdict em")).to_have_text("40")
    client.produce(served.letters, made[40:50])
    expect(page.locator("#verdict em")).to_have_text("50", timeout=20_000)
    page.goto(f"{served.address}/records")
    page.locator("input[name=case]").first.check()
    expect(page.locator("[data-selection]").first).to_have_text("1 selected")
    page.locator("h1").click()  # the focus is elsewhere: what counts is the selection
    client.produce(served.letters, made[50:])
    expect(page.locator(".live")).to_have_attribute("data-state", "paused", timeout=20_000)
    expect(page.locator("#list header p")).to_contain_text("50")
    page.locator("input[name=case]").first.uncheck()
    page.locator("h1").click()
    expect(page.locator("#list header p")).to_contain_text("60", timeout=20_000)


def test_it_is_used_by_keyboard_in_both_themes_and_on_a_phone(
    kafka: TopicAdmin, served: ServedDesk, browser: Browser
) -> None:
    Client(kafka).produce(served.letters, records(40))
    page = logged_in(browser, served, viewport={"width": 390, "height": 844}, color_scheme="dark")
    for screen in SCREENS:
        page.goto(f"{served.address}{screen}")
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{screen} is {wide} px too wide"
        assert page.evaluate(UNLABELLED) == [], screen
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate(CONTRAST) == [], f"{screen} {scheme}"
        page.emulate_media(color_scheme="dark")
    page.goto(served.address)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/causes/**")
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_url("**/audit")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    before = page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor")
    page.click("[data-theme-switch]")
    assert page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor") != before
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == "light"


UNLABELLED = """() => [...document.querySelectorAll('input:not([type=hidden]), select, textarea, button, a')]
  .filter(one => !(one.labels?.length || one.getAttribute('aria-label') || one.textContent.trim()))
  .map(one => one.outerHTML.slice(0, 120))"""

CONTRAST = """() => {
  const rgb = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const f = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = ([r, g, b]) => {
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const ground = one => { for (; one; one = one.parentElement) { const c = rgb(getComputedStyle(one).backgroundColor);
    if (c.length < 4 || c[3] > 0.9) return c; }
    return rgb(getComputedStyle(document.documentElement).backgroundColor); };
  const bad = [];
  for (const one of document.querySelectorAll('main *, nav *, .side *')) {
    const own = [...one.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || one.closest('[disabled], dialog:not([open]), .visually-hidden, .skip')) continue;
    if (!one.getClientRects().length) continue;
    const a = light(rgb(getComputedStyle(one).color)), b = light(ground(one));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(one.className + ' ' + one.textContent.trim().slice(0, 30) + ' ' + ratio.toFixed(2));
  }
  return bad.slice(0, 5);
}"""
