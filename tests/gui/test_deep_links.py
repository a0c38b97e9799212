from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices

from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import InvalidInput
from helix_desktop.gui import deep_links
from helix_desktop.gui.deep_links import WindowPlace, format_deep_link, parse_deep_link

NAMES = st.from_regex(r"[abcXYZ019_-][abcXYZ019._-]{0,79}", fullmatch=True)
PLACES = st.one_of(
    st.just(WindowPlace("settings")),
    st.builds(WindowPlace, st.just("workspace"), NAMES),
    st.builds(WindowPlace, st.just("conversation"), NAMES, NAMES, st.integers(0, 999_999_999)),
    st.builds(
        lambda w, d: WindowPlace("entry", w, digest=Digest(d)),
        NAMES,
        st.binary(min_size=32, max_size=32),
    ),
    st.builds(lambda w, c, f: WindowPlace("fold", w, c, fold=f), NAMES, NAMES, NAMES),
)


@given(PLACES)
def test_every_place_has_a_link_that_leads_there(place: WindowPlace) -> None:
    assert parse_deep_link(format_deep_link(place)) == place


@pytest.mark.parametrize(
    "address",
    [
        "",
        "https://example.org",
        "helix://",
        "helix://run/rm",
        "helix://workspace/a/../../etc",
        "helix://workspace/a b",
        "helix://workspace/..",
        "helix://workspace/a/conversation/..",
        "helix://workspace/a/fold/./b",
        "helix://workspace/a/conversation/b/send?text=hello",
        "helix://workspace/a/entry/1234",
        "helix://settings?key=x",
        "helix://workspace/" + "a" * 600,
        "javascript:helix://settings",
    ],
)
def test_what_is_not_on_the_list_leads_nowhere(address: str) -> None:
    with pytest.raises(InvalidInput):
        parse_deep_link(address)


@given(st.text(max_size=100))
def test_any_text_is_a_place_or_refused(text: str) -> None:
    try:
        place = parse_deep_link(f"helix://{text}")
    except InvalidInput:
        return
    assert place.kind in {"settings", "workspace", "conversation", "entry", "fold"}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What was given to the desktop to be opened."""
    paths: list[Path] = []

    def open_url(url: QUrl) -> bool:
        paths.append(Path(url.toLocalFile()))
        return True

    monkeypatch.setattr(QDesktopServices, "openUrl", open_url)
    return paths


def test_a_text_is_opened_and_of_what_might_run_the_folder(
    tmp_path: Path, opened: list[Path]
) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("text")
    script = tmp_path / "start.desktop"
    script.write_text("[Desktop Entry]")
    program = tmp_path / "program.txt"
    program.write_text("#!/bin/sh")
    program.chmod(0o755)
    for path in (text, script, program):
        deep_links.open_file_or_its_folder(path)
    assert opened == [text, tmp_path, tmp_path]


@pytest.mark.parametrize(
    ("platform", "is_shown"), [("linux", True), ("darwin", False), ("win32", False)]
)
def test_a_script_is_opened_only_where_the_desktop_would_not_run_it(
    platform: str,
    is_shown: bool,
) -> None:
    pattern = deep_links.pattern_of_shown_files(platform)
    assert bool(pattern.fullmatch("install.py")) is is_shown
    assert pattern.fullmatch("notes.md")
    assert not pattern.fullmatch("setup.exe")
    assert not pattern.fullmatch("page.html")
