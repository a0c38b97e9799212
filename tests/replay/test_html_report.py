"""The report as a page."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

from helix_desktop.replay import html_report
from helix_desktop.replay.replay_figures import FoldMark
from helix_desktop.replay.text_report import PolicyResult
from tests.replay.test_replay_figures import ONE

EVIL = replace(
    ONE,
    name="<script>alert(1)</script>.jsonl",
    marks=(FoldMark(1, "marker"), FoldMark(2, "excerpt"), FoldMark(9, "handover")),
)
VOID = {"meta", "line", "circle", "!doctype"}


class Balance(HTMLParser):
    """Every element is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def test_it_is_whole_and_needs_nothing_from_elsewhere() -> None:
    html = html_report.format_html_report(
        [PolicyResult("layered", 1_000, [EVIL]), PolicyResult("none", 1_000, [ONE])], "A note & more"
    )
    reading = Balance()
    reading.feed(html)
    assert reading.open == []
    assert reading.seen.count("polyline") == 2
    assert not re.search(r"(?:src|href)=|@import|url\(|<script", html)
    assert "&lt;script&gt;" in html
    assert "A note &amp; more" in html


def test_a_dot_where_something_was_folded_but_for_excerpts() -> None:
    html = html_report.format_html_report([PolicyResult("layered", 1_000, [EVIL])], "")
    assert re.findall(r"<title>layered: (\w+) before step (\d+)", html) == [("marker", "2"), ("handover", "3")]


def test_the_window_is_drawn_where_it_is_reached() -> None:
    assert 'class="window"' not in html_report.format_html_report([PolicyResult("none", 1_000, [ONE])], "")
    full = replace(ONE, steps=(400, 1_200))
    assert 'class="window"' in html_report.format_html_report([PolicyResult("none", 1_000, [full])], "")


def test_a_long_session_is_thinned_to_its_peaks() -> None:
    steps = [10] * 5_000
    steps[1_234] = 999
    html = html_report.format_html_report([PolicyResult("none", 10_000, [replace(ONE, steps=steps)])], "")
    (points,) = re.findall(r'points="([^"]*)"', html)
    assert len(points.split()) <= html_report.POINTS
    assert f",{html_report.TOP:.1f}" in points


def test_a_session_without_steps_is_an_empty_plot() -> None:
    assert "<polyline" in html_report.format_html_report(
        [PolicyResult("none", 1_000, [replace(ONE, steps=(), marks=())])], ""
    )
