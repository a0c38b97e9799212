"""The QR code leads to the page with the code behind #, and its two forms agree."""

from __future__ import annotations

from helix_desktop.phone_page.pairing_picture import (
    draw_qr_lines,
    draw_qr_modules,
    pairing_link,
)

LINK = pairing_link("https://192.168.1.20:4357/pair", "ABCDE-FGHJK")


def test_the_code_is_not_sent_over_the_network() -> None:
    assert LINK == "https://192.168.1.20:4357/pair#code=ABCDE-FGHJK"


def test_the_lines_of_the_terminal_show_the_same_modules_as_the_window() -> None:
    modules = draw_qr_modules(LINK)
    halves = {" ": (True, True), "▄": (True, False), "▀": (False, True), "█": (False, False)}
    rows: list[list[bool]] = []
    for line in draw_qr_lines(LINK):
        rows.append([halves[character][0] for character in line])
        rows.append([halves[character][1] for character in line])
    assert rows[: len(modules)] == [list(row) for row in modules]
    # A light border, and a corner with a dark frame.
    assert not any(rows[0])
    assert rows[2][2:9] == [True] * 7
    assert rows[3][2:9] == [True, False, False, False, False, False, True]
