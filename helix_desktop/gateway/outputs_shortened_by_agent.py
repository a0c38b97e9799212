"""Recognises a request in which an agent has shortened old outputs of its conversation itself.

Gemini CLI replaces long outputs in its own history by a beginning and an end, Qwen Code, Claude
Code and opencode by a sentence. The request then differs from all that was known, although it
goes on with the same conversation. Such outputs are put back here, as the agent sent them last:
if the request then is what is known, word for word, it belongs to that conversation.

What was shortened is no new output. The whole one stays in the cache, and a fold that the agent
has made shows the shorter text in its place.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from helix_desktop.engine import facts
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.ports import ContentCache
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.conversation_matching import KnownMessages, next_message_hash
from helix_desktop.protocols.gateway_message import (
    NUMBERED_CALL_ID,
    Piece,
    PieceKind,
    ProtocolMessage,
    Speaker,
)

# Agents say with such words that an output was shortened.
_SAYS_SHORTENED = re.compile(
    r"clear|mask|truncat|omit|remov|prun|elid|compact|trim|shorten|too large|sav(e|ing) space",
    re.IGNORECASE,
)
# What an agent adds to the lines that it leaves of an output has at most so many characters.
MOST_ADDED_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class RecordedOutput:
    """The output of a call, with the number of its fact."""

    seq: int
    returned: facts.ToolReturned


@dataclass(frozen=True, slots=True)
class ShortenedOutput:
    """A recorded output that the agent sends in another form: as the shorter `text`, or whole
    again (`is_whole`).
    """

    output: RecordedOutput
    text: str
    is_whole: bool


@dataclass(frozen=True, slots=True)
class RestoredMessage:
    """A message with the outputs that the agent had sent last, and those it sends instead."""

    message: ProtocolMessage
    shortened: tuple[ShortenedOutput, ...]


class ShortenedOutputsFinder:
    """Compares a request with a conversation of the same agent.

    `known_messages`: what the agent has sent of the conversation so far.
    """

    def __init__(
        self, conversation: Conversation, cache: ContentCache, known_messages: KnownMessages
    ) -> None:
        self._state = conversation.state
        self._cache = cache
        self._known_messages = known_messages
        self._agent_folds = find_agent_folds(conversation)

    async def compare_request(
        self, wire: str, messages: Sequence[ProtocolMessage], known_count: int
    ) -> list[ShortenedOutput]:
        """Return which outputs a request has in another form than before, if it has the whole
        conversation apart from that. Otherwise return an empty list.

        `known_count`: how many of its messages are known as they are.
        """
        chain = self._known_messages.chain
        if len(messages) < len(chain):
            return []
        shortened: list[ShortenedOutput] = []
        # No agent shortens its newest outputs. Without an equal one behind the shortened ones,
        # this may be another run that began with the same words and calls.
        has_equal_output_behind = False
        for position in range(known_count, len(chain)):
            message = messages[position]
            if not self._has_same_arguments(message, position):
                return []
            restored = await self._restore_as_known(wire, message, position)
            if restored is None:
                return []
            if restored.shortened:
                shortened.extend(restored.shortened)
                has_equal_output_behind = False
            elif message.pieces_of_kind(PieceKind.RESULT):
                has_equal_output_behind = True
        if not has_equal_output_behind:
            return []
        return shortened

    async def _restore_as_known(
        self, wire: str, message: ProtocolMessage, position: int
    ) -> RestoredMessage | None:
        """Return a message with its outputs as they are known, or None if it is another message.

        They are known in the agent's own shorter forms, or whole if it sent them so again.
        """
        chain = self._known_messages.chain
        chain_before = chain[max(0, position - 1) : position]
        no_folds: dict[int, facts.Folded] = {}
        for agent_folds in (self._agent_folds, no_folds):
            restored = await self._restore_message(message, position, agent_folds)
            if restored is None:
                return None
            key = restored.message.identity_key
            if next_message_hash(chain_before, wire, key) == chain[position]:
                return restored
        return None

    async def _restore_message(
        self, message: ProtocolMessage, position: int, agent_folds: Mapping[int, facts.Folded]
    ) -> RestoredMessage | None:
        """Return a message with its outputs in these forms, or None if one of them is no form of
        what is recorded.
        """
        recorded_outputs = self._outputs_of_message(position)
        pieces: list[Piece] = []
        shortened_outputs: list[ShortenedOutput] = []
        for piece in message.pieces:
            output = recorded_outputs.get(piece.id)
            if piece.kind is not PieceKind.RESULT or output is None:
                pieces.append(piece)
                continue
            agent_fold = agent_folds.get(output.seq)
            is_whole = is_whole_output(output, piece.text)
            if agent_fold is None and is_whole:
                pieces.append(piece)
                continue
            if agent_fold is not None and agent_fold.text == piece.text:
                pieces.append(piece)
                continue
            whole_text = await self._read_whole_output(output)
            if not is_whole and not is_shortened_form(whole_text, piece.text):
                return None
            known_text = whole_text
            if agent_fold is not None:
                known_text = agent_fold.text
            shortened_outputs.append(ShortenedOutput(output, piece.text, is_whole))
            pieces.append(replace(piece, text=known_text))
        restored_message = ProtocolMessage(message.speaker, message.units, tuple(pieces))
        return RestoredMessage(restored_message, tuple(shortened_outputs))

    async def _read_whole_output(self, output: RecordedOutput) -> str:
        """Return the whole output, or an empty text if the cache has it no more."""
        try:
            content = await self._cache.read_content(output.returned.output.digest)
        except HelixError:
            return ""
        return content.decode("utf-8", "surrogatepass")

    def _outputs_of_message(self, position: int) -> dict[str, RecordedOutput]:
        """Return the outputs that one of the agent's messages was recorded as, by their calls."""
        outputs: dict[str, RecordedOutput] = {}
        for recorded in self._facts_of_known_message(position):
            if isinstance(recorded.fact, facts.ToolReturned):
                outputs[recorded.fact.call] = RecordedOutput(recorded.seq, recorded.fact)
        return outputs

    def _facts_of_known_message(self, position: int) -> list[facts.Recorded]:
        seqs = self._known_messages.seqs
        first_seq = 1
        if position:
            first_seq = seqs[position - 1] + 1
        span = facts.Span(first_seq, seqs[position])
        covered_seqs = self._state.branch.covered_messages(span)
        return [self._state.facts[seq - 1] for seq in covered_seqs]

    def _has_same_arguments(self, message: ProtocolMessage, position: int) -> bool:
        """Whether the calls of a reply have the arguments that are recorded.

        A message is known by the ids of its calls. Where the protocol has none, they are only
        numbers, and two runs that call the same tools would look alike.
        """
        if message.speaker is not Speaker.ASSISTANT:
            return True
        recorded_arguments: dict[str, list[object]] = {}
        for recorded in self._facts_of_known_message(position):
            for part in getattr(recorded.fact, "parts", ()):
                if isinstance(part, facts.ToolCall):
                    arguments = parse_arguments_or_keep_text(part.arguments)
                    recorded_arguments.setdefault(part.name, []).append(arguments)
        for call in message.pieces_of_kind(PieceKind.CALL):
            if not NUMBERED_CALL_ID.fullmatch(call.id):
                continue
            arguments = parse_arguments_or_keep_text(call.text)
            if arguments not in recorded_arguments.get(call.name, []):
                return False
        return True


def find_agent_folds(conversation: Conversation) -> dict[int, facts.Folded]:
    """Return, for each output that the agent sends in a form of its own, the fold that shows it."""
    agent_folds: dict[int, facts.Folded] = {}
    for recorded in conversation.state.facts:
        fact = recorded.fact
        if not isinstance(fact, facts.Folded) or not fact.is_by_agent:
            continue
        if isinstance(fact.cover, facts.PartRef):
            agent_folds[fact.cover.seq] = fact
    return agent_folds


def is_whole_output(output: RecordedOutput, text: str) -> bool:
    content = text.encode("utf-8", "surrogatepass")
    return Digest.of_content(content) == output.returned.output.digest


def is_shortened_form(whole: str, text: str) -> bool:
    """Whether a text is what an agent left of a longer output: some of its lines, and a sentence
    that says that it was shortened.
    """
    if len(text) >= len(whole):
        return False
    lines_of_whole = set(whole.splitlines())
    added_lines: list[str] = []
    for line in text.splitlines():
        if line.strip() and line not in lines_of_whole:
            added_lines.append(line)
    added_text = "\n".join(added_lines)
    if len(added_text) > MOST_ADDED_CHARACTERS:
        return False
    return _SAYS_SHORTENED.search(added_text) is not None


def parse_arguments_or_keep_text(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
