"""A history as facts: all of it, in order, and the same each time."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.engine.facts import (
    Folded,
    ModelReplied,
    Reasoning,
    Recorded,
    SystemSet,
    Text,
    ToolCall,
    ToolReturned,
    Unfolded,
    UserSaid,
)
from helix_desktop.engine.view import build_state
from helix_desktop.histories import history_reading, recording_facts
from helix_desktop.histories.recorded_session import RecordedCall, RecordedCompaction, RecordedMessage, RecordedSession
from tests.histories import written


class Words:
    """Counts words for tokens."""

    def count_tokens(self, text: str) -> int:
        return len(text.split())


def drafts(recording: RecordedSession) -> list[recording_facts.FactDraft]:
    return recording_facts.draft_facts(recording, Words(), lambda child: f"of {child}")


@pytest.mark.parametrize("kind", written.KINDS)
def test_every_kind_becomes_the_same_conversation(tmp_path: Path, kind: str) -> None:
    (recording,) = history_reading.read_history_file(written.KINDS[kind](tmp_path)).recordings
    made = drafts(recording)
    facts = [draft.fact for draft in made if not isinstance(draft.fact, SystemSet)]
    shown = [type(fact).__name__ for fact in facts]
    hosted = ["ModelReplied", "ToolReturned"] if kind == "codex" else []
    assert shown == [
        *("UserSaid", "ModelReplied", "ToolReturned", *hosted, "ModelReplied", "TurnEnded"),
        *("UserSaid", "ModelReplied", "TurnEnded"),
    ]
    output = next(draft for draft in made if isinstance(draft.fact, ToolReturned))
    assert output.contents[0][0].decode() == written.OUTPUT
    assert drafts(recording) == made
    first = next(fact for fact in facts if isinstance(fact, UserSaid))
    assert first.parts[0].text == "list the files"  # type: ignore[union-attr]


def test_reasoning_is_kept_as_it_was_sealed_for_its_own_model(tmp_path: Path) -> None:
    (recording,) = history_reading.read_history_file(written.claude(tmp_path)).recordings
    reply = next(draft.fact for draft in drafts(recording) if isinstance(draft.fact, ModelReplied))
    (thought,) = [part for part in reply.parts if isinstance(part, Reasoning)]
    assert thought.opaque == '{"type":"thinking","thinking":"Let me think.","signature":"signed"}'
    assert (thought.provider, thought.model) == ("anthropic api.anthropic.com", "claude-sonnet-4-5")
    assert (reply.usage.input, reply.usage.cache_read, reply.usage.output) == (100, 60, 20)


def conversation(*, keep: int = 4, summary: str = "short") -> RecordedSession:
    messages = [
        RecordedMessage("user", "begin " + "word " * 50),
        RecordedMessage("assistant", "I look", (RecordedCall("c1", "read", "{}"),)),
        RecordedMessage("tool", "output " * 100, answers="c1"),
        RecordedMessage("assistant", "done"),
        RecordedMessage("user", "go on"),
        RecordedMessage("assistant", "yes"),
    ]
    return RecordedSession("f", tuple(messages), "k", "s", compactions=(RecordedCompaction(4, keep, summary),))


def test_a_compaction_is_a_fold_with_what_it_took_the_place_of_beneath() -> None:
    made = [draft.fact for draft in drafts(conversation())]
    fold = next(fact for fact in made if isinstance(fact, Folded))
    facts = [Recorded("c", at, 0.0, fact) for at, fact in enumerate(made, 1)]
    state = build_state(facts)
    assert fold.fold in state.branch.live
    assert "short" in str(state.take_view().blocks[0].content)
    unfolded = build_state([*facts, Recorded("c", len(facts) + 1, 0.0, Unfolded(fold.fold))])
    assert "begin" in str(unfolded.take_view().blocks[0].content)


def test_a_compaction_in_the_middle_of_a_batch_leaves_it_whole() -> None:
    made = [draft.fact for draft in drafts(conversation(keep=2))]
    fold = next(fact for fact in made if isinstance(fact, Folded))
    covered = made[fold.cover.first - 1 : fold.cover.last]  # type: ignore[union-attr]
    assert [type(fact).__name__ for fact in covered] == ["UserSaid", "ModelReplied", "ToolReturned"]


def test_a_summary_that_is_longer_than_what_it_replaces_is_a_message() -> None:
    made = [draft.fact for draft in drafts(conversation(summary="word " * 1_000))]
    assert not any(isinstance(fact, Folded) for fact in made)
    assert any(isinstance(fact, UserSaid) and "word word" in str(fact.parts) for fact in made)


def test_what_answers_no_call_is_an_attachment_and_its_content_is_stored() -> None:
    recording = RecordedSession(
        "f", (RecordedMessage("user", "hi"), RecordedMessage("tool", "lost", answers="nowhere"))
    )
    said = drafts(recording)[1]
    assert isinstance(said.fact, UserSaid)
    assert said.contents[0][0] == b"lost"


def test_what_the_other_program_showed_in_the_place_of_an_output_is_a_fold_over_it() -> None:
    shown = RecordedMessage("tool", "long " * 500, answers="c1", shown="the first lines")
    calling = RecordedMessage("assistant", "", (RecordedCall("c1", "read", "{}"),))
    made = drafts(RecordedSession("f", (RecordedMessage("user", "hi"), calling, shown)))
    fold = made[-1].fact
    assert isinstance(fold, Folded)
    assert fold.text.startswith("the first lines\n[All of it: recall_cached_content(")
    assert fold.cover.seq == 3  # type: ignore[union-attr]


def test_a_reply_without_parts_has_reasoning_then_text_then_calls_and_nothing_empty() -> None:
    call = RecordedCall("c1", "bash", "{}")
    for message, parts in (
        (RecordedMessage("assistant", "I look", (call,), reasoning="hm"), [Reasoning, Text, ToolCall]),
        (RecordedMessage("assistant", "I look"), [Text]),
        (RecordedMessage("assistant", "", (call,)), [ToolCall]),
        (RecordedMessage("assistant", "", reasoning="hm"), [Reasoning]),
    ):
        made = drafts(RecordedSession("s", (RecordedMessage("user", "look"), message)))
        (reply,) = (draft.fact for draft in made if isinstance(draft.fact, ModelReplied))
        assert [type(part) for part in reply.parts] == parts
