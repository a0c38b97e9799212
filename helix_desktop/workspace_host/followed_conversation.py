"""What a client knows of a conversation, computed from facts by the engine's own functions.

So a page that shows it need not know where the host is, and two clients with the same facts have
the same view.
"""

import time
from collections.abc import Iterable
from dataclasses import replace

import msgspec

from helix_desktop.engine import session_events
from helix_desktop.engine.facts import ModelReplied, Recorded, TurnEnded
from helix_desktop.engine.messages import TextDelta
from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.engine.session_events import ConversationActivity, FoldProgress, MessagesQueued
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view import ConversationState, build_state
from helix_desktop.workspace_host.host_interface import (
    ConversationEvent,
    FactsAdded,
    HistoryReplaced,
    LiveState,
    ReplyDelayed,
)


class FollowedConversation:
    """Apply the events of a `ConversationFollower` in their order. `known_facts`: those that this
    client has already, if it follows from a later number on.
    """

    def __init__(self, known_facts: Iterable[Recorded] = ()) -> None:
        self.state = build_state(known_facts)
        self.running = ConversationActivity.IDLE
        self.why = ""
        self.questions: dict[int, PermissionQuestion] = {}
        self.queued: MessagesQueued | None = None
        self.reply_text = ""
        self.has_caught_up = False
        # Why the model is asked again, which is empty while it is at work, and when.
        self._retry_why = ""
        self._retry_at = 0.0
        self._awaited_fold: FoldProgress | None = None
        self._fold_retry_at = 0.0

    def describe_wait(self) -> str:
        """Return what the turn waits for besides the model: the pause before it is asked again, or
        a summary of older messages. Empty: for nothing else.
        """
        if self._retry_why:
            seconds_left = self._retry_at - time.monotonic()
            return session_events.describe_retry(seconds_left, self._retry_why)
        if self._awaited_fold is None:
            return ""
        seconds_left = self._fold_retry_at - time.monotonic()
        progress = replace(self._awaited_fold, retry_seconds=seconds_left)
        return session_events.describe_wait_for_summary(progress)

    def apply_event(self, event: ConversationEvent) -> None:
        self._note_wait(event)
        match event:
            case FactsAdded():
                for recorded in event.facts:
                    self._add_fact(recorded)
            case HistoryReplaced():
                self.state = ConversationState()
                self.has_caught_up = False
            case LiveState():
                self._replace_live_state(event)
                self.has_caught_up = not event.is_early
            case session_events.ActivityChanged():
                self.running = event.running
                self.why = event.why
            case session_events.QuestionAsked():
                self.questions[event.number] = event.question
            case session_events.QuestionAnswered():
                self.questions.pop(event.number, None)
            case session_events.MessagesQueued():
                self.queued = event
            case session_events.ReplyStreamed(delta=TextDelta(text)):
                self.reply_text += text
            case _:
                pass  # Progress that nothing here shows.

    def _add_fact(self, recorded: Recorded) -> None:
        self.state.advance_state(recorded)
        if isinstance(recorded.fact, ModelReplied | TurnEnded):
            self.reply_text = ""
            self._retry_why = ""

    def _note_wait(self, event: ConversationEvent) -> None:
        match event:
            case ReplyDelayed():
                self._note_told_retry(event)
            case session_events.ReplyStreamed() | session_events.ActivityChanged():
                self._retry_why = ""
            case FoldProgress():
                self._note_fold_progress(event)
            case _:
                pass  # It waits as before.

    def _note_told_retry(self, delayed: ReplyDelayed | None) -> None:
        self._retry_why = ""
        if delayed is not None:
            self._retry_why = delayed.why
            self._retry_at = time.monotonic() + delayed.seconds

    def _note_fold_progress(self, progress: FoldProgress | None) -> None:
        self._awaited_fold = None
        if progress is not None and not progress.done:
            self._awaited_fold = progress
            self._fold_retry_at = time.monotonic() + progress.retry_seconds

    def _replace_live_state(self, live: LiveState) -> None:
        self.running = live.running
        self.why = live.why
        self.questions = {asked.number: asked.question for asked in live.questions}
        self.queued = live.queued
        self.reply_text = live.reply_text
        self._note_told_retry(live.retry)
        self._note_fold_progress(live.fold)


def digest_of_view(state: ConversationState) -> Digest:
    """Equal for two states that a model would be sent the same of."""
    view = state.get_view()
    # Not how much of it is unchanged since the last request, which an undone fold changes.
    sent_parts = (view.blocks, view.tools, view.effort, view.temperature, view.top_p)
    encoded_parts = msgspec.msgpack.encode(sent_parts)
    return Digest.of_content(encoded_parts)
