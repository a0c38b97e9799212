"""What is shown determines what runs."""

from __future__ import annotations

import re
from pathlib import Path
from unicodedata import category, name

import idna
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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("curl https://bücher.de/ü", "curl https://b⟨ü 00FC⟩cher.de⟨= xn--bcher-kva.de⟩/ü"),
        ("HTTPS:\\\\ġit.io:443", "HTTPS:\\\\⟨ġ 0121⟩it.io⟨= xn--it-2na.io⟩:443"),
        ("git@ġithub.com:a/b", "git@⟨ġ 0121⟩ithub.com⟨= xn--ithub-v1a.com⟩:a/b"),
        ("https://é@a.de/", "https://⟨é 00E9⟩@a.de/"),
        ("http:/ａ。de|sh", "http:/⟨ａ FF41⟩⟨。 3002⟩de⟨= a.de⟩|sh"),
        ("https://例え.jp，然后", "https://⟨例 4F8B⟩⟨え 3048⟩.jp⟨= xn--r8jz45g.jp⟩，然后"),
        ("https://１２３４", "https://⟨１ FF11⟩⟨２ FF12⟩⟨３ FF13⟩⟨４ FF14⟩⟨= 1234⟩"),
        ("https://шоп\u00ad.рф", "https://⟨ш 0448⟩⟨о 043E⟩⟨п 043F⟩⟨00AD⟩.⟨р 0440⟩⟨ф 0444⟩⟨= xn--n1acz.xn--p1ai⟩"),
        ("C:/Füße //für grün", "C:/Füße //für grün"),
        ("https://ü" + 250 * "a", "https://⟨ü 00FC⟩" + 250 * "a"),
    ],
)  # fmt: skip
def test_what_is_shown_of_a_host(text: str, shown: str) -> None:
    assert hidden_characters.mark_text(text) == shown
    assert hidden_characters.mark_on_one_line(text) == shown
    assert unmark_text(shown) == text


@pytest.mark.parametrize(
    ("text", "program", "shown"),
    [
        ("curl ġit.io/ü", "curl", "curl ⟨ġ 0121⟩it.io⟨= xn--it-2na.io⟩/ü"),
        ("curl -k 'ġit.io:1'", "curl", "curl -k '⟨ġ 0121⟩it.io⟨= xn--it-2na.io⟩:1'"),
        ("curl ġit。io", "curl", "curl ⟨ġ 0121⟩it⟨。 3002⟩io⟨= xn--it-2na.io⟩"),
        ("/usr/bin/wget ġit.io", "/usr/bin/wget", "/usr/bin/wget ⟨ġ 0121⟩it.io⟨= xn--it-2na.io⟩"),
        ("psql -hġit.io", "psql", "psql -h⟨ġ 0121⟩it.io⟨= xn--it-2na.io⟩"),
        ("gh -R ġit.io/a/ü", "gh pr", "gh -R ⟨ġ 0121⟩it.io⟨= xn--it-2na.io⟩/a/ü"),
        ("GH_HOST=ġit.io gh", "gh", "GH_HOST=⟨ġ 0121⟩it.io⟨= xn--it-2na.io⟩ gh"),
        ("scp a ġit:b", "scp", "scp a ⟨ġ 0121⟩it⟨= xn--it-2na⟩:b"),
        ("rsync a ġit::b", "rsync", "rsync a ⟨ġ 0121⟩it⟨= xn--it-2na⟩::b"),
        ("git clone ġit.io:a/b", "git clone", "git clone ⟨ġ 0121⟩it.io⟨= xn--it-2na.io⟩:a/b"),
        (
            "curl ġit.io https://ġit.io",
            "curl",
            "curl ⟨ġ 0121⟩it.io⟨= xn--it-2na.io⟩ https://⟨ġ 0121⟩it.io⟨= xn--it-2na.io⟩",
        ),
        ("git commit -m 'Größe: x. Mühe. 修复。完成'", "git commit", None),
        ("gh pr create --title '修复。完成' --body 'Größe geändert. Gut'", "gh pr", None),
        ("curl -o ~/größe.txt ./a.ü https://a.de", "curl", None),
        ("grep ü größe.txt a.ü", "grep", None),
    ],
)
def test_what_is_shown_of_a_host_without_a_scheme(
    text: str, program: str, shown: str | None
) -> None:
    assert hidden_characters.mark_text(text, ["timeout", program]) == (shown or text)
    assert unmark_text(shown or text) == text


HOST_FORMS = [
    "curl {}",
    "curl -sS '{}:8080/a'",
    'wget -q "{}/a?b"',
    "curl --resolve={}:443:1.2.3.4 a.de",
    "ssh -p 1 {}:22",
    "ssh -J {}:22,b.de c.de",
    "ssh u@{} ls",
    "scp a {}:b",
    "scp u@{}:a b",
    "rsync -a {}::a b",
    "git clone {}:a/b",
    "git remote add o u@{}:a/b",
    "gh -R {}/a/b pr list",
    "GH_HOST={} gh pr list",
    "psql -h{} a",
    "docker pull {}/a:1",
    "nc {} 443",
    "echo $(curl {})",
    "cat <(curl {})",
    "curl a.de;curl {}|sh",
]


@pytest.mark.parametrize("form", HOST_FORMS)
def test_every_latin_letter_is_marked_in_a_host_without_a_scheme(form: str) -> None:
    letters = [
        sign
        for sign in map(chr, range(0x80, 0x11_0000))
        if name(sign, "").startswith("LATIN ") and sign.isalpha()
    ]
    programs = [word for word in re.findall(r"[a-z]+", form) if word not in ("a", "b", "u")]
    unmarked = []
    for letter in letters:
        command = form.format(f"b{letter}sh.org")
        shown = hidden_characters.mark_text(command, programs)
        if f"{ord(letter):04X}⟩" not in shown:
            unmarked.append(letter)
        assert unmark_text(shown) == command
    assert (unmarked, len(letters) > 1_100) == ([], True)


@pytest.mark.parametrize("sign", "ġģıįṇķƙḅɓŧƭůûḣĺłøæœđýŵźõ" + "іїёѓўάόыю" + "\u1e41ƴþß")
def test_a_letter_that_looks_like_another_is_marked_in_the_name_of_a_program(sign: str) -> None:
    name = f"x{sign}y"
    marked_name = hidden_characters.mark_program(f"{name} push")
    assert f"{sign} {ord(sign):04X}⟩" in marked_name
    assert marked_name.endswith("y push")
    assert unmark_text(marked_name) == f"{name} push"
    command = f"{name} push größe && grep größe"
    assert hidden_characters.mark_text(command, [name]) == f"{marked_name} größe && grep größe"


def test_the_name_behind_a_host_is_the_one_that_is_looked_up() -> None:
    compared = 0
    for sign in map(chr, [*range(0x80, 0x2600), *range(0x2600, 0x3_0000, 97)]):
        if category(sign) == "Cn":  # Python's tables may be older than the package's.
            continue
        try:
            looked_up = idna.encode(f"b{sign}x.org", uts46=True).decode()
        except (idna.IDNAError, UnicodeError):
            continue
        compared += 1
        assert f"⟨= {looked_up}⟩" in hidden_characters.mark_text(f"https://b{sign}x.org/"), sign
    assert compared > 4_000


def test_every_latin_letter_is_marked_in_a_program_and_in_a_host() -> None:
    letters = [
        sign
        for sign in map(chr, range(0x80, 0x11_0000))
        if name(sign, "").startswith("LATIN ") and sign.isalpha()
    ]
    assert len(letters) > 1_100
    for letter in letters:
        assert "⟨" in hidden_characters.mark_program(f"b{letter}sh")
        assert "⟨" in hidden_characters.mark_text(f"https://b{letter}sh.org/")


@given(st.text(st.sampled_from("aбüß。.@:/\\-htps１ 例\u00ad\u0301\ud800⟨⟩=ס")))
def test_the_value_is_found_beside_a_host(text: str) -> None:
    for shown in (
        hidden_characters.mark_text(f"https://{text}"),
        hidden_characters.mark_program(text),
        hidden_characters.mark_text(f"x@{text}", [text]),
        hidden_characters.mark_text(f"{text} ü.{text}", ["curl", text]),
        hidden_characters.mark_text(f"git {text}", ["git clone"]),
    ):
        assert text in unmark_text(shown)


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


@pytest.mark.parametrize(
    ("content", "is_text"),
    [
        (b"", True),
        (b"\0the agent's lines 1\n" + b'{"type": "user"}\n', True),
        (b"./README.md\0./helix_desktop/cli.py\0", True),
        (b"\x1b[32m\x1b[0m\b\b\a", True),
        (b"caf\xe9 " + b"word " * 200, True),
        (b"\xff\xfe\xfd" * 100, False),
        (b"\0\1\2", False),
        (b"\x7fELF\2\1\1" + b"\0" * 9 + b"a name of a section", False),
        ("a text".encode("utf-16-le"), False),
    ],
)
def test_a_stray_control_character_does_not_make_a_text_binary(
    content: bytes, is_text: bool
) -> None:
    assert hidden_characters.is_mostly_text(content) is is_text
