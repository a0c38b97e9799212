"""Turns a recorded history into facts of a conversation, with the same result each time.

Outputs and pictures are returned beside the facts, to be stored before them. Nothing is
left out: an output that answers no call becomes an attachment, a failed request ends a
turn, and what the other program showed instead of an output is a fold.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import field, replace

from helix_desktop.engine import fact_encoding, facts
from helix_desktop.engine.agent_additions import (
    OUTPUT_WITHOUT_CALL,
    SYSTEM_MESSAGE,
    split_off_agent_additions,
)
from helix_desktop.engine.fold_kinds import KINDS_OF_SUMMARIES
from helix_desktop.engine.ports import EntryOrigin, TokenCounter
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_result_reading import describe_call_as_source
from helix_desktop.engine.view import ConversationState, build_state
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import recorded_session
from helix_desktop.histories.leaked_keys import mask_keys
from helix_desktop.histories.program_names import SHOWN_BY_OTHER
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession
from helix_desktop.store.cache_folder import count_text_lines

TITLE = 80
LONG = 200  # Texts with more characters become attachments unless a person typed them.
HEAD = 2_000  # A fact contains this many characters of an output's beginning.
SUMMARY = "[Conversation History Summary]"
PICTURE_TOKENS = 1_000
EXCERPT_ENDS = "\n[All of it: recall_cached_content("
IMAGES = "image/"
Content = tuple[bytes, EntryOrigin]


@dataclass(frozen=True, slots=True)
class FactDraft:
    """A fact of an imported conversation before it has its final number in the journal. Numbers in
    it, as of the messages that a fold covers, count from the first draft, which is 1.
    """

    time: float
    fact: facts.Fact
    contents: tuple[Content, ...] = ()
    message: int = 0  # The position of the recorded message from which it was made.
    is_summary: bool = False  # True for a compaction's text if the file lacks the originals.
    is_compaction: bool = False  # True for a compaction's text if a fold would save nothing.

    @property
    def is_message_or_result(self) -> bool:
        """Whether it is one of the facts by which an earlier import is recognised."""
        return isinstance(
            self.fact, facts.UserSaid | facts.ModelReplied | facts.ToolReturned | facts.SystemSet
        )

    @property
    def repeats_earlier_ones(self) -> bool:
        return self.is_summary or self.is_compaction or isinstance(self.fact, facts.Folded)


def summary_text_of_draft(draft: FactDraft) -> str:
    """Return the text of a fold with this summary. A long summary is in a content of the draft."""
    if isinstance(draft.fact, facts.UserSaid):
        first_part = draft.fact.parts[0]
        if isinstance(first_part, facts.Text):
            return f"{SUMMARY}\n{first_part.text}"
    content, _origin = draft.contents[0]
    return f"{SUMMARY}\n{content.decode('utf-8', 'replace')}"


def comparable_text(fact: facts.Fact) -> str:
    """Return a fact as text to compare, without position, cost, and what older versions ignored."""
    if isinstance(fact, facts.ModelReplied):
        usage = replace(fact.usage, cache_write_hour=0, cost=0.0)
        fact = replace(fact, saw=0, seconds=0.0, usage=usage)
    return fact_encoding.encode_fact(fact)


def build_started_fact(
    recording: RecordedSession, *, parent: str = "", fork: tuple[str, int] = ("", 0)
) -> facts.ConversationStarted:
    """Return the fact with which a conversation begins, or continues as a fork."""
    forked_from, forked_at = fork
    parent_call = ""
    if parent:
        parent_call = recording.parent_call
    return facts.ConversationStarted(
        title=title_of_recording(recording),
        parent=parent,
        parent_call=parent_call,
        forked_from=forked_from,
        forked_at=forked_at,
        origin=origin_of_recording(recording),
    )


def title_of_recording(recording: RecordedSession) -> str:
    """Return its title, or the beginning of the first message that a person typed. A branch is
    named by what was typed first in it, so that a list tells it from the session that it left.
    """
    title = recording.title
    if recording.forked_from:
        title = _beginning_of_typed_message(recording.messages[recording.forked_at :]) or title
    title = (title or _beginning_of_typed_message(recording.messages))[:2_000]
    title = mask_keys(title)  # Titles are shown in many places, so they must not contain keys.
    return " ".join(title.lstrip("#").split())[:TITLE]


def _beginning_of_typed_message(messages: Sequence[RecordedMessage]) -> str:
    for message in messages:
        if message.role == "user" and not message.beside:
            beginning = facts.Text(message.text[:20_000])
            words, _additions = split_off_agent_additions((beginning,))
            if words:
                return words
    return ""


def origin_of_recording(recording: RecordedSession) -> facts.Origin:
    return facts.Origin(recording.kind, recording.session, recording.name, recording.version)


def draft_facts(
    recording: RecordedSession, tokens: TokenCounter, find_child: Callable[[str], str]
) -> list[FactDraft]:
    """Draft the recording's facts, in order. `find_child` returns a sub-agent's
    conversation or "".

    First come the program's instructions to the model, as one fact, and then message after message.
    A compaction, where the program replaced older messages by a summary, comes before the message
    at whose position it stands, or at the end.
    """
    drafter = _FactDrafter(tokens, find_child, has_folds=bool(recording.compactions))
    compactions = {compaction.at: compaction for compaction in recording.compactions}
    instruction_count = _count_instructions(recording)
    if instruction_count:
        texts = [message.text for message in recording.messages[:instruction_count]]
        text = "\n\n".join(texts)
        system = facts.SystemSet(text, tokens.count_tokens(text))
        drafter.add_draft(recording.messages[0].time, system)
    for position, message in enumerate(recording.messages):
        if position in compactions:
            drafter.draft_compaction(compactions[position])
        if position >= instruction_count:
            drafter.draft_message(position, message)
    compaction_at_end = compactions.get(len(recording.messages))
    if compaction_at_end is not None:
        drafter.draft_compaction(compaction_at_end)
    drafter.end_last_turn()
    return drafter.drafts


def _count_instructions(recording: RecordedSession) -> int:
    """Return how many first messages are the program's instructions to the model."""
    for position, message in enumerate(recording.messages):
        if message.role != "system":
            return position
    return len(recording.messages)


@dataclass(slots=True)
class _FactDrafter:
    """The drafts so far. If there are folds, which are summaries in the place of older messages,
    `state` follows them, to turn invalid folds into messages.
    """

    tokens: TokenCounter
    find_child: Callable[[str], str]
    has_folds: bool = False
    drafts: list[FactDraft] = field(default_factory=list)
    state: ConversationState = field(default_factory=ConversationState)
    # By the position of a message: the number of its first draft.
    first_draft_of_message: dict[int, int] = field(default_factory=dict)
    # Calls of the last reply that have no result yet, by their ids.
    unanswered_calls: dict[str, facts.ToolCall] = field(default_factory=dict)
    has_last_reply_calls: bool = False
    is_turn_running: bool = False
    fold_number: int = 0
    time: float = 0.0
    message: int = 0  # The position of the message that is being drafted.

    def add_draft(self, time: float, fact: facts.Fact, contents: tuple[Content, ...] = ()) -> int:
        """Add a draft, and return its number."""
        self.time = max(self.time, time)
        draft = FactDraft(self.time, fact, contents, self.message)
        self.drafts.append(draft)
        number = len(self.drafts)
        if self.has_folds:
            recorded = facts.Recorded("", number, self.time, fact)
            self.state.advance_state(recorded)
        return number

    def draft_message(self, position: int, message: RecordedMessage) -> None:
        """Draft the facts of a message by who speaks in it. `failure` is a note that a request
        failed.
        """
        self.first_draft_of_message[position] = len(self.drafts) + 1
        self.message = position
        if message.role == "assistant":
            self._draft_reply(message)
        elif message.role == "tool":
            self._draft_result(message)
        elif message.role == "failure":
            self._draft_turn_end(message.time, facts.TurnEnd.FAILED, message.text)
        else:
            self._draft_user_message(message)

    def end_last_turn(self) -> None:
        """End the last turn if its last reply made no calls."""
        if self.is_turn_running and not self.has_last_reply_calls:
            self._draft_turn_end(self.time, facts.TurnEnd.DONE)

    # --- Turning the recording's messages into facts

    def _draft_user_message(self, message: RecordedMessage) -> None:
        """Draft a message of the user. What a person typed ends the turn before it.

        A long text that no person typed (`beside`) and pictures become attachments, whose contents
        are stored apart.
        """
        if not message.beside:
            reason = facts.TurnEnd.DONE
            if self.unanswered_calls:
                reason = facts.TurnEnd.STOPPED
            self._draft_turn_end(message.time, reason)

        text = message.text
        if message.role != "user":
            text = f"{SYSTEM_MESSAGE}{text}"
        parts: list[facts.UserPart] = []
        contents: list[Content] = []
        if message.beside and len(text) > LONG:
            text_name = _name_of_long_text(text)
            content = text.encode("utf-8", "replace")
            stored_text = reference_to_content(content)
            tokens = self.tokens.count_tokens(text)
            parts.append(facts.Attachment(text_name, stored_text, tokens))
            contents.append((content, EntryOrigin("user", text_name)))
        elif text.strip():
            tokens = self.tokens.count_tokens(text)
            parts.append(facts.Text(text, tokens))
        for number, picture in enumerate(message.pictures, 1):
            picture_name = picture.name or f"picture {number}"
            stored = reference_to_content(picture.data, picture.media_type)
            picture_tokens = self._estimate_picture_tokens(picture)
            parts.append(facts.Attachment(picture_name, stored, picture_tokens))
            origin = EntryOrigin("user", picture_name, picture.media_type)
            contents.append((picture.data, origin))
        if not parts:
            return
        is_steering = message.beside and self.is_turn_running
        user_said = facts.UserSaid(tuple(parts), steering=is_steering)
        self.add_draft(message.time, user_said, tuple(contents))
        self.is_turn_running = True
        self.drafts[-1] = replace(self.drafts[-1], is_summary=message.is_summary)

    def _draft_reply(self, message: RecordedMessage) -> None:
        """Draft a reply of the model."""
        parts: list[facts.ReplyPart] = []
        calls: dict[str, facts.ToolCall] = {}
        recorded_parts = message.parts or recorded_session.reply_parts_from_message(message)
        for recorded_part in recorded_parts:
            part = self._with_counted_tokens(recorded_part)
            parts.append(part)
            if isinstance(part, facts.ToolCall):
                calls[part.id] = part
        if not parts:
            return
        self.unanswered_calls = calls
        self.has_last_reply_calls = bool(calls)
        self.is_turn_running = True
        stop = facts.Stop.END
        if calls:
            stop = facts.Stop.CALLS
        reply = facts.ModelReplied(
            tuple(parts), message.model, stop, message.usage, seconds=message.seconds
        )
        self.add_draft(message.time, reply)

    def _draft_result(self, message: RecordedMessage) -> None:
        """Draft the result of a call. One that answers no call becomes a message of the
        user.

        The output and its pictures are stored beside the fact, which has only its beginning
        (`head`). If the other program showed the model less than the output, a fold says so.
        """
        content = message.text.encode("utf-8", "replace")
        output = reference_to_content(content)
        tokens = self.tokens.count_tokens(message.text)
        call = self.unanswered_calls.pop(message.answers, None)
        if call is None:
            heading = facts.Text(OUTPUT_WITHOUT_CALL, tokens=8)
            attachment = facts.Attachment("output.txt", output, tokens)
            user_said = facts.UserSaid((heading, attachment), steering=self.is_turn_running)
            origin_of_output = EntryOrigin("tool")
            self.add_draft(message.time, user_said, ((content, origin_of_output),))
            return
        source = describe_call_as_source(call.arguments)
        origin = EntryOrigin(call.name, source)
        contents = [(content, origin)]
        images: list[facts.Stored] = []
        for picture in message.pictures:
            if picture.media_type.startswith(IMAGES):
                image = reference_to_content(picture.data, picture.media_type)
                images.append(image)
                origin_of_picture = EntryOrigin(origin.tool, origin.source, picture.media_type)
                contents.append((picture.data, origin_of_picture))
        head = ""
        if len(message.text) <= HEAD:
            head = message.text
        child = ""
        if message.child:
            child = self.find_child(message.child)
        fact = facts.ToolReturned(
            message.answers,
            output,
            tokens,
            ok=message.ok,
            head=head,
            images=tuple(images),
            child=child,
        )
        number = self.add_draft(message.time, fact, tuple(contents))
        if message.shown:
            self._draft_excerpt(number, message, output, tokens)

    def _draft_excerpt(
        self, number: int, message: RecordedMessage, output: facts.Stored, output_tokens: int
    ) -> None:
        """Draft what the other program showed instead of the output, if that is shorter: a fold
        over the draft of this number.
        """
        text = f'{message.shown}{EXCERPT_ENDS}"{output.digest}")]'
        excerpt_tokens = self.tokens.count_tokens(text)
        if excerpt_tokens >= output_tokens:
            return
        name = self._next_fold_name(facts.FoldKind.EXCERPT)
        fold = facts.Folded(
            fold=name,
            kind=facts.FoldKind.EXCERPT,
            cover=facts.PartRef(number),
            text=text,
            tokens=excerpt_tokens,
            tokens_before=output_tokens,
            entries=(output.digest,),
            why=SHOWN_BY_OTHER,
        )
        self.add_draft(message.time, fold)

    def _draft_turn_end(self, time: float, reason: facts.TurnEnd, why: str = "") -> None:
        if self.is_turn_running:
            self.add_draft(time, facts.TurnEnded(reason, why))
        self.is_turn_running = False
        self.has_last_reply_calls = False
        self.unanswered_calls = {}

    # --- Turning the recording's compactions into folds

    def draft_compaction(self, compaction: recorded_session.RecordedCompaction) -> None:
        """Draft a fold of what came before, or a message with the summary if a fold
        would save nothing.
        """
        cover = self._cover_of_compaction(compaction)
        if cover is not None and self._draft_fold_of_compaction(compaction, cover):
            return
        tokens = self.tokens.count_tokens(f"{SUMMARY}\n{compaction.text}")
        summary = facts.Text(compaction.text, tokens)
        user_said = facts.UserSaid((summary,), steering=self.is_turn_running)
        self.add_draft(compaction.time, user_said)
        self.drafts[-1] = replace(self.drafts[-1], is_compaction=True)

    def _draft_fold_of_compaction(
        self, compaction: recorded_session.RecordedCompaction, cover: facts.Span
    ) -> bool:
        """Draft the fold, and return whether it is valid. One that is not is taken back."""
        document_count = 0
        for draft in self.drafts:
            if isinstance(draft.fact, facts.Folded) and draft.fact.kind in KINDS_OF_SUMMARIES:
                document_count += 1
        text = f"{SUMMARY}\n{compaction.text}"
        tokens = self.tokens.count_tokens(text)
        tokens_before = self.state.branch.shown_tokens(cover)
        name = self._next_fold_name(facts.FoldKind.HANDOVER)
        fold = facts.Folded(
            fold=name,
            kind=facts.FoldKind.HANDOVER,
            cover=cover,
            text=text,
            tokens=tokens,
            tokens_before=tokens_before,
            number=document_count + 1,
            why=compaction.why,
        )
        self.add_draft(compaction.time, fold)
        if fold.fold in self.state.branch.live:
            return True
        self.drafts.pop()
        recorded_facts: list[facts.Recorded] = []
        for number, draft in enumerate(self.drafts, 1):
            recorded = facts.Recorded("", number, draft.time, draft.fact)
            recorded_facts.append(recorded)
        self.state = build_state(recorded_facts)
        return False

    def _cover_of_compaction(
        self, compaction: recorded_session.RecordedCompaction
    ) -> facts.Span | None:
        """Return the span of messages before the first one kept, or None if it cannot be folded."""
        first_kept = self.first_draft_of_message.get(compaction.keep, len(self.drafts) + 1)
        # A result, and the fold of one, are covered with the call that stands before them.
        for draft in self.drafts[first_kept - 1 :]:
            if not isinstance(draft.fact, facts.ToolReturned | facts.Folded):
                break
            first_kept += 1
        covered_numbers = [number for number in self.state.branch.order if number < first_kept]
        if not covered_numbers or self._separates_call_from_result(first_kept):
            return None
        return facts.Span(covered_numbers[0], covered_numbers[-1])

    def _separates_call_from_result(self, first_kept: int) -> bool:
        """Whether a result from the draft `first_kept` on answers a call before it."""
        calls_without_result: set[str] = set()
        for draft in self.drafts[: first_kept - 1]:
            fact = draft.fact
            if isinstance(fact, facts.ModelReplied):
                calls = [part for part in fact.parts if isinstance(part, facts.ToolCall)]
                calls_without_result.update(call.id for call in calls)
            elif isinstance(fact, facts.ToolReturned):
                calls_without_result.discard(fact.call)
        for draft in self.drafts[first_kept - 1 :]:
            fact = draft.fact
            if isinstance(fact, facts.ToolReturned) and fact.call in calls_without_result:
                return True
        return False

    def _next_fold_name(self, kind: facts.FoldKind) -> str:
        self.fold_number += 1
        return f"{kind.value}-{self.fold_number}"

    def _with_counted_tokens(self, part: facts.ReplyPart) -> facts.ReplyPart:
        count = self.tokens.count_tokens
        if isinstance(part, facts.ToolCall):
            return replace(part, tokens=count(part.name) + count(part.arguments))
        return replace(part, tokens=count(part.text))

    def _estimate_picture_tokens(self, picture: recorded_session.RecordedPicture) -> int:
        if picture.media_type.startswith("text/"):
            return self.tokens.count_tokens(picture.data.decode("utf-8", "replace"))
        return PICTURE_TOKENS


def _name_of_long_text(text: str) -> str:
    """Return its first line, without the brackets that only agents' own words begin with."""
    first_line, _, _ = text.partition("\n")
    words = re.sub(r"[<>\[\]]", " ", first_line).split()
    return " ".join(words)[:60] or "text"


def reference_to_content(content: bytes, media_type: str = "text/plain") -> facts.Stored:
    lines = count_text_lines(content, EntryOrigin(media_type=media_type))
    return facts.Stored(Digest.of_content(content), len(content), lines, media_type)
