"""What a question to an agent's model cost is known even if its process is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helix_desktop.engine.facts import Purpose, Usage
from helix_desktop.errors import StoppedByUser
from helix_desktop.workbench import open_questions
from helix_desktop.workbench.open_questions import NO_NOTES, OpenQuestions

ASKED = ("c1", Purpose.HANDOVER, "gpt", Usage(42_651, 40_000))
ASKS = """
import sys
from pathlib import Path
from helix_desktop.engine.facts import Purpose, Usage
from helix_desktop.workbench.open_questions import OpenQuestions
note = OpenQuestions(Path(sys.argv[1])).note_question("c1", Purpose.HANDOVER, "gpt", Usage(42_651, 40_000))
print("asked", flush=True)
sys.stdin.read()
"""


def test_a_question_of_a_killed_process_is_taken_once(tmp_path: Path) -> None:
    questions = OpenQuestions(tmp_path / "open")
    words = [sys.executable, "-c", ASKS, str(questions.folder)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"asked"
        assert questions.take_unanswered_questions() == [], "it is being answered"
        process.kill()
        process.wait()
    (question,) = questions.take_unanswered_questions()
    assert (question.conversation, question.purpose, question.model, question.usage) == ASKED
    assert question.asked <= time.time()
    assert questions.take_unanswered_questions() == []


def test_an_answered_and_a_failed_question_leave_nothing(tmp_path: Path) -> None:
    questions = OpenQuestions(tmp_path)
    with questions.remember_until_answered(*ASKED):
        assert questions.take_unanswered_questions() == []
    with pytest.raises(RuntimeError), questions.remember_until_answered(*ASKED):
        raise RuntimeError
    note = questions.note_question(*ASKED)
    note.renew_question_note()
    note.delete_question_note()
    note.delete_question_note()
    assert list(tmp_path.iterdir()) == []


def test_a_question_whose_gateway_ended_counts(tmp_path: Path) -> None:
    questions = OpenQuestions(tmp_path)
    with pytest.raises(StoppedByUser), questions.remember_until_answered(*ASKED):
        raise StoppedByUser("The gateway is no longer running.")
    assert len(questions.take_unanswered_questions()) == 1


@pytest.mark.parametrize("content", ["[]", "{}", '{"conversation": "c1"}', "\0"])
def test_a_note_that_cannot_be_read_is_dropped(tmp_path: Path, content: str) -> None:
    (tmp_path / "1.json").write_text(content)
    assert OpenQuestions(tmp_path).take_unanswered_questions() == []
    assert list(tmp_path.iterdir()) == []


def test_a_question_that_is_asked_once_more_at_a_shorter_time_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the longer note stayed behind the shorter one, and what it cost was lost."""
    questions = OpenQuestions(tmp_path / "notes")
    monkeypatch.setattr(time, "time", lambda: 1_795_899_740.3337574)
    note = questions.note_question("c1", Purpose.STEP, "m")
    monkeypatch.setattr(time, "time", lambda: 1_795_899_741.5)
    note.renew_question_note()
    note.leave_question_unanswered()
    (question,) = questions.take_unanswered_questions()
    assert question.asked == 1_795_899_741.5


def test_an_empty_file_is_left_to_the_process_that_is_making_it(tmp_path: Path) -> None:
    note = tmp_path / "1.json"
    note.touch()
    assert OpenQuestions(tmp_path).take_unanswered_questions() == []
    assert note.exists()
    long_ago = time.time() - 2 * open_questions.EMPTY_SECONDS
    os.utime(note, (long_ago, long_ago))
    assert OpenQuestions(tmp_path).take_unanswered_questions() == []
    assert not note.exists()


def test_a_question_is_asked_without_a_folder_for_notes(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for questions in (OpenQuestions(tmp_path / "file" / "open"), NO_NOTES):
        with questions.remember_until_answered(*ASKED):
            assert questions.take_unanswered_questions() == []
