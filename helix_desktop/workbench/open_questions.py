"""Keeps a note of each question to an agent's model that is not answered yet, in a file.

The provider bills such a question even if the process that asked is killed meanwhile, as a
handover of 42,000 tokens was. The file is locked as long as that process lives. A note without
that lock becomes a fact: what the question cost, by estimate.
"""

import asyncio
import json
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from helix_desktop import atomic_files
from helix_desktop.engine.context_usage import estimate_usage_of_request
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import (
    Fact,
    ModelReplied,
    ModelRole,
    Purpose,
    Recorded,
    Spent,
    Usage,
)
from helix_desktop.engine.view import ConversationState
from helix_desktop.errors import HelixError, StoppedByUser
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.providers.model_prices import price_usage_of_agent
from helix_desktop.store.stored_workspace import StoredWorkspace

FOLDER = "open-questions"
# A file that is still empty after so many seconds is of a process that was killed as it made it.
EMPTY_SECONDS = 60.0
UNKNOWN_USAGE = Usage()
# Who asked did not know which facts the conversation had.
UNKNOWN_SEQ = -1

OpenConversation = Callable[[str], Awaitable[Conversation | None]]


@dataclass(frozen=True, slots=True)
class UnansweredQuestion:
    """What a note says. `usage`: what the question costs at least; nothing: it is a step of its
    conversation, whose facts say how long it was. `asked`: when, in seconds since 1970.

    `after_seq`: the newest fact when it was first asked, or UNKNOWN_SEQ. `answers`: how many answers
    were recorded behind that fact before it was asked once more. Both hold whatever the clock says.
    """

    conversation: str
    purpose: Purpose
    model: str
    asked: float
    usage: Usage = UNKNOWN_USAGE
    after_seq: int = UNKNOWN_SEQ
    answers: int = 0


@dataclass(frozen=True, slots=True)
class HeldQuestion:
    """A step whose gateway was killed. It is paid for once its agent has asked for it again, as
    nobody knows better what it cost than the provider that answers then.
    """

    question: UnansweredQuestion
    path: Path

    def spent_as_reported(self, usage: Usage, state: ConversationState) -> Spent:
        """Return what it cost, by what the provider reports of the same request. `state`: before
        that reply.
        """
        estimate = estimate_usage_of_request(state)
        cache_read = min(estimate.cache_read, usage.input)
        return _build_spent(self.question, Usage(usage.input, cache_read), state)

    def delete_held_note(self) -> None:
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


@dataclass(slots=True)
class QuestionNote:
    """The note of one question. `handle`: of its file; below 0: there is none."""

    question: UnansweredQuestion
    path: Path = field(default_factory=Path)
    handle: int = -1

    def renew_question_note(self) -> None:
        """Note that the question is asked once more, now that an answer to it is recorded."""
        answers = self.question.answers + 1
        self.question = replace(self.question, asked=time.time(), answers=answers)
        self.write_question_note()

    def write_question_note(self) -> None:
        if self.handle < 0:
            return
        usage = self.question.usage
        content = {
            "conversation": self.question.conversation,
            "purpose": self.question.purpose.value,
            "model": self.question.model,
            "asked": self.question.asked,
            "input": usage.input,
            "cache_read": usage.cache_read,
            "after_seq": self.question.after_seq,
            "answers": self.question.answers,
        }
        # Blanks cover what a longer note has left behind. All of it is one write, because the process
        # may be killed at any time.
        encoded_note = json.dumps(content).encode().ljust(os.fstat(self.handle).st_size)
        # A killed process loses nothing that was written, so this is not synced to the disk.
        os.lseek(self.handle, 0, os.SEEK_SET)
        os.write(self.handle, encoded_note)

    def leave_question_unanswered(self) -> None:
        """Let the question count as one that is never answered."""
        if self.handle >= 0:
            os.close(self.handle)
        self.handle = -1

    def delete_question_note(self) -> None:
        """Delete the note. A second call does nothing."""
        if self.handle < 0:
            return
        with suppress(OSError):
            # Windows deletes no open file, and without a lock nobody must read what it says.
            os.ftruncate(self.handle, 0)
        self.leave_question_unanswered()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class OpenQuestions:
    """The notes of one workspace, of all processes. Without a folder, none are kept."""

    folder: Path | None = None

    def note_question(
        self,
        conversation: str,
        purpose: Purpose,
        model: str,
        usage: Usage = UNKNOWN_USAGE,
        after_seq: int = UNKNOWN_SEQ,
    ) -> QuestionNote:
        """Write a note of a question that is asked now."""
        question = UnansweredQuestion(conversation, purpose, model, time.time(), usage, after_seq)
        note = QuestionNote(question)
        if self.folder is None or not conversation:
            return note
        note.path = self.folder / f"{secrets.token_hex(8)}.json"
        # On a full disk, the question is asked all the same: only its cost may be forgotten.
        with suppress(OSError):
            note.handle = self._create_locked_file(note.path)
            note.write_question_note()
        return note

    @staticmethod
    def _create_locked_file(path: Path) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        try:
            handle = os.open(path, flags, 0o600)
        except FileNotFoundError:
            atomic_files.create_private_folder(path.parent)
            handle = os.open(path, flags, 0o600)
        with suppress(OSError):  # Some network disks know no locks.
            atomic_files.lock_open_file(handle, waits=True)
        return handle

    @contextmanager
    def remember_until_answered(
        self,
        conversation: str,
        purpose: Purpose,
        model: str,
        usage: Usage,
        after_seq: int = UNKNOWN_SEQ,
    ) -> Iterator[None]:
        """Keep a note of a question until it is answered or fails."""
        note = self.note_question(conversation, purpose, model, usage, after_seq)
        try:
            yield
        except StoppedByUser:
            # The gateway that asked has ended, and the provider may answer and bill all the same.
            note.leave_question_unanswered()
            raise
        finally:
            note.delete_question_note()

    def has_notes(self) -> bool:
        """Whether there is a note of any process, also of one that lives."""
        return self.folder is not None and any(self.folder.glob("*.json"))

    def list_unanswered_steps(self) -> list[HeldQuestion]:
        """Return the steps that processes asked for which have ended. Their notes stay."""
        if self.folder is None:
            return []
        steps: list[HeldQuestion] = []
        for path in sorted(self.folder.glob("*.json")):
            with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
                question = _parse_question_note(json.loads(_read_file_of_ended_process(path)))
                if question.purpose is Purpose.STEP:
                    steps.append(HeldQuestion(question, path))
        return steps

    def take_unanswered_questions(self, held: Collection[Path] = ()) -> list[UnansweredQuestion]:
        """Return the questions of processes that have ended, and forget them, so that nobody else
        pays for them again. Those in the `held` files are left.
        """
        if self.folder is None:
            return []
        unanswered: list[UnansweredQuestion] = []
        for path in sorted(self.folder.glob("*.json")):
            if path in held:
                continue
            with suppress(OSError):
                content = _take_file_of_ended_process(path)
                # A note that cannot be read is deleted like the others: nothing else would read it.
                with suppress(ValueError, KeyError, TypeError, AttributeError):
                    unanswered.append(_parse_question_note(json.loads(content)))
        return unanswered


NO_NOTES = OpenQuestions()


def _read_file_of_ended_process(path: Path) -> bytes:
    """Return what the file of a note says. Raises OSError if its process lives."""
    handle = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
    try:
        atomic_files.lock_open_file(handle)
        return os.read(handle, 1 << 16)
    finally:
        os.close(handle)


def _take_file_of_ended_process(path: Path) -> bytes:
    """Delete the file of a note and return what it says. Raises OSError if its process lives."""
    handle = os.open(path, os.O_RDWR | getattr(os, "O_BINARY", 0))
    try:
        atomic_files.lock_open_file(handle)
        content = os.read(handle, 1 << 16)
        age_seconds = time.time() - os.fstat(handle).st_mtime
        # An age below 0 says that the clock was set back.
        if not content and 0 <= age_seconds < EMPTY_SECONDS:
            raise BlockingIOError("its process has not written it yet")
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)
    path.unlink()
    return content


def _parse_question_note(content: Any) -> UnansweredQuestion:
    usage = Usage(int(content["input"]), int(content["cache_read"]))
    purpose = Purpose(content["purpose"])
    # An earlier version did not write these two.
    after_seq = int(content.get("after_seq", UNKNOWN_SEQ))
    answers = int(content.get("answers", 0))
    return UnansweredQuestion(
        str(content["conversation"]),
        purpose,
        str(content["model"]),
        float(content["asked"]),
        usage,
        after_seq,
        answers,
    )


async def record_unanswered_questions(
    workspace: StoredWorkspace,
    open_conversation: OpenConversation | None = None,
    held: Collection[Path] = (),
) -> None:
    """Record what the questions of ended processes cost, by estimate.

    `open_conversation`: returns a conversation that may be open here already, or None if it was
    deleted. Without it, no conversation may be open. `held`: files of notes that are left.
    """
    questions = OpenQuestions(workspace.folder / FOLDER)
    unanswered = await asyncio.to_thread(questions.take_unanswered_questions, held)
    for question in unanswered:
        # One that cannot be opened now says so when the user opens it.
        with suppress(HelixError):
            if open_conversation is not None:
                conversation = await open_conversation(question.conversation)
            else:
                conversation = await Conversation.open(workspace.journal, question.conversation)
            if conversation is not None:
                await _record_unanswered_question(conversation, question)


async def _record_unanswered_question(
    conversation: Conversation, question: UnansweredQuestion
) -> None:
    state = conversation.state
    if not state.facts or was_answered_since(state.facts, question):
        return
    usage = question.usage
    if not usage.input:
        usage = estimate_usage_of_request(state)
    await conversation.append_facts(_build_spent(question, usage, state))


def _build_spent(question: UnansweredQuestion, usage: Usage, state: ConversationState) -> Spent:
    main_model = state.settings.model_for_role(ModelRole.MAIN)
    priced_usage = price_usage_of_agent(usage, "", question.model, main_model)
    return Spent(question.purpose, question.model, priced_usage, is_estimate=True)


def was_answered_since(recorded_facts: Sequence[Recorded], question: UnansweredQuestion) -> bool:
    """Whether an answer was recorded after the question was asked: its process was killed before
    it could delete the note.

    The clock may have been set in between, so the order of the facts decides. The date does only for
    a question whose place among them is not known.
    """
    if question.after_seq == UNKNOWN_SEQ:
        for recorded in reversed(recorded_facts):
            if recorded.time < question.asked:
                return False
            if _is_answer(recorded.fact, question.purpose):
                return True
        return False

    answers = 0
    for recorded in reversed(recorded_facts):
        if recorded.seq <= question.after_seq:
            break
        if _is_answer(recorded.fact, question.purpose):
            answers += 1
    return answers > question.answers


def _is_answer(fact: Fact, purpose: Purpose) -> bool:
    if isinstance(fact, ModelReplied):
        return purpose is Purpose.STEP
    return isinstance(fact, Spent) and fact.purpose is purpose and not fact.is_estimate
