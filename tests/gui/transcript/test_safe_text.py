"""Nothing is hidden from the reader, and nothing a language needs is taken away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtGui import QTextDocument
from PySide6.QtWidgets import QApplication

from helix_desktop.gui.transcript.safe_text import (
    _SUSPECT,
    make_safe_text,
    safe_tooltip,
    terminal_output_text,
)


@pytest.mark.parametrize(
    ("given_text", "shown"),
    [
        ("plain text\n\twith a tab", "plain text\n\twith a tab"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;a title\x07after", "after"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("ls \x1b]\nrm x\n#\x07", "ls \nrm x\n#␇"),
        ("if admin\u202e // check", "if admin⟨202E⟩ // check"),
        ("pass\u200bword", "pass⟨200B⟩word"),
        ("a\x00b\x07", "a␀b␇"),
        ("one\r\ntwo\rthree", "one\ntwo\nthree"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("👩\u200d💻", "👩\u200d💻"),
        ("a\u200db", "a⟨200D⟩b"),
        ("\u200cمی", "⟨200C⟩می"),
        ("می\u200c", "می⟨200C⟩"),
        ("\ud800", "\N{REPLACEMENT CHARACTER}"),
        ("\U000e0041", "⟨E0041⟩"),
    ],
)
def test_what_is_shown(given_text: str, shown: str) -> None:
    assert make_safe_text(given_text) == shown


def test_a_progress_bar_shows_its_last_state() -> None:
    assert terminal_output_text("10 %\r50 %\r100 %\ndone\r\n") == "100 %\ndone\n"


@given(st.text())
def test_what_is_shown_hides_nothing_and_stays_so(text: str) -> None:
    shown = make_safe_text(text)
    hidden = set(_SUSPECT.findall(shown)) - {"\u200c", "\u200d"}
    assert not hidden
    assert make_safe_text(shown) == shown


def test_a_tooltip_shows_mark_up_as_it_is_written(application: QApplication) -> None:
    document = QTextDocument()
    for text in ("plain & simple", "<b>a</b>\n<img src=x>", "&lt;b&gt; x < y"):
        shown = safe_tooltip(text)
        document.setHtml(shown) if shown.startswith("<qt>") else document.setPlainText(shown)
        assert document.toPlainText() == text


def test_a_long_tooltip_is_wrapped() -> None:
    shown = safe_tooltip(
        "Each conversation is saved in the workspace of its folder. " * 4 + "\nshort"
    )
    assert max(map(len, shown.split("\n"))) <= 90
    assert shown.endswith("\nshort")
    assert (
        " ".join(shown.split()).count("Each conversation is saved in the workspace of its folder.")
        == 4
    )
