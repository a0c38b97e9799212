"""What is shown determines what runs."""

from __future__ import annotations

import re
from pathlib import Path
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine import hidden_characters
from tests.unmarking import unmark_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("git commit -m 'a b'", "git commit -m 'a b'"),
        ("ls \x1b]\nrm x\n#\x07", "ls ⟨001B⟩]\nrm x\n#⟨0007⟩"),
        ("one\r\ntwo\x0b\x85\u2028", "one⟨000D⟩\ntwo⟨000B⟩⟨0085⟩⟨2028⟩"),
        ("if a\u202e \u2066 b\u200b", "if a⟨202E⟩ ⟨2066⟩ b⟨200B⟩"),
        ("\tx  ", "→\tx ⟨0020⟩"),
        ("⟨001B⟩", "⟨27E8⟩001B⟨27E9⟩"),
        ("аdmin", "⟨а 0430⟩dmin"),
        ("сору", "⟨с 0441⟩⟨о 043E⟩⟨р 0440⟩⟨у 0443⟩"),
        ("копия файла", "копия файла"),
        ("λ-calculus in Ελλάδα", "λ-calculus in Ελλάδα"),
        ("echo ’; rm -rf x; ’", "echo ⟨’ 2019⟩; rm -rf x; ⟨’ 2019⟩"),
        ("a\u00a0b\u3000c", "a⟨00A0⟩b⟨3000⟩c"),
        ("ｒｍ –rf", "⟨ｒ FF52⟩⟨ｍ FF4D⟩ ⟨– 2013⟩rf"),
        ("文件，里面；x", "文件，里面；x"),
        ("a ， b ノ c", "a ⟨， FF0C⟩ b ⟨ノ 30CE⟩ c"),
        ("cafe\u0301 café", "cafe⟨0301⟩ café"),
        ("हिन्दी में", "हिन्दी में"),
        ("שלום; rm", "\u200eשלום\u200e; rm"),
        ("\ud83d \udcff", "⟨D83D⟩ ⟨DCFF⟩"),
        ("⚠\ufe0f", "⚠⟨FE0F⟩"),
        ("\u212a\uf900", "⟨K 212A⟩⟨豈 F900⟩".replace("K", "\u212a").replace("豈", "\uf900")),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert hidden_characters.mark_text(text) == shown
    assert unmark_text(shown) == text


# Letters that living alphabets use beside Latin ones, and that look like two signs.
LIVING_LETTERS = frozenset("æÆœŒơƠƁƊƤƬƳŉƇƓƘӕӔЫЮ")
# Each with what it looks like, from Unicode's table of confusable characters.
LOOK_ALIKES = Path(__file__).with_name("look_alikes.txt").read_text(encoding="utf-8").splitlines()


def test_every_sign_that_looks_like_an_ascii_one_is_marked() -> None:
    signs = {line[0] for line in LOOK_ALIKES} - LIVING_LETTERS
    assert len(signs) > 1_600
    alone = [sign for sign in signs if "⟨" not in hidden_characters.mark_text(f"a {sign} b")]
    within = [sign for sign in signs if "⟨" not in hidden_characters.mark_text(f"ab{sign}cd")]
    assert (alone, within) == ([], [])


def test_every_combining_mark_on_a_letter_that_does_not_carry_it_is_marked() -> None:
    marks = [sign for sign in map(chr, range(0x11_0000)) if category(sign) in ("Mc", "Mn", "Me")]
    assert len(marks) > 2_000
    for before in ("a", "; ", "/", "а"):
        shown = [sign for sign in marks if "⟨" not in hidden_characters.mark_text(before + sign)]
        assert shown == []


_ANY = st.text(
    st.characters() | st.sampled_from("⟨⟩…→ \n\t\r01EF\x1b\x07аeס\u202e\u200e\u0301\ud800")
)


@given(_ANY)
def test_the_value_is_found_in_what_is_shown(text: str) -> None:
    assert unmark_text(hidden_characters.mark_text(text)) == text
    assert unmark_text(hidden_characters.mark_on_one_line(text)) == text
    assert len(hidden_characters.mark_on_one_line(text).splitlines()) <= 1


@given(_ANY)
def test_nothing_hidden_is_in_what_is_shown(text: str) -> None:
    hidden = "[^\n\t -\u007e\u00a1-\u200a\u200e\u2010-\u2027\u2030-\ud7ff\uf900-\U0010ffff]"
    assert re.search(hidden, hidden_characters.mark_text(text)) is None


@given(_ANY, st.integers(1, 500))
def test_a_long_line_goes_on_in_the_next(text: str, times: int) -> None:
    shown = hidden_characters.mark_text(text * times)
    assert unmark_text(shown) == text * times
    assert max(map(len, shown.split("\n"))) <= hidden_characters.LONGEST_LINE + len(
        hidden_characters.GOES_ON
    )


def test_a_tab_stays_behind_its_arrow_where_a_long_line_is_broken() -> None:
    for letters in range(990, 1_005):
        text = "x" * letters + "\t" + "שלום" * 3 + "\t." * 20
        shown = hidden_characters.mark_text(text)
        assert unmark_text(shown) == text
        assert f"→{hidden_characters.GOES_ON}" not in shown
