"""Turns a conversation's facts into a recorded session, for writing in agents' formats.

The opposite of `history_facts`. The session contains every message and result. A handover of the
beginning becomes a compaction. A result that the other program shortened has the text it showed.
"""

from collections.abc import Sequence
from dataclasses import replace

from helix_desktop.engine import facts
from helix_desktop.engine.agent_additions import (
    SEALED_SUMMARY,
    SYSTEM_MESSAGE,
    is_agent_block,
    split_off_agent_additions,
    words_for_agent_block,
)
from helix_desktop.engine.fold_kinds import KINDS_OF_SUMMARIES
from helix_desktop.engine.view import build_state
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import openai_chat_export, recorded_session
from helix_desktop.histories.history_facts import EXCERPT_ENDS, IMAGES, SUMMARY
from helix_desktop.histories.program_names import SHOWN_BY_OTHER
from helix_desktop.histories.recorded_session import (
    RecordedMessage,
    RecordedPicture,
)
from helix_desktop.histories.seen_twice import is_seen_live

RECALLABLE = "\n\n[recall_cached_content and recall_history are tools of the MCP server of Helix Desktop, if it is connected.]"
# Messages and parts that begin so are an agent's own, not the user's words.
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
    """Return the handovers in effect that cover the conversation's beginning, oldest first.

    A handover is a summary that stands in the place of messages, from the first to the last that it
    covers. It is in effect (`live`) unless it was undone or a larger one replaced it.
    """
    state = build_state(recorded_facts)
    first_message_seq = 0
    compactions: list[facts.Recorded] = []
    for recorded in state.facts_on_path():
        fact = recorded.fact
        is_message = isinstance(fact, facts.UserSaid | facts.ModelReplied)
        if is_message and first_message_seq == 0:
            first_message_seq = recorded.seq
        if isinstance(fact, facts.Folded) and isinstance(fact.cover, facts.Span):
            is_in_effect = fact.kind in KINDS_OF_SUMMARIES and fact.fold in state.branch.live
            if is_in_effect and fact.cover.first <= first_message_seq:
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
    replacement_texts = _replacement_texts_of_results(recorded_facts, origin, is_folded=is_folded)
    model_names = _names_of_chosen_models(recorded_facts)
    message_builder = _ExportedMessageBuilder(
        read_content,
        replacement_texts,
        model_names,
        is_imported=bool(origin.kind),
        keeps_additions=is_for_same_agent,
    )
    message_facts = list(openai_chat_export.list_messages_in_order(recorded_facts))
    messages = [message_builder.message_of_fact(recorded) for recorded in message_facts]
    compactions = _build_compactions(recorded_facts, message_facts, is_folded=is_folded)

    system_prompt = openai_chat_export.last_system_prompt(recorded_facts)
    if system_prompt:
        start_time = 0.0
        if messages:
            start_time = messages[0].time
        messages.insert(0, RecordedMessage("system", system_prompt, time=start_time))
        compactions = [_one_place_further_behind(compaction) for compaction in compactions]

    return recorded_session.RecordedSession(
        name="",
        messages=tuple(messages),
        kind=origin.kind,
        session=origin.session,
        folder=folder,
        version=origin.version,
        compactions=tuple(compactions),
    )


def _build_compactions(
    recorded_facts: Sequence[facts.Recorded],
    message_facts: Sequence[facts.Recorded],
    *,
    is_folded: bool,
) -> list[recorded_session.RecordedCompaction]:
    """Return the compactions, with positions in `message_facts`. A compaction stands behind the
    messages that it replaces, and keeps none of them.
    """
    folds = build_state(recorded_facts).branch.folds
    compactions: list[recorded_session.RecordedCompaction] = []
    for recorded in list_active_compactions(recorded_facts):
        fact = recorded.fact
        if not isinstance(fact, facts.Folded) or not isinstance(fact.cover, facts.Span):
            continue
        covered_count = 0
        for message in message_facts:
            if message.seq <= fact.cover.last:
                covered_count += 1
        # The user may have edited the summary, so the text is that of the fold as it is now.
        text = folds[fact.fold].text.removeprefix(f"{SUMMARY}\n")
        if is_folded:
            text += RECALLABLE
        compaction = recorded_session.RecordedCompaction(
            at=covered_count, keep=covered_count, text=text, time=recorded.time
        )
        compactions.append(compaction)
    return compactions


def _replacement_texts_of_results(
    recorded_facts: Sequence[facts.Recorded], origin: facts.Origin, *, is_folded: bool
) -> dict[int, str]:
    """Return the texts that the session has instead of results, by the number of the result's fact.

    An imported session (`origin` names its program) keeps the excerpts that its program showed.
    If the session is wanted as it is folded here, the folds that were made here are added. They
    come second, because they apply where both have a text for a result.
    """
    text_by_seq: dict[int, str] = {}
    if origin.kind:
        text_by_seq.update(_excerpts_shown_by_other_program(recorded_facts))
    if is_folded:
        text_by_seq.update(_texts_of_folded_results(recorded_facts))
    return text_by_seq


def _excerpts_shown_by_other_program(recorded_facts: Sequence[facts.Recorded]) -> dict[int, str]:
    """Return what the other program showed of the results that it shortened. The import recorded
    each as a fold, and added a sentence about `recall_cached_content`, which is left out here.
    """
    excerpt_by_seq: dict[int, str] = {}
    for recorded in recorded_facts:
        fold = recorded.fact
        if not isinstance(fold, facts.Folded) or fold.why != SHOWN_BY_OTHER:
            continue
        if isinstance(fold.cover, facts.PartRef):
            excerpt, _, _ = fold.text.rpartition(EXCERPT_ENDS)
            excerpt_by_seq[fold.cover.seq] = excerpt
    return excerpt_by_seq


def _texts_of_folded_results(recorded_facts: Sequence[facts.Recorded]) -> dict[int, str]:
    """Return the texts of the folds in effect that were made here and stand for one part."""
    text_by_seq: dict[int, str] = {}
    for fold in build_state(recorded_facts).live_folds:
        if isinstance(fold.cover, facts.PartRef) and fold.why != SHOWN_BY_OTHER:
            text_by_seq[fold.cover.seq] = fold.text
    return text_by_seq


def _names_of_chosen_models(recorded_facts: Sequence[facts.Recorded]) -> set[str]:
    names: set[str] = set()
    for recorded in recorded_facts:
        if isinstance(recorded.fact, facts.ModelSet):
            names.add(recorded.fact.model)
    return names


@dataclass(frozen=True, slots=True)
class _ExportedMessageBuilder:
    """Turns facts into messages. `replacement_texts`: what is written instead of results, by their
    numbers. `is_imported`: long texts that the import stored as attachments become text again.
    `keeps_additions`: what an agent added to the user's words stays.
    """

    read_content: openai_chat_export.ReadContent
    replacement_texts: dict[int, str]
    chosen_models: set[str]
    is_imported: bool
    keeps_additions: bool

    def message_of_fact(self, recorded: facts.Recorded) -> RecordedMessage:
        """Return the message that a fact stands for."""
        fact = recorded.fact
        if isinstance(fact, facts.ModelReplied):
            model = fact.model
            # A model that was chosen here is named after its provider, which an agent would
            # ask for.
            if model in self.chosen_models:
                _, _, model = model.partition("/")
            return recorded_session.build_recorded_reply(
                fact.parts, model=model, time=recorded.time, usage=fact.usage
            )
        if isinstance(fact, facts.ToolReturned):
            return self._message_of_result(recorded, fact)
        if isinstance(fact, facts.UserSaid):
            return replace(self._message_of_user(fact), time=recorded.time)
        return RecordedMessage("user", "", time=recorded.time)

    def _message_of_result(
        self, recorded: facts.Recorded, fact: facts.ToolReturned
    ) -> RecordedMessage:
        """Return a tool's result as a message, with its pictures and the text that replaces the
        output, or else the output itself.
        """
        pictures: list[RecordedPicture] = []
        document_text = ""
        for stored in fact.images:
            data = self.read_content(stored.digest)
            if data is None:
                continue
            if stored.media_type.startswith("text/"):  # Behind it stands its document.
                document_text = data.decode("utf-8", "replace")
            else:
                pictures.append(RecordedPicture(stored.media_type, data, text=document_text))
                document_text = ""
        text = self.replacement_texts.get(recorded.seq, "")
        if not text:
            text = openai_chat_export.text_of_exported_output(fact, self.read_content)
        if document_text:  # The document itself is not there any more, or never was.
            text = f"{text}\n{document_text}".lstrip()
        return RecordedMessage(
            "tool",
            text,
            answers=fact.call,
            ok=fact.ok,
            time=recorded.time,
            pictures=tuple(pictures),
        )

    def _message_of_user(self, fact: facts.UserSaid) -> RecordedMessage:
        """Return a message of the user, with or without what an agent added to it."""
        texts: list[str] = []
        pictures: list[RecordedPicture] = []
        sealed_items: list[str] = []
        for part in fact.parts:
            if isinstance(part, facts.Text):
                texts.append(part.text)
                continue
            data = self.read_content(part.stored.digest)
            picture = self._picture_or_document(part, data)
            if picture is not None:
                pictures.append(picture)
            else:
                text = self._text_of_attachment(part, data)
                if text == SEALED_SUMMARY and data is not None:
                    sealed_items.append(data.decode("utf-8", "replace"))
                if text:
                    texts.append(text)

        typed_texts = _list_typed_texts(texts)
        # A message with nothing but additions is kept as it is, so that it is not empty.
        keeps_additions = self.keeps_additions or not typed_texts
        if keeps_additions:
            message_text = "\n".join(texts)
        else:
            message_text = "\n".join(typed_texts)

        if message_text.startswith(SYSTEM_MESSAGE):
            system_text = message_text.removeprefix(SYSTEM_MESSAGE)
            return RecordedMessage("system", system_text, pictures=tuple(pictures), beside=True)
        is_beside = keeps_additions and message_text.startswith(OWN_CONTEXT)
        return RecordedMessage(
            "user",
            message_text,
            pictures=tuple(pictures),
            beside=is_beside,
            sealed=tuple(sealed_items),
        )

    def _picture_or_document(
        self, attachment: facts.Attachment, data: bytes | None
    ) -> RecordedPicture | None:
        """Return the attachment as a picture or, for the same agent, the document whose text it
        is. None: it is a text, or its content is missing.
        """
        if data is None:
            return None
        if attachment.stored.media_type.startswith(IMAGES):
            return RecordedPicture(attachment.stored.media_type, data, attachment.name)
        if not self.keeps_additions or attachment.document is None:
            return None
        original = attachment.document.original
        document = self.read_content(original.digest)
        if document is None:
            return None
        text = data.decode("utf-8", "replace")
        return RecordedPicture(original.media_type, document, attachment.name, text=text)

    def _text_of_attachment(self, attachment: facts.Attachment, data: bytes | None) -> str:
        if data is not None and is_agent_block(attachment):
            words = words_for_agent_block(data.decode("utf-8", "replace"))
            if words is not None:
                return words
        if data is not None and self.is_imported:
            return data.decode("utf-8", "replace")
        return openai_chat_export.text_of_exported_attachment(attachment, self.read_content)


def _list_typed_texts(texts: Sequence[str]) -> list[str]:
    """Return the words of a message's parts that an agent did not add."""
    typed_texts: list[str] = []
    for text in texts:
        words = _words_of_user(text)
        if words:
            typed_texts.append(words)
    return typed_texts


def _words_of_user(text: str) -> str:
    """Return what is left of a part of a message without what an agent added to it."""
    if not text.startswith(OWN_CONTEXT):
        return text
    words, _ = split_off_agent_additions((facts.Text(text),))
    if words.startswith(OWN_CONTEXT):
        return ""
    return words


def _one_place_further_behind(
    compaction: recorded_session.RecordedCompaction,
) -> recorded_session.RecordedCompaction:
    """Return it as it stands once a message was put before all others."""
    return replace(compaction, at=compaction.at + 1, keep=compaction.keep + 1)
