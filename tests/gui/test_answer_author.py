"""Whose name stands over an answer: in the chat, and in an export."""

from __future__ import annotations

from dataclasses import replace

from helix_desktop.engine.facts import (
    ConversationStarted,
    ModelReplied,
    Origin,
    Recorded,
    Stop,
    Text,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gui.answer_author import author_of_answer, name_over_answer
from helix_desktop.gui.markdown_and_json_export import export_conversation_markdown
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from helix_desktop.gui.transcript.transcript_item import TranscriptItemKind
from helix_desktop.histories.program_names import NAMES
from tests.gui.transcript.facts import Told
from tests.histories import written

IMPORTED = ConversationStarted("Brought here", origin=Origin("claude-code", "s"))


def mixed() -> list[Recorded]:
    """Imported, gone on with here, forked to go on with an agent, and from there with
    this program again.
    """
    told = Told()
    told.add(IMPORTED)
    theirs = told.reply("theirs").fact
    assert isinstance(theirs, ModelReplied)
    ours = replace(theirs, parts=(Text("ours", 1),), request=Digest.of_content(b"request"))
    told.user("go on")
    told.add(ours)
    told.add(ConversationStarted(forked_from="c", forked_at=4, agent="Codex"))
    told.user("and you")
    told.add(ours)
    told.add(ConversationStarted(forked_from="d", forked_at=7))
    told.user("go on")
    told.reply("as in a home of before requests had a digest")
    return told.facts


def test_each_answer_has_the_name_of_who_gave_it() -> None:
    items = TranscriptItems()
    items.add_many_facts(mixed())
    replies = [at for at, item in enumerate(items.all) if item.kind is TranscriptItemKind.REPLY]
    assert [items.writer_of_answer(at) for at in replies] == ["Claude Code", "m", "Codex", "m"]


def test_the_export_says_the_same() -> None:
    heads = [
        line
        for line in export_conversation_markdown("A talk", mixed(), lambda _: None).splitlines()
        if "(m)" in line
    ]
    assert [head.removeprefix("## ").split(" (")[0] for head in heads] == [
        "Claude Code",
        "Helix",
        "Codex",
        "Helix",
    ]


def test_every_program_has_a_name_and_any_other_is_an_agent() -> None:
    # ChatGPT writes no files on this computer: its exports have tests of their own.
    assert set(written.KINDS) - {"openai", "anthropic"} == set(NAMES) - {"chatgpt"}
    reply = ModelReplied((), "m", Stop.END)
    assert author_of_answer(replace(IMPORTED, origin=Origin("trajectory")), reply) == "Agent"
    assert author_of_answer(None, reply) == "Helix"


def test_an_answer_of_this_program_has_its_models_name_also_while_it_is_written() -> None:
    reply = ModelReplied((), "peer/sonnet-4", Stop.END)
    assert name_over_answer(None, reply, "other") == "sonnet-4"
    assert name_over_answer(None, None, "peer/sonnet-4") == "sonnet-4"
    assert name_over_answer(None, None, "") == "Helix"
    assert name_over_answer(replace(IMPORTED, agent="Codex"), reply, "other") == "Codex"
    assert (
        name_over_answer(None, ModelReplied((), "sonnet-4-20250514", Stop.END), "peer/sonnet-4")
        == "sonnet-4"
    )
    assert (
        name_over_answer(None, ModelReplied((), "sonnet-45", Stop.END), "peer/sonnet-4")
        == "sonnet-45"
    )
