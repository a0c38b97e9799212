"""A text is found in every form it may be stored in, and blanked there."""

from __future__ import annotations

import base64
import functools
import html
import json
import random
import shlex
import time
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.forgotten_text_forms import TextForms

traces_of = functools.cache(TextForms)

SECRETS = (
    'sk-"Qz77x\\Lw"-üKey-4419',
    "hunter2pass",
    "пароль-секрет",
    'a\\\\\\b"c',
    "x'y\"z$&<>",
    "pass word\n2nd",
    "emoji😀key",
    "C:\\üser\\new",
    "cafe\u0301-secret",
    "/a/b+c=d?",
)
CODECS = ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")


def escaped(text: str, depth: int, *, ascii_: bool) -> str:
    for _ in range(depth):
        text = json.dumps(text, ensure_ascii=ascii_)[1:-1]
    return text


@pytest.mark.parametrize("secret", SECRETS)
def test_json_within_json(secret: str) -> None:
    for depth in range(6):
        for ascii_ in (True, False):
            _json_within_json_is_found(secret, depth, ascii_=ascii_)


def _json_within_json_is_found(secret: str, depth: int, *, ascii_: bool) -> None:
    traces = traces_of(secret)
    text = f'{{"k": "before {escaped(secret, depth, ascii_=ascii_)} after"}}'
    assert traces.occurs_in_text(text)
    assert traces.blank_out(text, "[x]") == '{"k": "before [x] after"}'
    assert all(traces.occurs_in_bytes(text.encode(codec)) for codec in CODECS)


@pytest.mark.parametrize(
    "form",
    [
        urllib.parse.quote,
        lambda text: urllib.parse.quote(urllib.parse.quote(text, safe="")),
        urllib.parse.quote_plus,
        shlex.quote,
        html.escape,
        repr,
        lambda text: base64.b64encode(f"ab{text}zz".encode()).decode(),
        lambda text: base64.urlsafe_b64encode(f"abc{text}".encode()).decode(),
        lambda text: text.encode().hex(),
        lambda text: text.encode("unicode_escape").decode(),
        lambda text: "".join(
            f"\\u{ord(sign):04x}" if ord(sign) < 0x10000 else sign for sign in text
        ),
        lambda text: "".join(f"&#{ord(sign)};" for sign in text),
    ],
)
def test_other_ways_of_writing_it(form: object) -> None:
    assert callable(form)
    for secret in SECRETS:
        traces = traces_of(secret)
        text = f"x {form(secret)} y"
        assert traces.occurs_in_text(text), secret
        assert traces.occurs_in_bytes(text.encode()), secret
        assert not traces.occurs_in_text(traces.blank_out(text, "[x]")), secret


def test_wide_text_that_was_read_as_utf_8() -> None:
    read = 'key="hunter2pass"'.encode("utf-16").decode("utf-8", "replace")
    assert TextForms('"hunter2pass"').occurs_in_text(read)
    assert TextForms('"hunter2pass"').occurs_in_bytes(json.dumps(read).encode())


@given(st.text(min_size=4, max_size=12), st.integers(0, 4), st.booleans())
def test_whatever_the_secret_is(secret: str, depth: int, ascii_: bool) -> None:
    secret = secret.encode("utf-8", "replace").decode()
    assert TextForms(secret).occurs_in_text(f"…{escaped(secret, depth, ascii_=ascii_)}…")


def test_what_is_not_it_is_left_alone() -> None:
    traces = TextForms("hunter2pass")
    for text in ("hunter2 pass", "hunter2pas", "HUNTER2PASS", "100% \\u00e9 & \\x68", "\\" * 5_000):
        assert not traces.occurs_in_text(text)
        assert traces.blank_out(text, "[x]") == text


@pytest.mark.parametrize(
    "content", [b"\\" * (1 << 20), random.Random(1).randbytes(1 << 20), b"%25&amp;\\u00" * 100_000]
)
def test_nothing_makes_it_slow(content: bytes) -> None:
    traces = TextForms(SECRETS[0])
    start = time.process_time()
    assert not traces.occurs_in_bytes(content)
    assert time.process_time() - start < 3
