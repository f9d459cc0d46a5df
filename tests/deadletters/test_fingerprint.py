"""One cause has one fingerprint; two causes have two."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given

from keepfast.core.errors import Reject
from keepfast.deadletters.fingerprint import fingerprint, normalised, user_frame, user_place
from tests.support.letters import any_text


@pytest.mark.parametrize(
    ("message", "plain"),
    [
        ("account 17 is closed", "account # is closed"),
        ("took 1.5e3 s, 12:30:01, -7", "took #e# s, #, -#"),
        ("no such user 'bob' in \"eu\" or `us`", "no such user * in * or *"),
        ("can't find what isn't there", "can't find what isn't there"),
        ("it's 'a \\' quote'", "it's *"),
        ("id 4bf92f35-77b3-4da6-a3ce-929d0e0e4736", "id #"),
        ("at 0x7f3a and deadbeef01", "at # and #"),
        ("decade and facade", "decade and facade"),
        ("token tok1aB2cD3eF4gH5iJ6", "token #"),
        ("mail bob@example.org now", "mail * now"),
        ("see https://errors.pydantic.dev/2.7/v/int", "see *"),
        (
            "bad [type=int_type, input_value={'a': [1, 'x']}, input_type=dict]",
            "bad [type=int_type, input_value=*, input_type=dict]",
        ),
        ("  two\n\tlines ", "two lines"),
        ("'billing_address'", "'billing_address'"),  # a KeyError names the key that is missing
        ("'cus_9021'", "*"),
        ("'two words'", "*"),
        ("", ""),
    ],
)
def test_values_do_not_count(message: str, plain: str) -> None:
    assert normalised(message) == plain


@pytest.mark.parametrize("quote", ["'", '"', "`"])
@pytest.mark.parametrize("value", ["bob " * 200, "it is \\" + "bob " * 200, "b" * 490 + "\\"])
def test_a_quoted_value_that_is_cut_does_not_count_either(quote: str, value: str) -> None:
    assert normalised(f"no user {quote}{value}{quote}") == "no user *"


@given(any_text)
def test_any_message_has_a_fingerprint(message: str) -> None:
    found = fingerprint("ValueError", message)
    assert len(found) == 12
    assert int(found, 16) >= 0


def test_the_longest_message_is_quickly_read() -> None:
    for nasty in ("'" * 100_000, "a" * 100_000, "0" * 100_000, "`\"'" * 30_000, "input_value=" * 10_000, "a@" * 50_000):
        fingerprint("ValueError", nasty)


def test_type_message_and_frame_count() -> None:
    seen = {
        fingerprint("ValueError", "no", "app:charge"),
        fingerprint("KeyError", "no", "app:charge"),
        fingerprint("ValueError", "yes", "app:charge"),
        fingerprint("ValueError", "no", "app:refund"),
    }
    assert len(seen) == 4


def raised(call: object) -> BaseException:
    assert callable(call)
    try:
        call()
    except Exception as error:  # noqa: BLE001 - that is what is wanted
        return error
    raise AssertionError("nothing was raised")


def helper() -> None:
    json.loads("{")


class Service:
    def charge(self) -> None:
        helper()

    def refuse(self) -> None:
        try:
            helper()
        except ValueError as error:
            raise Reject("bad") from error


def test_the_innermost_frame_of_the_users_code_counts() -> None:
    assert user_frame(raised(Service().charge)).endswith("test_fingerprint:helper")
    assert user_frame(raised(Service().refuse)).endswith("test_fingerprint:Service.refuse")
    line = helper.__code__.co_firstlineno + 1
    assert user_place(raised(Service().charge)) == f"tests/deadletters/test_fingerprint.py:{line}"
    assert user_place(Reject("never raised")) == ""


def test_an_error_without_a_frame_of_its_own_is_placed_by_its_cause() -> None:
    lost = Reject("bad")
    assert user_frame(lost) == ""
    lost.__cause__ = raised(helper)
    assert user_frame(lost).endswith("test_fingerprint:helper")
    looped = ValueError()
    looped.__context__ = looped2 = KeyError()
    looped2.__context__ = looped
    assert user_frame(looped) == ""


def test_an_installed_handler_is_the_users_code_too(tmp_path: Path) -> None:
    file = tmp_path / "site-packages" / "shop" / "work.py"
    source = textwrap.dedent("""
        def charge():
            raise ValueError("no")
    """)
    module = ModuleType("shop.work")
    exec(compile(source, str(file), "exec"), module.__dict__)
    error = raised(module.charge)
    assert user_frame(error, package="shop") == "shop.work:charge"
    assert user_place(error, package="shop") == "shop/work.py:3"
    assert not user_frame(error, package="other").startswith("shop")
