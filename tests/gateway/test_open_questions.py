"""What a question to an agent's model cost is known even if its process is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helix_desktop.engine.facts import Purpose, Spent, Usage
from helix_desktop.gateway.open_questions import OpenQuestions

ASKED = ("c1", Purpose.HANDOVER, "gpt", Usage(42_651, 40_000))


def end_process(folder: Path) -> None:
    """Write the notes as another process had written them, which was killed."""
    for note in folder.iterdir():
        note.write_text(json.dumps({**json.loads(note.read_text()), "process": 0}))


def test_a_question_that_was_never_answered_is_paid_once(tmp_path: Path) -> None:
    questions = OpenQuestions(tmp_path / "open")
    with questions.remember_until_answered(*ASKED):
        assert questions.take_unanswered("c1") == [], "it is being answered"
        end_process(questions.folder)
        assert questions.take_unanswered("c2") == []
        assert questions.take_unanswered("c1") == [Spent(Purpose.HANDOVER, "gpt", ASKED[3])]
        assert questions.take_unanswered("c1") == []


def test_an_answered_and_a_failed_question_leave_nothing(tmp_path: Path) -> None:
    questions = OpenQuestions(tmp_path)
    with questions.remember_until_answered(*ASKED):
        pass
    with pytest.raises(RuntimeError), questions.remember_until_answered(*ASKED):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"process": 0}', "\0"])
def test_a_note_that_cannot_be_read_is_dropped(tmp_path: Path, content: str) -> None:
    (tmp_path / "c1-1.json").write_text(content)
    assert OpenQuestions(tmp_path).take_unanswered("c1") == []
    assert list(tmp_path.iterdir()) == []


def test_a_question_is_asked_without_a_folder_for_notes(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with OpenQuestions(tmp_path / "file" / "open").remember_until_answered(*ASKED):
        assert OpenQuestions(tmp_path / "file" / "open").take_unanswered("c1") == []
