"""A conversation of this program as a recorded session, the form in which the writers of the agents' formats take it.

The opposite of `recording_facts`. All that was said and done is in it. A handover that covers the beginning is a compaction; a
result that the other program had shortened is the text it had shown.
"""

from collections.abc import Sequence
from dataclasses import replace

from helix_desktop.engine.facts import (
    Attachment,
    ConversationStarted,
    Folded,
    ModelReplied,
    Origin,
    PartRef,
    Recorded,
    Span,
    SystemSet,
    Text,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.history.live_folds import DOCUMENTS
from helix_desktop.engine.view import build_state
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedPicture,
    RecordedSession,
    build_recorded_reply,
)
from helix_desktop.histories.recording_facts import EXCERPT_ENDS, IMAGES, SHOWN_BY_OTHER, SUMMARY, SYSTEM_MESSAGE
from helix_desktop.histories.session_export import (
    Content,
    list_said_and_done,
    text_of_exported_attachment,
    text_of_exported_result,
)

RECALLABLE = (
    "\n\n[recall_cached_content and recall_history are tools of the MCP server of Helix Desktop, if it is connected.]"
)
OWN_CONTEXT = (
    "[Claude Code showed: ",
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md",
    "<local-command-",
    "<command-",
    "<system-reminder>",
    "<session_context>",
)


def origin_of_conversation(facts: Sequence[Recorded]) -> Origin:
    """The program it was imported from or recorded of; an empty origin for one that began here."""
    started = (one.fact for one in facts if isinstance(one.fact, ConversationStarted))
    return next((fact.origin for fact in started if fact.origin.kind), Origin())


def list_compactions(facts: Sequence[Recorded]) -> list[Recorded]:
    """The handovers in force, the oldest first, that stand for the beginning of the conversation."""
    state = build_state(facts)
    path = state.facts_on_path()
    first = next((one.seq for one in path if isinstance(one.fact, UserSaid | ModelReplied)), 0)
    return [
        one
        for one in path
        if isinstance(one.fact, Folded)
        and one.fact.kind in DOCUMENTS
        and one.fact.fold in state.branch.live
        and isinstance(one.fact.cover, Span)
        and one.fact.cover.first <= first
    ]


def build_session_from_facts(
    facts: Sequence[Recorded], content: Content, folder: str, origin: Origin, *, is_folded: bool = False
) -> RecordedSession:
    """The conversation with its compactions. `folder`: where its work was done; `origin`: also where `facts` are a part. `is_folded`:
    results as the folds made here show them, not only as the other program had.
    """
    shown = _results_shown_shorter(facts) if origin.kind else {}
    for fold in build_state(facts).live_folds if is_folded else ():
        if isinstance(fold.cover, PartRef) and fold.why != SHOWN_BY_OTHER:
            shown[fold.cover.seq] = fold.text
    said = list(list_said_and_done(facts))
    messages = [_message_of_fact(one, content, shown.get(one.seq, ""), imported=bool(origin.kind)) for one in said]
    system = next((one.fact.text for one in reversed(facts) if isinstance(one.fact, SystemSet) and one.fact.text), "")
    if system:
        messages.insert(0, RecordedMessage("system", system, time=messages[0].time if messages else 0.0))
    compactions = []
    for one in list_compactions(facts):
        if isinstance(one.fact, Folded) and isinstance(one.fact.cover, Span):
            last = one.fact.cover.last
            at = bool(system) + sum(message.seq <= last for message in said)
            text = one.fact.text.removeprefix(f"{SUMMARY}\n") + (RECALLABLE if is_folded else "")
            compactions.append(RecordedCompaction(at, at, text, one.time))
    return RecordedSession(
        "", tuple(messages), origin.kind, origin.session, folder=folder, version=origin.version,
        compactions=tuple(compactions),
    )  # fmt: skip


def _results_shown_shorter(facts: Sequence[Recorded]) -> dict[int, str]:
    """By the number of a result: what the other program had shown of it."""
    found: dict[int, str] = {}
    for one in facts:
        fold = one.fact
        if isinstance(fold, Folded) and fold.why == SHOWN_BY_OTHER and isinstance(fold.cover, PartRef):
            found[fold.cover.seq] = fold.text.rpartition(EXCERPT_ENDS)[0]
    return found


def _message_of_fact(recorded: Recorded, content: Content, shown: str, *, imported: bool) -> RecordedMessage:
    fact = recorded.fact
    if isinstance(fact, ModelReplied):
        return build_recorded_reply(fact.parts, model=fact.model, time=recorded.time, usage=fact.usage)
    if isinstance(fact, ToolReturned):
        pictures = tuple(
            RecordedPicture(image.media_type, data)
            for image in fact.images
            if (data := content(image.digest)) is not None
        )
        text = shown or text_of_exported_result(fact, content)
        return RecordedMessage("tool", text, answers=fact.call, ok=fact.ok, time=recorded.time, pictures=pictures)
    said = fact if isinstance(fact, UserSaid) else UserSaid(())
    return replace(_message_of_user(said, content, imported=imported), time=recorded.time)


def _message_of_user(fact: UserSaid, content: Content, *, imported: bool) -> RecordedMessage:
    """What was said, with its pictures. What an import kept as an attachment, because it is long, is text again."""
    texts: list[str] = []
    pictures: list[RecordedPicture] = []
    for part in fact.parts:
        data = content(part.stored.digest) if isinstance(part, Attachment) else None
        if isinstance(part, Text):
            texts.append(part.text)
        elif isinstance(part, Attachment) and data is not None and part.stored.media_type.startswith(IMAGES):
            pictures.append(RecordedPicture(part.stored.media_type, data, part.name))
        elif isinstance(part, Attachment) and data is not None and imported:
            texts.append(data.decode("utf-8", "replace"))
        elif isinstance(part, Attachment):
            texts.append(text_of_exported_attachment(part, content))
    text = "\n".join(texts)
    if text.startswith(SYSTEM_MESSAGE):
        return RecordedMessage("system", text.removeprefix(SYSTEM_MESSAGE), pictures=tuple(pictures), beside=True)
    return RecordedMessage("user", text, pictures=tuple(pictures), beside=text.startswith(OWN_CONTEXT))
