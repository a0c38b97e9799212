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
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import openai_chat_export, recorded_session
from helix_desktop.histories.history_facts import EXCERPT_ENDS, IMAGES, SUMMARY
from helix_desktop.histories.program_names import SHOWN_BY_OTHER
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedPicture
from helix_desktop.histories.seen_twice import is_seen_live

RECALLABLE = "\n\n[recall_cached_content and recall_history are tools of the MCP server of Helix Desktop, if it is connected.]"
OWN_CONTEXT = (
    "[Claude Code showed: ", "<environment_context>", "<user_instructions>", "# AGENTS.md instructions",
    "<local-command-", "<command-", "<system-reminder>", "<session_context>",
)  # fmt: skip


def origin_of_conversation(recorded_facts: Sequence[facts.Recorded]) -> facts.Origin:
    """Return the program from which it came, or an empty origin if it began here. A session that
    was seen live has that of its file, once this was read.
    """
    for recorded in recorded_facts:
        fact = recorded.fact
        if isinstance(fact, facts.ConversationStarted) and fact.origin.kind:
            return fact.origin
    if is_seen_live(recorded_facts):
        for recorded in recorded_facts:
            if isinstance(recorded.fact, facts.BroughtIn) and recorded.fact.origin.kind:
                return recorded.fact.origin
    return facts.Origin()


def list_active_compactions(recorded_facts: Sequence[facts.Recorded]) -> list[facts.Recorded]:
    """Return the handovers in effect that cover the conversation's beginning, oldest first."""
    state = build_state(recorded_facts)
    first_message = 0
    compactions = []
    for recorded in state.facts_on_path():
        fact = recorded.fact
        if isinstance(fact, facts.UserSaid | facts.ModelReplied):
            first_message = first_message or recorded.seq
        elif isinstance(fact, facts.Folded) and isinstance(fact.cover, facts.Span):
            is_in_effect = fact.kind in DOCUMENTS and fact.fold in state.branch.live
            if is_in_effect and fact.cover.first <= first_message:
                compactions.append(recorded)
    return compactions


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
    building = _MessageBuilding(
        read_content,
        _texts_shown_instead(recorded_facts, origin, is_folded=is_folded),
        _names_of_chosen_models(recorded_facts),
        is_imported=bool(origin.kind),
        keeps_additions=is_for_same_agent,
    )
    said = list(openai_chat_export.list_messages_in_order(recorded_facts))
    messages = [building.message_of_fact(recorded) for recorded in said]
    system = openai_chat_export.last_system_prompt(recorded_facts)
    if system:
        begun = 0.0
        if messages:
            begun = messages[0].time
        messages.insert(0, RecordedMessage("system", system, time=begun))
    compactions = _build_compactions(recorded_facts, said, is_folded=is_folded)
    if system:
        compactions = [replace(one, at=one.at + 1, keep=one.keep + 1) for one in compactions]
    return recorded_session.RecordedSession(
        "",
        tuple(messages),
        origin.kind,
        origin.session,
        folder=folder,
        version=origin.version,
        compactions=tuple(compactions),
    )


def _build_compactions(
    recorded_facts: Sequence[facts.Recorded], said: Sequence[facts.Recorded], *, is_folded: bool
) -> list[recorded_session.RecordedCompaction]:
    """Return the compactions, with positions in `said`."""
    folds = build_state(recorded_facts).branch.folds
    compactions = []
    for recorded in list_active_compactions(recorded_facts):
        fact = recorded.fact
        if not isinstance(fact, facts.Folded) or not isinstance(fact.cover, facts.Span):
            continue
        last_covered = fact.cover.last
        position = sum(message.seq <= last_covered for message in said)
        # The user may have put it in other words.
        text = folds[fact.fold].text.removeprefix(f"{SUMMARY}\n")
        if is_folded:
            text += RECALLABLE
        compactions.append(
            recorded_session.RecordedCompaction(position, position, text, recorded.time)
        )
    return compactions


def _texts_shown_instead(
    recorded_facts: Sequence[facts.Recorded], origin: facts.Origin, *, is_folded: bool
) -> dict[int, str]:
    """Return what is shown instead of results, by the result's number: what the other program
    showed of those that it shortened, and the folds that were made here, if they are wanted.
    """
    shown: dict[int, str] = {}
    if origin.kind:
        for recorded in recorded_facts:
            fold = recorded.fact
            if not isinstance(fold, facts.Folded) or fold.why != SHOWN_BY_OTHER:
                continue
            if isinstance(fold.cover, facts.PartRef):
                shown[fold.cover.seq] = fold.text.rpartition(EXCERPT_ENDS)[0]
    if is_folded:
        for fold in build_state(recorded_facts).live_folds:
            if isinstance(fold.cover, facts.PartRef) and fold.why != SHOWN_BY_OTHER:
                shown[fold.cover.seq] = fold.text
    return shown


def _names_of_chosen_models(recorded_facts: Sequence[facts.Recorded]) -> set[str]:
    return {one.fact.model for one in recorded_facts if isinstance(one.fact, facts.ModelSet)}


@dataclass(frozen=True, slots=True)
class _MessageBuilding:
    """How facts become messages. `shown_instead`: of results, by number. `is_imported`: texts that
    an import made attachments are text again. `keeps_additions`: of the agent, to the
    user's words.
    """

    read_content: openai_chat_export.ReadContent
    shown_instead: dict[int, str]
    chosen_models: set[str]
    is_imported: bool
    keeps_additions: bool

    def message_of_fact(self, recorded: facts.Recorded) -> RecordedMessage:
        fact = recorded.fact
        if isinstance(fact, facts.ModelReplied):
            model = fact.model
            # A model that was chosen here is named after its provider, which an agent would
            # ask for.
            if model in self.chosen_models:
                model = model.partition("/")[2]
            return recorded_session.build_recorded_reply(
                fact.parts, model=model, time=recorded.time, usage=fact.usage
            )
        if isinstance(fact, facts.ToolReturned):
            return self._message_of_result(recorded, fact)
        said = fact if isinstance(fact, facts.UserSaid) else facts.UserSaid(())
        return replace(self._message_of_user(said), time=recorded.time)

    def _message_of_result(
        self, recorded: facts.Recorded, fact: facts.ToolReturned
    ) -> RecordedMessage:
        pictures = []
        for image in fact.images:
            data = self.read_content(image.digest)
            if data is not None:
                pictures.append(RecordedPicture(image.media_type, data))
        text = self.shown_instead.get(recorded.seq, "")
        if not text:
            text = openai_chat_export.text_of_exported_result(fact, self.read_content)
        return RecordedMessage(
            "tool",
            text,
            answers=fact.call,
            ok=fact.ok,
            time=recorded.time,
            pictures=tuple(pictures),
        )

    def _message_of_user(self, fact: facts.UserSaid) -> RecordedMessage:
        texts: list[str] = []
        pictures: list[RecordedPicture] = []
        for part in fact.parts:
            if isinstance(part, facts.Text):
                texts.append(part.text)
                continue
            data = self.read_content(part.stored.digest)
            if data is not None and part.stored.media_type.startswith(IMAGES):
                pictures.append(RecordedPicture(part.stored.media_type, data, part.name))
            else:
                texts.append(self._text_of_attachment(part, data))
        typed = [words for words in map(_words_of_user, texts) if words]
        shows_additions = self.keeps_additions or not typed
        text = "\n".join(texts if shows_additions else typed)
        shown = tuple(pictures)
        if text.startswith(SYSTEM_MESSAGE):
            words = text.removeprefix(SYSTEM_MESSAGE)
            return RecordedMessage("system", words, pictures=shown, beside=True)
        is_beside = shows_additions and text.startswith(OWN_CONTEXT)
        return RecordedMessage("user", text, pictures=shown, beside=is_beside)

    def _text_of_attachment(self, attachment: facts.Attachment, data: bytes | None) -> str:
        if data is not None and self.is_imported:
            return data.decode("utf-8", "replace")
        return openai_chat_export.text_of_exported_attachment(attachment, self.read_content)


def _words_of_user(text: str) -> str:
    """Return what is left of a part of a message without what an agent added to it."""
    if not text.startswith(OWN_CONTEXT):
        return text
    words, _ = split_off_agent_additions((facts.Text(text),))
    return "" if words.startswith(OWN_CONTEXT) else words
