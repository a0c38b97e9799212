"""Turns a recorded history into facts of a conversation, with the same result each time.

Outputs and pictures are returned beside the facts, to be stored before them. Nothing is
left out: an output that answers no call becomes an attachment, a failed request ends a
turn, and what the other program showed instead of an output is a fold.
"""

import re
from collections.abc import Callable
from dataclasses import field, replace

from helix_desktop.engine import fact_encoding, facts
from helix_desktop.engine.agent_additions import SYSTEM_MESSAGE, split_off_agent_additions
from helix_desktop.engine.ports import EntryOrigin, TokenCounter
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state.live_folds import DOCUMENTS
from helix_desktop.engine.tool_result_reading import describe_call_as_source
from helix_desktop.engine.view import ConversationState, build_state
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import recorded_session
from helix_desktop.histories.leaked_keys import find_keys, mask_key
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
    """A fact without its final number. Numbers in it count from the first draft, which is 1."""

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
    part = draft.fact.parts[0] if isinstance(draft.fact, facts.UserSaid) else None
    text = (
        part.text
        if isinstance(part, facts.Text)
        else draft.contents[0][0].decode("utf-8", "replace")
    )
    return f"{SUMMARY}\n{text}"


def comparable_text(fact: facts.Fact) -> str:
    """Return a fact as text to compare, without position, cost, and what older versions ignored."""
    if isinstance(fact, facts.ModelReplied):
        fact = replace(
            fact, saw=0, seconds=0.0, usage=replace(fact.usage, cache_write_hour=0, cost=0.0)
        )
    return fact_encoding.encode_fact(fact)


def build_started_fact(
    recording: RecordedSession, *, parent: str = "", fork: tuple[str, int] = ("", 0)
) -> facts.ConversationStarted:
    """Return the fact with which a conversation begins, or continues as a fork."""
    title, origin = title_of_recording(recording), origin_of_recording(recording)
    return facts.ConversationStarted(
        title, parent, recording.parent_call if parent else "", *fork, origin
    )


def title_of_recording(recording: RecordedSession) -> str:
    """Return its title, or the beginning of the first message that a person typed."""
    typed = (one for one in recording.messages if one.role == "user" and not one.beside)
    said = (split_off_agent_additions((facts.Text(one.text[:20_000]),))[0] for one in typed)
    text = (recording.title or next(filter(None, said), ""))[:2_000]
    for key in find_keys(text):  # Titles are shown in many places, so they must not contain keys.
        text = text.replace(key, mask_key(key))
    return " ".join(text.lstrip("#").split())[:TITLE]


def origin_of_recording(recording: RecordedSession) -> facts.Origin:
    return facts.Origin(recording.kind, recording.session, recording.name, recording.version)


def draft_facts(
    recording: RecordedSession, tokens: TokenCounter, find_child: Callable[[str], str]
) -> list[FactDraft]:
    """Draft the recording's facts, in order. `find_child` returns a sub-agent's
    conversation or "".
    """
    writing = _FactDrafting(tokens, find_child, folds=bool(recording.compactions))
    compactions = {one.at: one for one in recording.compactions}
    said = (at for at, message in enumerate(recording.messages) if message.role != "system")
    system = next(said, len(recording.messages))
    if system:
        text = "\n\n".join(message.text for message in recording.messages[:system])
        writing.add_draft(
            recording.messages[0].time, facts.SystemSet(text, tokens.count_tokens(text))
        )
    for at, message in enumerate(recording.messages):
        if at in compactions:
            writing.draft_compaction(compactions[at])
        if at >= system:
            writing.draft_message(at, message)
    if len(recording.messages) in compactions:
        writing.draft_compaction(compactions[len(recording.messages)])
    writing.end_last_turn()
    return writing.made


@dataclass(slots=True)
class _FactDrafting:
    """The drafts so far. If there are folds, `state` follows them, to turn invalid
    folds into messages.
    """

    tokens: TokenCounter
    child: Callable[[str], str]
    folds: bool = False
    made: list[FactDraft] = field(default_factory=list)
    state: ConversationState = field(default_factory=ConversationState)
    places: dict[int, int] = field(
        default_factory=dict
    )  # Each message's first fact, by the message's position.
    waiting: dict[str, facts.ToolCall] = field(
        default_factory=dict
    )  # Calls without a result, by id.
    calls: bool = False  # True if the last reply made a call.
    talking: bool = False
    fold_number: int = 0
    time: float = 0.0
    message: int = 0

    def add_draft(self, time: float, fact: facts.Fact, contents: tuple[Content, ...] = ()) -> int:
        self.time = max(self.time, time)
        self.made.append(FactDraft(self.time, fact, contents, self.message))
        if self.folds:
            self.state.advance_state(facts.Recorded("", len(self.made), self.time, fact))
        return len(self.made)

    def draft_message(self, at: int, message: RecordedMessage) -> None:
        self.places[at] = len(self.made) + 1
        self.message = at
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
        if self.talking and not self.calls:
            self._draft_turn_end(self.time, facts.TurnEnd.DONE)

    # --- Turning the recording's messages into facts

    def _draft_user_message(self, message: RecordedMessage) -> None:
        if not message.beside:
            self._draft_turn_end(
                message.time, facts.TurnEnd.STOPPED if self.waiting else facts.TurnEnd.DONE
            )
        text = message.text if message.role == "user" else f"{SYSTEM_MESSAGE}{message.text}"
        parts: list[facts.UserPart] = []
        contents: list[Content] = []
        if message.beside and len(text) > LONG:
            first = re.sub(r"[<>\[\]]", " ", text.split("\n", 1)[0])
            name = " ".join(first.split())[:60] or "text"
            content = text.encode("utf-8", "replace")
            parts.append(
                facts.Attachment(
                    name, reference_to_content(content), self.tokens.count_tokens(text)
                )
            )
            contents.append((content, EntryOrigin("user", name)))
        elif text.strip():
            parts.append(facts.Text(text, self.tokens.count_tokens(text)))
        for number, picture in enumerate(message.pictures, 1):
            name = picture.name or f"picture {number}"
            stored = reference_to_content(picture.data, picture.media_type)
            parts.append(facts.Attachment(name, stored, self._estimate_picture_tokens(picture)))
            contents.append((picture.data, EntryOrigin("user", name, picture.media_type)))
        if parts:
            said = facts.UserSaid(tuple(parts), steering=message.beside and self.talking)
            self.add_draft(message.time, said, tuple(contents))
            self.talking = True
            self.made[-1] = replace(self.made[-1], is_summary=message.is_summary)

    def _draft_reply(self, message: RecordedMessage) -> None:
        given = message.parts or recorded_session.reply_parts_from_message(message)
        parts = tuple(map(self._with_counted_tokens, given))
        if not parts:
            return
        self.waiting = {part.id: part for part in parts if isinstance(part, facts.ToolCall)}
        self.calls, self.talking = bool(self.waiting), True
        stop = facts.Stop.CALLS if self.waiting else facts.Stop.END
        reply = facts.ModelReplied(
            parts, message.model, stop, message.usage, seconds=message.seconds
        )
        self.add_draft(message.time, reply)

    def _draft_result(self, message: RecordedMessage) -> None:
        content = message.text.encode("utf-8", "replace")
        call = self.waiting.pop(message.answers, None)
        about = EntryOrigin(
            call.name if call else "tool", describe_call_as_source(call.arguments) if call else ""
        )
        output, tokens = reference_to_content(content), self.tokens.count_tokens(message.text)
        if call is None:
            parts = (
                facts.Text("[An output that answers no call]", 8),
                facts.Attachment("output.txt", output, tokens),
            )
            self.add_draft(
                message.time, facts.UserSaid(parts, steering=self.talking), ((content, about),)
            )
            return
        images = tuple(one for one in message.pictures if one.media_type.startswith(IMAGES))
        fact = facts.ToolReturned(
            message.answers,
            output,
            tokens,
            ok=message.ok,
            head=message.text if len(message.text) <= HEAD else "",
            images=tuple(reference_to_content(one.data, one.media_type) for one in images),
            child=self.child(message.child) if message.child else "",
        )
        pictures = (
            (one.data, EntryOrigin(about.tool, about.source, one.media_type)) for one in images
        )
        number = self.add_draft(message.time, fact, ((content, about), *pictures))
        if message.shown:
            self._draft_excerpt(number, message, output, tokens)

    def _draft_excerpt(
        self, number: int, message: RecordedMessage, output: facts.Stored, before: int
    ) -> None:
        """Draft what the other program showed instead of the output."""
        text = f'{message.shown}{EXCERPT_ENDS}"{output.digest}")]'
        tokens = self.tokens.count_tokens(text)
        if tokens < before:
            kind, cover, entries = facts.FoldKind.EXCERPT, facts.PartRef(number), (output.digest,)
            fold = facts.Folded(
                self._next_fold_name(kind), kind, cover, text, tokens, before, entries=entries
            )
            self.add_draft(message.time, replace(fold, why=SHOWN_BY_OTHER))

    def _draft_turn_end(self, time: float, reason: facts.TurnEnd, why: str = "") -> None:
        if self.talking:
            self.add_draft(time, facts.TurnEnded(reason, why))
        self.talking, self.calls, self.waiting = False, False, {}

    # --- Turning the recording's compactions into folds

    def draft_compaction(self, compaction: recorded_session.RecordedCompaction) -> None:
        """Draft a fold of what came before, or a message with the summary if a fold
        would save nothing.
        """
        text = f"{SUMMARY}\n{compaction.text}"
        tokens = self.tokens.count_tokens(text)
        if (cover := self._cover_of_compaction(compaction)) is not None:
            name = self._next_fold_name(facts.FoldKind.HANDOVER)
            number = (
                sum(
                    isinstance(one.fact, facts.Folded) and one.fact.kind in DOCUMENTS
                    for one in self.made
                )
                + 1
            )
            before = self.state.branch.shown_tokens(cover)
            fold = facts.Folded(
                name,
                facts.FoldKind.HANDOVER,
                cover,
                text,
                tokens,
                before,
                number=number,
                why=compaction.why,
            )
            self.add_draft(compaction.time, fold)
            if name in self.state.branch.live:
                return
            self.made.pop()
            self.state = build_state(
                facts.Recorded("", at, one.time, one.fact) for at, one in enumerate(self.made, 1)
            )
        self.add_draft(
            compaction.time,
            facts.UserSaid((facts.Text(compaction.text, tokens),), steering=self.talking),
        )
        self.made[-1] = replace(self.made[-1], is_compaction=True)

    def _cover_of_compaction(
        self, compaction: recorded_session.RecordedCompaction
    ) -> facts.Span | None:
        """Return the span of messages before the first one kept, or None if it cannot be folded."""
        end = self.places.get(compaction.keep, len(self.made) + 1)
        while end <= len(self.made) and isinstance(
            self.made[end - 1].fact, facts.ToolReturned | facts.Folded
        ):
            end += 1
        numbers = [number for number in self.state.branch.order if number < end]
        if not numbers or not self._separates_no_call_from_result(end):
            return None
        return facts.Span(numbers[0], numbers[-1])

    def _separates_no_call_from_result(self, end: int) -> bool:
        """Whether no later result answers an earlier call."""
        replies = (
            one.fact for one in self.made[: end - 1] if isinstance(one.fact, facts.ModelReplied)
        )
        calls = {
            part.id for reply in replies for part in reply.parts if isinstance(part, facts.ToolCall)
        }
        answered = {
            one.fact.call
            for one in self.made[: end - 1]
            if isinstance(one.fact, facts.ToolReturned)
        }
        later = {
            one.fact.call
            for one in self.made[end - 1 :]
            if isinstance(one.fact, facts.ToolReturned)
        }
        return not (calls - answered) & later

    def _next_fold_name(self, kind: facts.FoldKind) -> str:
        self.fold_number += 1
        return f"{kind.value}-{self.fold_number}"

    def _with_counted_tokens(self, part: facts.ReplyPart) -> facts.ReplyPart:
        texts = (part.name, part.arguments) if isinstance(part, facts.ToolCall) else (part.text,)
        return replace(part, tokens=sum(map(self.tokens.count_tokens, texts)))

    def _estimate_picture_tokens(self, picture: recorded_session.RecordedPicture) -> int:
        if picture.media_type.startswith("text/"):
            return self.tokens.count_tokens(picture.data.decode("utf-8", "replace"))
        return PICTURE_TOKENS


def reference_to_content(content: bytes, media_type: str = "text/plain") -> facts.Stored:
    lines = count_text_lines(content, EntryOrigin(media_type=media_type))
    return facts.Stored(Digest.of_content(content), len(content), lines, media_type)
