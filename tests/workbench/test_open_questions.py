"""What a question to an agent's model cost is known even if its process is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helix_desktop.engine.facts import (
    Fact,
    ModelReplied,
    Purpose,
    Recorded,
    Spent,
    Stop,
    Text,
    Usage,
    UserSaid,
)
from helix_desktop.errors import StoppedByUser
from helix_desktop.workbench import open_questions
from helix_desktop.workbench.open_questions import (
    NO_NOTES,
    UNKNOWN_SEQ,
    OpenQuestions,
    UnansweredQuestion,
    was_answered_since,
)

YEAR = 365 * 86_400.0
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


def ask_behind(
    purpose: Purpose, *, after_seq: int, askings: int, folder: Path
) -> UnansweredQuestion:
    """What a note says of a question that was asked so often when its process was killed."""
    questions = OpenQuestions(folder)
    note = questions.note_question("c1", purpose, "m", Usage(1), after_seq)
    for _ in range(askings - 1):
        note.renew_question_note()
    note.leave_question_unanswered()
    (question,) = questions.take_unanswered_questions()
    return question


@pytest.mark.parametrize("seconds_set", [-YEAR, -3600.0, 0.0, 3600.0, YEAR])
@pytest.mark.parametrize("purpose", [Purpose.STEP, Purpose.HANDOVER])
@pytest.mark.parametrize(
    ("askings", "answers_behind", "is_answered"),
    [(1, 0, False), (1, 1, True), (2, 1, False), (2, 2, True), (3, 2, False), (3, 3, True)],
)
def test_an_answer_counts_by_its_place_whatever_the_clock_was_set_to(
    tmp_path: Path,
    seconds_set: float,
    purpose: Purpose,
    *,
    askings: int,
    answers_behind: int,
    is_answered: bool,
) -> None:
    """Its date decided: with a clock that was set back, a recorded answer was paid for twice, and
    with one that was set forward before, a question without an answer was not paid for.
    """
    answer: Fact = Spent(purpose, "m", Usage(1))
    if purpose is Purpose.STEP:
        answer = ModelReplied((), "m", Stop.END, Usage(1))
    question = ask_behind(purpose, after_seq=2, askings=askings, folder=tmp_path / "notes")
    # The second is an earlier answer, which may be dated after the question.
    earlier_time = question.asked - seconds_set
    later_time = question.asked + seconds_set + 1.0
    recorded = [
        Recorded("c1", 1, earlier_time, UserSaid((Text("go on"),))),
        Recorded("c1", 2, earlier_time, answer),
    ]
    for number in range(answers_behind):
        recorded.append(Recorded("c1", 3 + number, later_time, answer))
    assert was_answered_since(recorded, question) is is_answered


def test_the_note_of_an_earlier_version_goes_by_its_date(tmp_path: Path) -> None:
    note = tmp_path / "1.json"
    note.write_text(
        '{"conversation": "c1", "purpose": "step", "model": "m", "asked": 9.0,'
        ' "input": 0, "cache_read": 0}'
    )
    (question,) = OpenQuestions(tmp_path).take_unanswered_questions()
    assert question.after_seq == UNKNOWN_SEQ
    reply = ModelReplied((), "m", Stop.END, Usage(1))
    assert was_answered_since([Recorded("c1", 1, 10.0, reply)], question)
    assert not was_answered_since([Recorded("c1", 1, 8.0, reply)], question)
