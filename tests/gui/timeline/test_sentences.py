"""Folds and documents in words."""

from __future__ import annotations

import json

from helix_desktop.engine.changes.lines import difference
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Attachment, Folded, FoldKind, PartRef, Stored, Text, UserSaid
from helix_desktop.gui import words as spoken
from helix_desktop.gui.timeline import sentences
from helix_desktop.gui.timeline.story import Story
from tests.gui import story as told
from tests.gui.timeline.conftest import HASH, Written


def story_of(written: Written) -> Story:
    story = Story()
    story.extend(written.facts)
    return story


def test_titles_and_lines(written: Written) -> None:
    story = story_of(written)
    assert [sentences.title(event) for event in story.events] == [
        "Conversation started",
        "Cached 3 tool outputs",
        "Handover 1",
        "Handover 2",
    ]
    assert sentences.line(story.events[0], story.window) == "Layered policy · 128K window"
    spoken.speak(json.loads(spoken.catalogue_file("zh_CN").read_text("utf-8")))
    try:
        assert sentences.line(story.events[0], 0) == "分层策略"
    finally:
        spoken.speak({})
    assert sentences.line(story.events[1], 0) == "15K → 90 tokens · one cache rewrite"
    assert sentences.line(story.events[2], 0).endswith("42 of 42 details kept")
    assert sentences.figures(story.events[3]).endswith("9.8 s · fast · in the background")
    assert sentences.details(story.events[3]) == (
        "42 details found: 38 kept by the model, 3 added by Helix Desktop, 1 in the reference entry"
    )


def test_sections_of_a_document() -> None:
    found = sentences.sections(told.DOCUMENT)
    assert [name for name, _ in found] == [
        "",
        "Project Background",
        "Technical Details",
        "Completed Work",
        "Current Issues",
        "TODO Items",
        "User Preferences",
    ]


def test_sources_become_links() -> None:
    text = sentences.with_links(f"see [14] and [a](http://b) and {HASH}")
    assert text == f"see [14](helix-seq:14) and [a](http://b) and `{HASH[:4]}…{HASH[-4:]}`"
    assert sentences.hashes(f"{HASH} {HASH} deadbeef") == [Digest.parse(HASH)]


def test_only_the_changed_sentence_differs(written: Written) -> None:
    story = story_of(written)
    old, new = (sentences.sections(event.folds[0].text) for event in story.events[2:4])
    a, b = sentences.compared(old, new)
    changed = [row.text for row in difference(a.split("\n"), b.split("\n")) if row.sign != " "]
    assert any("12 call sites" in line for line in changed)
    assert not any("Rust storage engine" in line for line in changed)


def test_the_story_as_markdown(written: Written) -> None:
    text = sentences.as_markdown(story_of(written), "Extract")
    assert text.startswith("# Extract\n")
    assert "## Handover 2" in text
    assert "### User Preferences" in text
    assert f"- `{Digest.of(b'0').hex}`" in text


def test_an_excerpt_names_the_call_or_the_attachment_it_is_of() -> None:
    written = Written()
    attached = Attachment("build.log", Stored(Digest.of(b"log"), 80_000, 900), 20_000)
    said = written.add(UserSaid((Text("look", 1), attached)))
    written.add(Folded("e0", FoldKind.EXCERPT, PartRef(said, 1), "…", 400, 20_000))
    out = written.output(7)
    written.add(Folded("e1", FoldKind.EXCERPT, PartRef(out), "…", 400, 5_000))
    titles = [sentences.title(event) for event in story_of(written).events if event.folds]
    assert titles == ["Excerpt: build.log", "Excerpt: read_file src/7.rs"]
