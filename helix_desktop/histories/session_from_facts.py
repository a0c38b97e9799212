"""Turns a conversation's facts into a recorded session, for writing in agents' formats.

The opposite of `history_facts`. The session contains every message and result. A handover of the
beginning becomes a compaction. A result that the other program shortened has the text it showed.
"""

from collections.abc import Sequence
from dataclasses import replace

from helix_desktop.engine import facts
from helix_desktop.engine.agent_additions import SYSTEM_MESSAGE, split_off_agent_additions
from helix_desktop.engine.state.live_folds import DOCUMENTS
from helix_desktop.engine.view import build_state
from helix_desktop.histories import openai_chat_export, recorded_session
from helix_desktop.histories.history_facts import EXCERPT_ENDS, IMAGES, SUMMARY
from helix_desktop.histories.program_names import SHOWN_BY_OTHER
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedPicture

RECALLABLE = "\n\n[recall_cached_content and recall_history are tools of the MCP server of Helix Desktop, if it is connected.]"
OWN_CONTEXT = (
    "[Claude Code showed: ", "<environment_context>", "<user_instructions>", "# AGENTS.md instructions",
    "<local-command-", "<command-", "<system-reminder>", "<session_context>",
)  # fmt: skip


def origin_of_conversation(recorded_facts: Sequence[facts.Recorded]) -> facts.Origin:
    """Return the program from which it came, or an empty origin if it began here."""
    started = (
        one.fact for one in recorded_facts if isinstance(one.fact, facts.ConversationStarted)
    )
    return next((fact.origin for fact in started if fact.origin.kind), facts.Origin())


def list_active_compactions(recorded_facts: Sequence[facts.Recorded]) -> list[facts.Recorded]:
    """Return the handovers in effect that cover the conversation's beginning, oldest first."""
    state = build_state(recorded_facts)
    path = state.facts_on_path()
    first = next(
        (one.seq for one in path if isinstance(one.fact, facts.UserSaid | facts.ModelReplied)), 0
    )
    return [
        one
        for one in path
        if isinstance(one.fact, facts.Folded)
        and one.fact.kind in DOCUMENTS
        and one.fact.fold in state.branch.live
        and isinstance(one.fact.cover, facts.Span)
        and one.fact.cover.first <= first
    ]


def build_session_from_facts(
    recorded_facts: Sequence[facts.Recorded],
    read_content: openai_chat_export.ReadContent,
    folder: str,
    origin: facts.Origin,
    *,
    is_folded: bool = False,
    is_for_same_agent: bool = False,
) -> recorded_session.RecordedSession:
    """Build the session with its compactions. `folder`: its working folder. `origin`: that of the
    whole conversation. `is_folded`: results have the texts of folds that were made here, too.
    `is_for_same_agent`: messages also have what the agent itself added to the user's words.
    """
    shown = _shortened_results_by_seq(recorded_facts) if origin.kind else {}
    for fold in build_state(recorded_facts).live_folds if is_folded else ():
        if isinstance(fold.cover, facts.PartRef) and fold.why != SHOWN_BY_OTHER:
            shown[fold.cover.seq] = fold.text
    said = list(openai_chat_export.list_messages_in_order(recorded_facts))
    messages = [
        _message_of_fact(
            one,
            read_content,
            shown.get(one.seq, ""),
            imported=bool(origin.kind),
            keeps_additions=is_for_same_agent,
        )
        for one in said
    ]
    # A model that was chosen here is named after its provider, which an agent would ask for.
    chosen = {one.fact.model for one in recorded_facts if isinstance(one.fact, facts.ModelSet)}
    messages = [
        replace(one, model=one.model.partition("/")[2]) if one.model in chosen else one
        for one in messages
    ]
    if system := openai_chat_export.last_system_prompt(recorded_facts):
        messages.insert(
            0, RecordedMessage("system", system, time=messages[0].time if messages else 0.0)
        )
    compactions = []
    for one in list_active_compactions(recorded_facts):
        if isinstance(one.fact, facts.Folded) and isinstance(one.fact.cover, facts.Span):
            last = one.fact.cover.last
            at = bool(system) + sum(message.seq <= last for message in said)
            text = one.fact.text.removeprefix(f"{SUMMARY}\n") + (RECALLABLE if is_folded else "")
            compactions.append(recorded_session.RecordedCompaction(at, at, text, one.time))
    return recorded_session.RecordedSession(
        "", tuple(messages), origin.kind, origin.session, folder=folder, version=origin.version,
        compactions=tuple(compactions),
    )  # fmt: skip


def _shortened_results_by_seq(recorded_facts: Sequence[facts.Recorded]) -> dict[int, str]:
    """Return what the other program showed of results that it shortened, by the result's number."""
    return {
        fold.cover.seq: fold.text.rpartition(EXCERPT_ENDS)[0]
        for one in recorded_facts
        if isinstance(fold := one.fact, facts.Folded)
        and fold.why == SHOWN_BY_OTHER
        and isinstance(fold.cover, facts.PartRef)
    }


def _message_of_fact(
    recorded: facts.Recorded,
    read_content: openai_chat_export.ReadContent,
    shown: str,
    *,
    imported: bool,
    keeps_additions: bool,
) -> RecordedMessage:
    fact = recorded.fact
    if isinstance(fact, facts.ModelReplied):
        return recorded_session.build_recorded_reply(
            fact.parts, model=fact.model, time=recorded.time, usage=fact.usage
        )
    if isinstance(fact, facts.ToolReturned):
        pictures = tuple(
            RecordedPicture(image.media_type, data)
            for image in fact.images
            if (data := read_content(image.digest)) is not None
        )
        text = shown or openai_chat_export.text_of_exported_result(fact, read_content)
        return RecordedMessage(
            "tool", text, answers=fact.call, ok=fact.ok, time=recorded.time, pictures=pictures
        )
    said = fact if isinstance(fact, facts.UserSaid) else facts.UserSaid(())
    message = _message_of_user(
        said, read_content, imported=imported, keeps_additions=keeps_additions
    )
    return replace(message, time=recorded.time)


def _message_of_user(
    fact: facts.UserSaid,
    content: openai_chat_export.ReadContent,
    *,
    imported: bool,
    keeps_additions: bool,
) -> RecordedMessage:
    """Return a user's message with pictures. Texts that an import made attachments are
    text again.
    """
    texts: list[str] = []
    pictures: list[RecordedPicture] = []
    for part in fact.parts:
        data = content(part.stored.digest) if isinstance(part, facts.Attachment) else None
        if isinstance(part, facts.Text):
            texts.append(part.text)
        elif (
            isinstance(part, facts.Attachment)
            and data is not None
            and part.stored.media_type.startswith(IMAGES)
        ):
            pictures.append(RecordedPicture(part.stored.media_type, data, part.name))
        elif isinstance(part, facts.Attachment) and data is not None and imported:
            texts.append(data.decode("utf-8", "replace"))
        elif isinstance(part, facts.Attachment):
            texts.append(openai_chat_export.text_of_exported_attachment(part, content))
    typed = list(filter(None, map(_words_of_user, texts)))
    text = "\n".join(texts if keeps_additions or not typed else typed)
    if text.startswith(SYSTEM_MESSAGE):
        return RecordedMessage(
            "system", text.removeprefix(SYSTEM_MESSAGE), pictures=tuple(pictures), beside=True
        )
    beside = text.startswith(OWN_CONTEXT) and (keeps_additions or not typed)
    return RecordedMessage("user", text, pictures=tuple(pictures), beside=beside)


def _words_of_user(text: str) -> str:
    """Return what is left of a part of a message without what an agent added to it."""
    if not text.startswith(OWN_CONTEXT):
        return text
    words, _ = split_off_agent_additions((facts.Text(text),))
    return "" if words.startswith(OWN_CONTEXT) else words
