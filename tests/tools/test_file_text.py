"""What becomes of a file's text: found, replaced, and put back in the encoding and with
the line ends it had.
"""

from __future__ import annotations

import pytest

from helix_desktop.errors import InvalidInput
from helix_desktop.tools.file_text import replace_text_in_file


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("a", "b", "2 times in f (lines 1, 3)"),
        ("x", "y", "not in f"),
        ("", "y", "empty"),
        ("a", "a", "the same"),
        ("a b\nc", "y", "other spaces"),
        ("a  b\nnot there", "y", "Its first line is like line 3"),
    ],
)
def test_an_edit_that_is_not_certain_is_refused(old: str, new: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        replace_text_in_file(b"a\n\na  b\n  c\n", old, new, "f", every=False)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\r\nb\r\nc\r\n", b"a\r\nX\r\nY\r\nc\r\n"),
        (b"a\nb\nc\n", b"a\nX\nY\nc\n"),
        (
            b"\xff\xfe" + "a\nb\nc".encode("utf-16-le"),
            b"\xff\xfe" + "a\nX\nY\nc".encode("utf-16-le"),
        ),
        (b"\xef\xbb\xbfa\nb\nc", b"\xef\xbb\xbfa\nX\nY\nc"),
        (b"caf\xe9\na\nb\nc", b"caf\xe9\na\nX\nY\nc"),
    ],
)
def test_encoding_and_line_ends_stay_the_files_own(before: bytes, after: bytes) -> None:
    assert replace_text_in_file(before, "a\nb", "a\nX\nY", "f", every=False) == after


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\nb\nc\r\n", "a\nb", "A\nB\n", b"A\nB\n\nc\r\n"),
        (b"a\nb\nc\nd\r\n", "b", "B\nX", b"a\nB\nX\nc\nd\r\n"),
        (b"a\r\nb\r\nc\n", "b\nc", "X\nY", b"a\r\nX\r\nY\n"),
        (b"a\r\nb\r\n", "a\r\nb", "X\nY", b"X\r\nY\r\n"),
        (b"a\r\nb\nc\r\n", "a\nb\nc", "X\nY", b"X\r\nY\r\n"),
        (b"a\nb\n", "a\r\nb", "X\r\nY", b"X\nY\n"),
        (b"a+(b)\r\n\\1\r\n", "a+(b)\n", "\\1\n", b"\\1\r\n\\1\r\n"),
    ],
)
def test_line_ends_are_those_of_the_place_an_edit_comes_to(
    before: bytes, old: str, new: str, after: bytes
) -> None:
    assert replace_text_in_file(before, old, new, "f", every=False) == after


def test_the_same_text_with_other_line_ends_is_another_place() -> None:
    with pytest.raises(InvalidInput, match=r"2 times in f \(lines 1, 3\)"):
        replace_text_in_file(b"a\r\nb\r\na\nb\n", "a\nb", "x", "f", every=False)
    assert (
        replace_text_in_file(b"a\r\nb\r\na\nb\n", "a\nb", "x\ny", "f", every=True)
        == b"x\r\ny\r\nx\ny\n"
    )


def test_no_letters_are_put_into_a_file_in_another_encoding() -> None:
    latin = "é = 1\nfoo\n".encode("latin-1")
    with pytest.raises(InvalidInput, match="not UTF-8, and new_text contains non-ASCII characters"):
        replace_text_in_file(latin, "foo", "bär", "f", every=False)
    for old in ("é = 1", "\ufffd = 1"):
        with pytest.raises(InvalidInput, match="choose a text without them"):
            replace_text_in_file(latin, old, "e = 1", "f", every=False)
    assert replace_text_in_file(latin, "foo", "bar", "f", every=False) == "é = 1\nbar\n".encode(
        "latin-1"
    )
    assert (
        replace_text_in_file(b"\xff \xc3\xa9 foo", "foo", "bär", "f", every=False)
        == b"\xff \xc3\xa9 b\xc3\xa4r"
    )


@pytest.mark.parametrize(
    ("old", "shown"),
    [
        ("def f():\n    return 1", "exactly so:\ndef f():\n\treturn  1\n"),
        ("return 1\n\n\nclass A", "exactly so:\n\treturn  1\n\nclass A:\n"),
        ("class A:\n    a = 1\n    b = 2", "goes on so:\nclass A:\n    a = 2\n    b = 2\n"),
        (
            "class A:\n    a = 1\n    b = 2\n    c\n    d",
            "goes on so:\nclass A:\n    a = 2\n    b = 2\n",
        ),
    ],
)
def test_what_stands_there_instead_is_shown(old: str, shown: str) -> None:
    text = b"def f():\n\treturn  1\n\nclass A:\n    a = 2\n    b = 2\n"
    with pytest.raises(InvalidInput) as caught:
        replace_text_in_file(text, old, "x", "f", every=False)
    assert f"{caught.value}\n".endswith(shown) or str(caught.value).endswith(shown)
    with pytest.raises(InvalidInput) as caught:
        replace_text_in_file(b"a  b" + b"c" * 10_000, "a b", "x", "f", every=False)
    assert len(str(caught.value)) < 2_200


def test_what_stands_there_with_other_spaces_is_shown_without_the_line_before() -> None:
    with pytest.raises(InvalidInput) as caught:
        replace_text_in_file(b"\na  b\nc\n", "a b", "x", "f", every=False)
    assert str(caught.value).endswith("exactly so:\na  b")


@pytest.mark.parametrize("spaces", [" ", "  "])
def test_a_long_text_that_is_not_there_takes_no_longer_than_both_are_long(spaces: str) -> None:
    """An expression with any spaces between the words went on for hours here."""
    before = f"0,{spaces}" * 2_000_000
    old = "0, " * 100_000 + "1"
    with pytest.raises(InvalidInput, match=r"not in f"):
        replace_text_in_file(before.encode(), old, "1", "f", every=False)


def test_windows_line_ends_take_no_longer_to_search() -> None:
    """An expression for both kinds of line ends went on for hours here."""
    with pytest.raises(InvalidInput, match="not in f"):
        replace_text_in_file(b"0\r\n" * 2_000_000, "0\n" * 100_000 + "1", "x", "f", every=False)
