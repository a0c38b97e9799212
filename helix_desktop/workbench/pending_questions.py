"""Notes on the disk which calls wait for the user's permission, so that a kill does not answer them.

Such a call has not begun. Without the note, nobody could tell it from one that was killed while it
ran: the next turn would go on without the question. With it, the turn asks again.

A denial is noted, too, with the user's words, until the call's result is recorded. That may take long:
the results of calls that run beside each other are recorded together.
"""

import hashlib
import json
import logging
from pathlib import Path

from helix_desktop.atomic_files import write_file_atomically
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import Decided, Fact, ToolCall, ToolReturned
from helix_desktop.engine.forgotten_text_forms import TextForms
from helix_desktop.engine.ports import NOT_RUN, ContentCache, TokenCounter
from helix_desktop.engine.request_building import INTERRUPTED
from helix_desktop.engine.session_events import (
    Event,
    FactAppended,
    QuestionAnswered,
    QuestionAsked,
    QuestionDenied,
)
from helix_desktop.engine.tool_call_execution import asks_again_about_unstarted_calls
from helix_desktop.engine.tool_call_parsing import NOT_BEGUN, SKIPPED
from helix_desktop.engine.tool_names import EDITS, ToolName
from helix_desktop.errors import StoreFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.content_forgetting import FORGOTTEN_MARK
from helix_desktop.tools.toolbox import describe_refusal_by_user

log = logging.getLogger(__name__)
ENDING = ".question"
DENIAL_ENDING = ".denial"
# These calls run alone, so those behind them in a reply wait until they have ended.
RUN_ALONE = EDITS | {ToolName.RUN_COMMAND}


@dataclass(frozen=True, slots=True)
class _Denial:
    words: str
    device: str


def _read_denial(path: Path) -> _Denial | None:
    try:
        content = json.loads(path.read_text("utf-8"))
        return _Denial(str(content["words"]), str(content["device"]))
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None


def _write_denial(path: Path, words: str, device: str) -> None:
    content = json.dumps({"words": words, "device": device})
    write_file_atomically(path, content, private=True)


class PendingQuestions:
    """The notes of a workbench, updated with its events."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._notes: dict[tuple[str, int], Path] = {}
        # By conversation and call: many models number the calls of each reply from 0.
        self._denials: dict[tuple[str, str], Path] = {}
        self._call_ids: dict[tuple[str, int], str] = {}  # By the number of the question.

    def update_pending_questions(self, event: Event) -> None:
        """Write or delete a note at once: when the call begins, its note must be gone."""
        if isinstance(event, QuestionAsked) and not event.question.by:
            self._note_question(event)
        elif isinstance(event, QuestionDenied):
            self._note_denial(event)
        elif isinstance(event, QuestionAnswered):
            self._call_ids.pop((event.conversation, event.number), None)
            answered = self._notes.pop((event.conversation, event.number), None)
            if answered is not None:
                answered.unlink(missing_ok=True)
        elif isinstance(event, FactAppended):
            recorded = event.recorded
            if isinstance(recorded.fact, ToolReturned):
                denied_call = (recorded.conversation, recorded.fact.call)
                recorded_denial = self._denials.pop(denied_call, None)
                if recorded_denial is not None:
                    recorded_denial.unlink(missing_ok=True)

    def _note_question(self, event: QuestionAsked) -> None:
        """Write the note of a question. On a full disk the question is asked all the same."""
        call_id = event.question.call.id
        if not event.question.command:  # The user's own call is not recorded.
            self._call_ids[event.conversation, event.number] = call_id
        note = self._note_of_call(event.conversation, call_id)
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            note.touch(mode=0o600)
        except OSError as error:
            log.warning("that a question waits could not be kept: %s", error)
            return
        self._notes[event.conversation, event.number] = note

    def _note_denial(self, event: QuestionDenied) -> None:
        call_id = self._call_ids.get((event.conversation, event.number))
        if call_id is None:
            return
        path = self._note_of_call(event.conversation, call_id).with_suffix(DENIAL_ENDING)
        try:
            _write_denial(path, event.words, event.device)
        except StoreFailed as error:
            log.warning("the words of a denial could not be kept: %s", error)
            return
        self._denials[event.conversation, call_id] = path

    def forget_text(self, text: str) -> int:
        """Take a text out of the words of all denials that are not recorded yet, and return how
        many had it. A call that was denied stays so: without its note, it would be taken for one
        that ran.
        """
        forms = TextForms(text)
        changed_denials = 0
        for path in self._folder.glob(f"*{DENIAL_ENDING}"):
            denial = _read_denial(path)
            if denial is None:
                if forms.occurs_in_bytes(path.read_bytes()):
                    path.unlink(missing_ok=True)
                    changed_denials += 1
                continue
            words = forms.blank_out(denial.words, FORGOTTEN_MARK)
            if words != denial.words:
                _write_denial(path, words, denial.device)
                changed_denials += 1
        return changed_denials

    async def recover_questions(
        self, conversation: Conversation, cache: ContentCache, tokens: TokenCounter
    ) -> bool:
        """Record that the calls which a killed program asked about did not begin. Returns
        whether there are any, also from an earlier kill after which nobody has gone on: then the turn
        asks again. What the user denied is recorded as denied.
        """
        await self._record_denials(conversation, cache, tokens)
        unbegun: list[ToolCall] = []
        results: list[ToolReturned] = []
        rest_waits = False
        for pending in conversation.state.branch.running_calls:
            call = pending.call
            was_asked_about = self._note_of_call(conversation.id, call.id).exists()
            if was_asked_about and not unbegun:
                rest_waits = call.name in RUN_ALONE
            if was_asked_about or rest_waits:
                unbegun.append(call)
            else:  # It may have run beside the question, so it is not run a second time.
                results.append(await self._build_result(call, INTERRUPTED, cache, tokens))
        if not unbegun:
            return asks_again_about_unstarted_calls(conversation.state)
        for call in unbegun:
            results.append(await self._build_result(call, NOT_BEGUN, cache, tokens))
        await conversation.append_facts(*results)
        for call in unbegun:
            self._note_of_call(conversation.id, call.id).unlink(missing_ok=True)
        return True

    async def _record_denials(
        self, conversation: Conversation, cache: ContentCache, tokens: TokenCounter
    ) -> None:
        new_facts: list[Fact] = []
        read_denials: list[Path] = []
        rest_is_skipped = False
        for pending in conversation.state.branch.running_calls:
            call = pending.call
            path = self._note_of_call(conversation.id, call.id).with_suffix(DENIAL_ENDING)
            denial = _read_denial(path)
            if denial is not None:
                refusal = describe_refusal_by_user(denial.words)
                new_facts.append(await self._build_result(call, refusal, cache, tokens))
                new_facts.append(Decided(call.id, allowed=False, by="user", device=denial.device))
                read_denials.append(path)
                rest_is_skipped = call.name in RUN_ALONE
            elif rest_is_skipped:
                new_facts.append(await self._build_result(call, SKIPPED, cache, tokens))
        await conversation.append_facts(*new_facts)
        for path in read_denials:
            path.unlink(missing_ok=True)

    async def _build_result(
        self, call: ToolCall, words: str, cache: ContentCache, tokens: TokenCounter
    ) -> ToolReturned:
        stored = await cache.store_content(words.encode(), NOT_RUN)
        count = tokens.count_tokens(words)
        return ToolReturned(call.id, stored, count, ok=False, head=words, stopped=True)

    def _note_of_call(self, conversation: str, call: str) -> Path:
        """A name of digits and letters, whatever the model calls its calls."""
        named = f"{conversation}\n{call}".encode(errors="replace")
        return self._folder / f"{hashlib.sha256(named).hexdigest()}{ENDING}"
