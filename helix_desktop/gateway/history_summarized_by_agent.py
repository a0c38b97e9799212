"""Recognises a request in which an agent has replaced its history by a summary of its own, as
Claude Code does for /compact, and records that as a fold.

What the summary stands for stays in the conversation: it comes back when the conversation is
given to an agent before that summary, and a model can recall it here.
"""

import re
from collections.abc import Sequence

from helix_desktop.engine import facts
from helix_desktop.engine.agent_additions import SEALED_SUMMARY, is_sealed_summary
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.state.branch import ConversationBranch
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.history_facts import SUMMARY
from helix_desktop.histories.program_names import COMPACTED_HERE
from helix_desktop.histories.session_from_facts import OWN_CONTEXT
from helix_desktop.json_values import object_at, parse_json_or_none, text_at
from helix_desktop.protocols.gateway_message import Piece, PieceKind, ProtocolMessage, Speaker

# The words with which agents begin the message that has their summary.
_BEGINS_SUMMARY = re.compile(
    r"This session is being continued from a previous conversation"
    r"|The conversation history before this point was compacted into the following summary"
    r"|Some of the conversation history has been summarized to free up context"
    r"|\s*<state_snapshot>"
)
# Ends the request with which Gemini CLI and Qwen Code ask for their summary.
_ASKS_FOR_SNAPSHOT = re.compile(r"<state_snapshot>[^<]{0,400}\Z")
# Begins the question for its summary that Copilot CLI asks beside its next steps.
_QUESTION_OF_COPILOT = (
    "Please create a detailed summary of the conversation so far. The history is being compacted"
)
# The user's message that opencode makes of a compaction. The model's summary follows as a reply.
_QUESTION_OF_OPENCODE = "What did we do so far?"
# Begins the summary that Codex writes with providers that do not seal one.
_BEGINS_SUMMARY_OF_CODEX = "Another language model started to solve this problem"
# Enclose the summary that Cline writes, which ends with the files that were read and changed.
_BEGINS_SUMMARY_OF_CLINE = "Context summary:\n\n"
_BEGINS_FILES_OF_CLINE = "\n\n## Files\nRead:\n"
_TAGS_OF_SUMMARIES = ("summary", "state_snapshot")
# So much of a reply is looked for in the summary, to find the request that asked for it.
_COMPARED_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class SummaryAtBeginning:
    """An agent's summary, and how many of a request's first messages stand for it alone.

    `text`: what is shown in place of all messages before. `piece`: what of the last of these
    messages is in that text; None: the provider has sealed the summary. `keeps_messages`: the
    messages before it are the user's, so the conversation may have them already. `sealed`: the
    beginning of what the provider has sealed.
    """

    piece: Piece | None
    message_count: int
    text: str
    keeps_messages: bool = False
    sealed: str = ""


def begins_with_summary(messages: Sequence[ProtocolMessage]) -> bool:
    return find_summary_at_beginning(messages) is not None


def find_summary_at_beginning(messages: Sequence[ProtocolMessage]) -> SummaryAtBeginning | None:
    """Return the agent's summary of what came before, if a request begins with one.

    opencode lets a question of its own stand before it, and the summary as the model's reply.
    Codex lets what the user has said stand before it.
    """
    if not messages:
        return None
    summary = find_summary_piece(messages[0])
    if summary is not None:
        return SummaryAtBeginning(summary, message_count=1, text=summary.text)
    if len(messages) < 2:
        return None
    if not _is_question_of_opencode(messages[0]):
        return _find_summary_of_codex(messages)
    reply = messages[1]
    texts = reply.pieces_of_kind(PieceKind.TEXT)
    says_only_summary = len(texts) == 1 and not reply.pieces_of_kind(PieceKind.CALL)
    if reply.speaker is Speaker.ASSISTANT and says_only_summary:
        return SummaryAtBeginning(texts[0], message_count=2, text=texts[0].text)
    return None


def _find_summary_of_codex(messages: Sequence[ProtocolMessage]) -> SummaryAtBeginning | None:
    """Return the summary behind which a session of Codex goes on, if nothing but instructions and
    the user's messages stands before it. Its text begins with these messages, as in an import.
    """
    kept_texts: list[str] = []
    for position, message in enumerate(messages):
        if message.speaker is Speaker.ASSISTANT or message.pieces_of_kind(PieceKind.RESULT):
            return None
        if message.speaker is Speaker.SYSTEM:
            continue
        sealed = _beginning_of_sealed_summary(message)
        if sealed:
            text = "\n\n".join(kept_texts) or SEALED_SUMMARY
            return SummaryAtBeginning(None, position + 1, text, keeps_messages=True, sealed=sealed)
        pieces = message.pieces_of_kind(PieceKind.TEXT)
        words = "\n".join(piece.text for piece in pieces)
        if words.startswith(OWN_CONTEXT) or not words.strip():
            continue
        kept_texts.append(words)
        if words.startswith(_BEGINS_SUMMARY_OF_CODEX):
            text = "\n\n".join(kept_texts)
            return SummaryAtBeginning(pieces[0], position + 1, text, keeps_messages=True)
    return None


def _beginning_of_sealed_summary(message: ProtocolMessage) -> str:
    for piece in message.pieces_of_kind(PieceKind.OTHER):
        if is_sealed_summary(piece.text):
            item = object_at(parse_json_or_none(piece.text))
            return text_at(item, "encrypted_content")[:_COMPARED_CHARACTERS]
    return ""


def messages_from_summary_on(
    messages: Sequence[ProtocolMessage], summary: SummaryAtBeginning
) -> Sequence[ProtocolMessage]:
    """Return what a request has behind the summary, and before it the user's message that the
    summary is in, as more may be said there. A reply says nothing but the summary.
    """
    last_position = summary.message_count - 1
    if messages[last_position].speaker is Speaker.ASSISTANT:
        return messages[last_position + 1 :]
    return messages[last_position:]


def _is_question_of_opencode(message: ProtocolMessage) -> bool:
    if message.speaker is not Speaker.USER:
        return False
    texts = [piece.text for piece in message.pieces]
    return texts == [_QUESTION_OF_OPENCODE]


def find_summary_piece(message: ProtocolMessage) -> Piece | None:
    """Return the text of a message that is an agent's summary of what came before."""
    if message.speaker is not Speaker.USER:
        return None
    for piece in message.pieces_of_kind(PieceKind.TEXT):
        if _BEGINS_SUMMARY.match(piece.text[:_COMPARED_CHARACTERS]):
            return piece
        if _is_snapshot_behind_notes(piece.text) or _is_summary_of_cline(piece.text):
            return piece
    return None


def _is_summary_of_cline(text: str) -> bool:
    return text.startswith(_BEGINS_SUMMARY_OF_CLINE) and _BEGINS_FILES_OF_CLINE in text


def _is_snapshot_behind_notes(text: str) -> bool:
    """Whether this is Gemini CLI's summary with notes of the model before it, in tags as well."""
    notes_and_snapshot = text.strip()
    if not notes_and_snapshot.startswith("<"):
        return False
    _notes, opening, snapshot = notes_and_snapshot[1:].partition("<state_snapshot>")
    return bool(opening) and snapshot.endswith("</state_snapshot>")


def asks_for_summary(messages: Sequence[ProtocolMessage]) -> bool:
    """Whether a request asks the model for the summary that will stand for its other messages."""
    if len(messages) < 2 or messages[-1].speaker is not Speaker.USER:
        return False
    for piece in messages[-1].pieces_of_kind(PieceKind.TEXT):
        if _ASKS_FOR_SNAPSHOT.search(piece.text):
            return True
    return False


def is_question_beside_work(fact: facts.Fact) -> bool:
    """Whether an agent asks for its summary with this message, and meanwhile works on without it."""
    if not isinstance(fact, facts.UserSaid):
        return False
    texts = [part.text for part in fact.parts if isinstance(part, facts.Text)]
    return "\n".join(texts).startswith(_QUESTION_OF_COPILOT)


def find_seq_before_summary_request(
    branch: ConversationBranch, summary: str, least_characters: int = 1, sealed: str = ""
) -> int:
    """Return the last fact before the request with which the agent asked its model for the
    summary, if the conversation ends with that; otherwise 0. `sealed`: the beginning of what the
    provider has sealed of it, which is the reply then.
    """
    if len(branch.order) < 2:
        return 0
    question_seq, reply_seq = branch.order[-2:]
    question = branch.message_at(question_seq).fact
    reply = branch.message_at(reply_seq).fact
    if not isinstance(question, facts.UserSaid) or not isinstance(reply, facts.ModelReplied):
        return 0
    texts = [part.text for part in reply.parts if isinstance(part, facts.Text)]
    if sealed and any(sealed in text for text in texts):
        return question_seq - 1
    beginning = text_of_summary("\n".join(texts))[:_COMPARED_CHARACTERS]
    if len(beginning) < least_characters or beginning not in summary:
        return 0
    return question_seq - 1


def text_of_summary(reply: str) -> str:
    """Return the summary in a model's reply, without its tags and what stands beside them."""
    first_position = len(reply)
    summary = reply
    # A pattern would look for the end of each of thousands of tags that have none.
    for tag in _TAGS_OF_SUMMARIES:
        before, _opening, rest = reply.partition(f"<{tag}>")
        tagged, closing, _behind = rest.partition(f"</{tag}>")
        if closing and len(before) < first_position:
            first_position = len(before)
            summary = tagged
    return summary.strip()


def build_fold_by_agent(
    conversation: Conversation, agent: str, summary: str, tokens: int
) -> facts.Folded:
    """Return the fact that shows the agent's summary in place of all messages so far."""
    branch = conversation.state.branch
    all_messages = facts.Span(branch.order[0], branch.order[-1])
    tokens_before = branch.shown_tokens(all_messages)
    kind = facts.FoldKind.HANDOVER
    fold_name = conversation.new_fold_name(kind)
    return facts.Folded(
        fold=fold_name,
        kind=kind,
        cover=all_messages,
        text=f"{SUMMARY}\n{summary}",
        tokens=tokens,
        tokens_before=tokens_before,
        why=f"{agent}{COMPACTED_HERE}",
        is_by_agent=True,
    )
