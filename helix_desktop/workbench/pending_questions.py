"""Notes on the disk which calls wait for the user's permission, so that a kill does not answer them.

Such a call has not begun. Without the note, nobody could tell it from one that was killed while it
ran: the next turn would go on without the question. With it, the turn asks again.
"""

import hashlib
from pathlib import Path

from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import ToolCall, ToolReturned
from helix_desktop.engine.ports import ContentCache, EntryOrigin, TokenCounter
from helix_desktop.engine.request_building import INTERRUPTED
from helix_desktop.engine.session_events import Event, QuestionAnswered, QuestionAsked
from helix_desktop.engine.tool_call_parsing import NOT_BEGUN
from helix_desktop.engine.tool_names import EDITS, ToolName
from helix_desktop.engine.tool_result_reading import describe_call_as_source

ENDING = ".question"
# These calls run alone, so those behind them in a reply wait until they have ended.
RUN_ALONE = EDITS | {ToolName.RUN_COMMAND}


class PendingQuestions:
    """The notes of a workbench, updated with its events."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._notes: dict[tuple[str, int], Path] = {}

    def update_pending_questions(self, event: Event) -> None:
        """Write or delete a note at once: when the call begins, its note must be gone."""
        if isinstance(event, QuestionAsked) and not event.question.by:
            note = self._note_of_call(event.conversation, event.question.call.id)
            self._folder.mkdir(mode=0o700, exist_ok=True)
            note.touch(mode=0o600)
            self._notes[event.conversation, event.number] = note
        elif isinstance(event, QuestionAnswered):
            answered = self._notes.pop((event.conversation, event.number), None)
            if answered is not None:
                answered.unlink(missing_ok=True)

    async def recover_questions(
        self, conversation: Conversation, cache: ContentCache, tokens: TokenCounter
    ) -> bool:
        """Record that the calls which a killed program asked about did not begin. Returns
        whether there are any: then the turn asks again.
        """
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
            return False
        for call in unbegun:
            results.append(await self._build_result(call, NOT_BEGUN, cache, tokens))
        await conversation.append_facts(*results)
        for call in unbegun:
            self._note_of_call(conversation.id, call.id).unlink(missing_ok=True)
        return True

    async def _build_result(
        self, call: ToolCall, words: str, cache: ContentCache, tokens: TokenCounter
    ) -> ToolReturned:
        origin = EntryOrigin(call.name, describe_call_as_source(call.arguments))
        stored = await cache.store_content(words.encode(), origin)
        count = tokens.count_tokens(words)
        return ToolReturned(call.id, stored, count, ok=False, head=words, stopped=True)

    def _note_of_call(self, conversation: str, call: str) -> Path:
        """A name of digits and letters, whatever the model calls its calls."""
        named = f"{conversation}\n{call}".encode(errors="replace")
        return self._folder / f"{hashlib.sha256(named).hexdigest()}{ENDING}"
