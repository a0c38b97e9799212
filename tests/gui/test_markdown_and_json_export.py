from __future__ import annotations

import json
from dataclasses import replace

from helix_desktop.engine import fact_encoding
from helix_desktop.engine.facts import (
    Attachment,
    ConversationStarted,
    Fact,
    ModelReplied,
    Origin,
    Recorded,
    Stop,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.gui import markdown_and_json_export
from tests.gui import story

FACTS = story.recorded()


def test_markdown_tells_the_whole_conversation() -> None:
    text = markdown_and_json_export.export_conversation_markdown(
        "Extract the lock manager", FACTS, story.CONTENT.get
    )
    assert text.startswith("# Extract the lock manager\n")
    for part in (
        "The guard must never be held",
        "fn upgrade(&mut self",
        "run_command",
        "shard 3 is held already",
    ):
        assert part in text
    assert "handover: 98,900 → 8,640 tokens" in text


def test_a_fence_is_longer_than_any_in_the_output() -> None:
    output = ToolReturned("c", story.stored("x"), 1, head="```\ninner\n```")
    text = markdown_and_json_export.export_conversation_markdown(
        "t", [Recorded("c", 1, 0.0, output)], story.CONTENT.get
    )
    assert "````\n```\ninner\n```\n````" in text


def test_a_call_without_output_is_exported_as_markdown() -> None:
    output = ToolReturned("c", replace(story.stored("x"), size=0), 1)
    text = markdown_and_json_export.export_conversation_markdown(
        "t", [Recorded("c", 1, 0.0, output)], lambda _: None
    )
    assert "**Tool**\n\n```\n\n```\n" in text


def test_json_holds_every_fact_as_it_is_stored() -> None:
    kept = json.loads(markdown_and_json_export.export_conversation_json("t", FACTS))
    assert [each["seq"] for each in kept["facts"]] == [recorded.seq for recorded in FACTS]
    for each, recorded in zip(kept["facts"], FACTS, strict=True):
        stored = {name: value for name, value in each.items() if name not in ("seq", "time")}
        assert fact_encoding.decode_fact(json.dumps(stored)) == recorded.fact


def test_an_entry_that_is_not_there_is_named_by_its_hash() -> None:
    digest = story.stored("ok\n").digest
    output = ToolReturned("c", story.stored("ok\n"), 1)
    assert str(digest) in markdown_and_json_export.export_conversation_markdown(
        "t", [Recorded("c", 1, 0.0, output)], lambda _digest: None
    )


def test_what_is_shortened_says_so() -> None:
    facts = [
        Recorded(
            "c", 1, 0.0, ModelReplied((ToolCall("1", "write_file", "x" * 300),), "m", Stop.CALLS)
        ),
        Recorded("c", 2, 0.0, ToolReturned("1", story.stored("ok"), 1, head="ok")),
    ]
    assert f"write_file {'x' * 199}…" in markdown_and_json_export.export_conversation_markdown(
        "t", facts, story.CONTENT.get
    )


def test_a_call_that_was_stopped_did_not_fail() -> None:
    outputs = [
        ToolReturned("1", story.stored("a"), 1, ok=False, head="a", stopped=True),
        ToolReturned("2", story.stored("b"), 1, ok=False, head="b"),
        ToolReturned("3", story.stored("c"), 1, head="c"),
    ]
    text = markdown_and_json_export.export_conversation_markdown(
        "t", [Recorded("c", 1, 0.0, each) for each in outputs], story.CONTENT.get
    )
    assert [line.strip("#* ") for line in text.splitlines() if "Tool" in line] == [
        "Tool (stopped)",
        "Tool (failed)",
        "Tool",
    ]


def test_what_an_agent_added_is_not_exported_as_the_users_words() -> None:
    reminder = "<system-reminder>\nToday is the 24th.\n</system-reminder>"
    attached = Attachment("environment_context", story.stored("x"), 75)
    facts: list[Fact] = [
        ConversationStarted(origin=Origin("claude-code", "s")),
        UserSaid((Text(reminder), attached)),
        UserSaid((Text(f"{reminder}\nMend it."),)),
        UserSaid((Text("Checked."),), by="hook:Stop"),
    ]
    recorded = [Recorded("c", seq, 0.0, fact) for seq, fact in enumerate(facts, 1)]
    sections = [*markdown_and_json_export.iterate_export_sections(recorded, lambda _: None)]
    shown = [
        (section.heading.partition(",")[0], section.text.partition(",")[0]) for section in sections
    ]
    assert shown == [
        ("Added by Claude Code", reminder),
        ("Added by Claude Code", "[environment_context"),
        ("Added by Claude Code", reminder),
        ("You", "Mend it."),
        ("Helix", "Checked."),
    ]
    own = [
        Recorded("c", 1, 0.0, ConversationStarted()),
        Recorded("c", 2, 0.0, UserSaid((Text(reminder),))),
    ]
    (section,) = markdown_and_json_export.iterate_export_sections(own, lambda _: None)
    assert (section.heading.partition(",")[0], section.text) == ("You", reminder)
