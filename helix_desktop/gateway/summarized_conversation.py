"""Tells which conversation an agent's own summary stands for, where the agent names no session.

pi, Cline and Copilot CLI keep the newest messages behind their summary, word for word: the
conversation that ends with them is the one. They may keep a few words only, and Gemini CLI nothing:
then the conversation is the one in which its model wrote this very summary, or for which its file has
it. Two conversations are never joined by less. All functions are pure.
"""

from collections.abc import Sequence

from helix_desktop.engine import facts
from helix_desktop.engine.agent_additions import split_off_agent_additions
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state.moment import Moment
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.agent_conversation import parts_from_pieces
from helix_desktop.gateway.history_summarized_by_agent import text_of_summary
from helix_desktop.histories.history_facts import SUMMARY
from helix_desktop.json_values import parse_json_or_none
from helix_desktop.protocols.gateway_message import (
    NUMBERED_CALL_ID,
    PieceKind,
    ProtocolMessage,
    Speaker,
)
from helix_desktop.protocols.hidden_calls import HIDDEN_TOOLS

# What Gemini CLI and Qwen Code put behind their summary, as if the model had said it.
_ACKNOWLEDGEMENT = "Gotit.Thanksfortheadditionalcontext!"
# Another conversation may end with fewer characters in common, too.
LEAST_CHARACTERS_IN_COMMON = 200
LEAST_CHARACTERS_OF_SUMMARY = 100
# Agents put no more than a sentence and tags around the summary that their files have.
_MOST_LETTERS_AROUND_SUMMARY = 150


@dataclass(frozen=True, slots=True)
class ComparedReply:
    """What a reply calls, and its letters, as agents change the white space."""

    calls: tuple[str, ...]
    letters: str

    def is_same(self, recorded: "ComparedReply") -> bool:
        """Whether this is the recorded reply. Before it may stand what came before a recall."""
        if self.calls or recorded.calls:
            return self.calls == recorded.calls
        return bool(recorded.letters) and self.letters.endswith(recorded.letters)

    @property
    def character_count(self) -> int:
        return len(self.letters) + sum(map(len, self.calls))


@dataclass(frozen=True, slots=True)
class MessageBehindSummary:
    """A message of a request: a reply, or the user's words with the results of calls.

    `answers`: the calls that they answer, where the protocol has ids for calls.
    """

    reply: ComparedReply | None = None
    words: str = ""
    results: frozenset[Digest] = frozenset()
    answers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class KeptEnd:
    """The end of a conversation that an agent has kept behind its summary.

    `seq_before`: the last fact before it. `messages`: how many of its facts are kept.
    `characters`: how much they say.
    """

    seq_before: int
    messages: int
    characters: int

    @property
    def is_certain(self) -> bool:
        return self.characters >= LEAST_CHARACTERS_IN_COMMON


@dataclass(frozen=True, slots=True)
class _RecordedMessage:
    seq: int
    fact: facts.UserSaid | facts.ModelReplied | facts.ToolReturned
    reply: ComparedReply | None = None
    words: str = ""

    @property
    def character_count(self) -> int:
        if isinstance(self.fact, facts.ToolReturned):
            return self.fact.output.size
        if self.reply is not None:
            return self.reply.character_count
        return len(self.words)


def list_messages_behind_summary(
    messages: Sequence[ProtocolMessage], summary: str
) -> list[MessageBehindSummary]:
    """Return all behind the summary with which a request begins, in the form that is compared."""
    compared: list[MessageBehindSummary] = []
    for position, message in enumerate(messages):
        if message.speaker is Speaker.ASSISTANT:
            reply = _compared_reply(parts_from_pieces(message.pieces))
            is_by_agent = position == 1 and reply.letters == _ACKNOWLEDGEMENT
            if not is_by_agent:
                compared.append(MessageBehindSummary(reply=reply))
            continue
        said = _compared_message(message, summary)
        if position > 0 or said.words or said.results:
            compared.append(said)
    return compared


def keeps_nothing(messages: Sequence[MessageBehindSummary]) -> bool:
    """Whether behind the summary stands only what the user says next."""
    return not any(message.reply or message.results for message in messages)


def has_imported_summary(moment: Moment, summary: str) -> bool:
    """Whether the agent's own files had this very summary of the conversation."""
    letters = "".join(summary.split())
    for recorded in moment.facts_on_path():
        fact = recorded.fact
        if not isinstance(fact, facts.Folded) or fact.kind is not facts.FoldKind.HANDOVER:
            continue
        letters_of_fold = "".join(fact.text.removeprefix(SUMMARY).split())
        letters_around = len(letters) - len(letters_of_fold)
        is_long = len(letters_of_fold) >= LEAST_CHARACTERS_OF_SUMMARY
        is_all = letters_around <= _MOST_LETTERS_AROUND_SUMMARY
        if is_long and is_all and letters_of_fold in letters:
            return True
    return False


def has_written_summary(recorded_facts: Sequence[facts.Recorded], summary: str) -> bool:
    """Whether the model wrote this very summary in a reply, also in one that was left since.

    Copilot CLI asks for its summary beside its next step, which leaves the question behind.
    """
    for recorded in recorded_facts:
        if not isinstance(recorded.fact, facts.ModelReplied):
            continue
        texts = [part.text for part in recorded.fact.parts if isinstance(part, facts.Text)]
        written = text_of_summary("\n".join(texts))
        if len(written) >= LEAST_CHARACTERS_OF_SUMMARY and written in summary:
            return True
    return False


def find_kept_end(moment: Moment, messages: Sequence[MessageBehindSummary]) -> KeptEnd | None:
    """Return the end of a conversation with which these messages begin, or None.

    It is there without a gap, up to the conversation's last message.
    """
    recorded_messages = _list_recorded_messages(moment)
    for start in range(len(recorded_messages)):
        if not _begins_with_all(messages, recorded_messages, start):
            continue
        end_of_conversation = recorded_messages[start:]
        seq_before = 0
        if start:
            seq_before = recorded_messages[start - 1].seq
        characters = sum(message.character_count for message in end_of_conversation)
        return KeptEnd(seq_before, len(end_of_conversation), characters)
    return None


def _list_recorded_messages(moment: Moment) -> list[_RecordedMessage]:
    """Return a conversation's messages, without hidden calls, which its agent never saw."""
    recorded_messages: list[_RecordedMessage] = []
    hidden_calls = set[str]()
    for recorded in moment.facts_on_path():
        fact = recorded.fact
        if isinstance(fact, facts.ModelReplied):
            hidden_calls |= _hidden_calls_of_reply(fact)
            reply = _compared_reply(fact.parts)
            calls_only_hidden = _hidden_calls_of_reply(fact) and not reply.calls
            if not calls_only_hidden:
                recorded_messages.append(_RecordedMessage(recorded.seq, fact, reply=reply))
        elif isinstance(fact, facts.ToolReturned):
            if fact.call not in hidden_calls:
                recorded_messages.append(_RecordedMessage(recorded.seq, fact))
        elif isinstance(fact, facts.UserSaid):
            words = _words_to_compare(fact.parts)
            recorded_messages.append(_RecordedMessage(recorded.seq, fact, words=words))
    return recorded_messages


def _begins_with_all(
    messages: Sequence[MessageBehindSummary],
    recorded_messages: Sequence[_RecordedMessage],
    start: int,
) -> bool:
    """Whether a request's messages begin with all of these from `start` on."""
    position = start
    for message in messages:
        end = _end_of_message(message, recorded_messages, position)
        if end == len(recorded_messages):
            return True
        is_missing = end == position and (message.reply or message.words or message.results)
        if is_missing:
            return False
        position = end
    return False


def _end_of_message(
    message: MessageBehindSummary, recorded_messages: Sequence[_RecordedMessage], position: int
) -> int:
    """Return the position behind a message's facts; the same position if it is not there."""
    end = position
    while end < len(recorded_messages):
        recorded = recorded_messages[end]
        if message.reply is not None:
            if recorded.reply is not None and message.reply.is_same(recorded.reply):
                return end + 1
            return end
        if not _is_part_of_message(recorded, message):
            break
        end += 1
    return end


def _is_part_of_message(recorded: _RecordedMessage, message: MessageBehindSummary) -> bool:
    fact = recorded.fact
    if isinstance(fact, facts.ToolReturned):
        return fact.output.digest in message.results or fact.call in message.answers
    if isinstance(fact, facts.UserSaid):
        return recorded.words in ("", message.words)
    return False


def _compared_message(message: ProtocolMessage, summary: str) -> MessageBehindSummary:
    texts: list[facts.Text] = []
    digests: list[Digest] = []
    answers: list[str] = []
    for piece in message.pieces:
        if piece.kind is PieceKind.TEXT and piece.text != summary:
            texts.append(facts.Text(piece.text))
        elif piece.kind is PieceKind.RESULT:
            digests.append(Digest.of_content(piece.text.encode("utf-8", "surrogatepass")))
            if not NUMBERED_CALL_ID.fullmatch(piece.id):
                answers.append(piece.id)
    words = ""
    if message.speaker is Speaker.USER:
        words = _words_to_compare(texts)
    return MessageBehindSummary(words=words, results=frozenset(digests), answers=frozenset(answers))


def _words_to_compare(parts: Sequence[facts.UserPart]) -> str:
    own_words, _ = split_off_agent_additions(parts)
    return " ".join(own_words.split())


def _hidden_calls_of_reply(reply: facts.ModelReplied) -> set[str]:
    hidden_calls = set[str]()
    for part in reply.parts:
        if isinstance(part, facts.ToolCall) and part.name in HIDDEN_TOOLS:
            hidden_calls.add(part.id)
    return hidden_calls


def _compared_reply(parts: Sequence[facts.ReplyPart]) -> ComparedReply:
    calls: list[str] = []
    letters: list[str] = []
    for part in parts:
        if isinstance(part, facts.ToolCall) and part.name not in HIDDEN_TOOLS:
            calls.append(f"{part.name} {parse_json_or_none(part.arguments)}")
        elif isinstance(part, facts.Text):
            letters.extend(part.text.split())
    return ComparedReply(tuple(calls), "".join(letters))
