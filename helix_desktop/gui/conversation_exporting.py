"""Writes a conversation to a file, or as a session in which another agent continues it."""

import asyncio
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtGui import QGuiApplication

from helix_desktop.engine.facts import Recorded
from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.agent_titles import describe_agent_to_continue_in
from helix_desktop.gui.question_dialogs import (
    DialogChoice,
    ask_new_file,
    ask_to_choose_one,
    show_text_box,
)
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.text_file_saving import file_name_from_title, save_text_file
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.window_parts import WindowParts
from helix_desktop.gui.workbench_types import Workbench
from helix_desktop.histories.program_names import AGENTS_TO_CONTINUE_IN

MOST_NAMED_KEYS = 5
OFFERED_COMPACTIONS = 3  # States before older compactions can be restored on the command line.
SUFFIX_BY_EXPORT_FORM = {"markdown": ".md", "json": ".json", "openai": ".jsonl"}


@dataclass(frozen=True, slots=True)
class SavedAgentSession:
    """A session that was written for another agent, and the command line that continues it."""

    notes: Sequence[str]
    resume_command: str


@dataclass(frozen=True, slots=True)
class ReadExport:
    """What a file will contain. `missing`: how many outputs could not be read. `keys`: what looks
    like a key in the text, masked.
    """

    text: str
    missing: int
    keys: Sequence[str]


@dataclass(frozen=True, eq=False)
class ConversationExport:
    """Exports one conversation, or hands it to another agent."""

    parts: WindowParts
    bench: Workbench
    row: ConversationListRow

    # --- As a file

    def ask_form_and_export(self) -> None:
        name_by_form = {
            "markdown": tr("Markdown"),
            "json": tr("JSON"),
            "openai": tr("OpenAI messages"),
        }
        choices: list[DialogChoice] = []
        for form, name in name_by_form.items():
            ask_where = partial(self.ask_where_to_and_export, form)
            choices.append(DialogChoice(name, ask_where))
        title = tr("Export conversation")
        text = tr("Markdown is for reading. JSON has every record of the conversation. OpenAI messages are for other programs.")  # fmt: skip
        ask_to_choose_one(self.parts.widget, title, text, choices, is_first_usual=True)

    def ask_where_to_and_export(self, form: str) -> None:
        """Asks where to save, and writes the file in a thread."""
        from helix_desktop.histories.leaked_keys import mask_keys

        # A title is the beginning of the first message, where a key may stand, too.
        title = mask_keys(self.row.title)
        name = file_name_from_title(title, "conversation") + SUFFIX_BY_EXPORT_FORM[form]
        suggested_path = str(self.bench.main_folder / name)
        export = partial(self._export_to_file, form)
        ask_new_file(self.parts.widget, tr("Export conversation"), suggested_path, export)

    def _export_to_file(self, form: str, file: Path) -> None:
        save = partial(self._ask_about_keys_and_save, file)
        self.parts.runner.run_in_background(self._read_export(form), then=save)

    def _ask_about_keys_and_save(self, file: Path, export: ReadExport) -> None:
        """Saves the file. If something in it looks like a key, asks before anything is written:
        a file that synchronises with another computer would have given the key away by then.
        """
        save_as_it_is = partial(self._save_export, file, export)
        if not export.keys:
            save_as_it_is()
            return
        save_without_keys = partial(self._save_export, file, export, masks_keys=True)
        choices = [
            DialogChoice(tr("Save without them"), save_without_keys),
            DialogChoice(tr("Save as it is"), save_as_it_is),
        ]
        shown_keys = ", ".join(export.keys[:MOST_NAMED_KEYS])
        text = tr("This conversation contains text that looks like passwords or other secrets: {keys}\n\nWithout them, the file shows only the beginning and end of each. Nothing has been saved yet.", keys=shown_keys)  # fmt: skip
        title = tr("Save the secrets, too?")
        ask_to_choose_one(self.parts.widget, title, text, choices, is_first_usual=True)

    def copy_as_markdown(self) -> None:
        """Copies the conversation to the clipboard, to be sent in a mail or a chat."""
        reading = self._read_export("markdown")
        self.parts.runner.run_in_background(reading, then=self._ask_about_keys_and_copy)

    def _ask_about_keys_and_copy(self, export: ReadExport) -> None:
        if not export.keys:
            self._copy_text(export.text)
            return
        choices = [
            DialogChoice(tr("Copy without them"), partial(self._copy_without_keys, export.text)),
            DialogChoice(tr("Copy as it is"), partial(self._copy_text, export.text)),
        ]
        shown_keys = ", ".join(export.keys[:MOST_NAMED_KEYS])
        text = tr("This conversation contains text that looks like passwords or other secrets: {keys}\n\nWithout them, the copy shows only the beginning and end of each. Nothing has been copied yet.", keys=shown_keys)  # fmt: skip
        title = tr("Copy the secrets, too?")
        ask_to_choose_one(self.parts.widget, title, text, choices, is_first_usual=True)

    def _copy_without_keys(self, text: str) -> None:
        masking = asyncio.to_thread(_text_without_keys, text)
        self.parts.runner.run_in_background(masking, then=self._copy_text)

    def _copy_text(self, text: str) -> None:
        QGuiApplication.clipboard().setText(text)
        self.parts.notices.show_notice(tr("The conversation was copied as Markdown."))

    def _save_export(self, file: Path, export: ReadExport, *, masks_keys: bool = False) -> None:
        writing = _write_export(file, export, masks_keys=masks_keys)
        notice = partial(self._notice_exported, file, export.missing)
        self.parts.runner.run_in_background(writing, then=notice)

    def _notice_exported(self, file: Path, missing: int, _result: object) -> None:
        """Says where the file is, and what it lacks."""
        lines = [tr("Saved as {file}.", file=file.name)]
        if missing:
            missing_line = format_count(
                missing,
                "{n} output is missing: it was removed from the cache or is damaged.",
                "{n} outputs are missing: they were removed from the cache or are damaged.",
            )
            lines.append(missing_line)
        self.parts.notices.show_notice("\n".join(lines))

    async def _read_export(self, form: str) -> ReadExport:
        """Reads what the file will contain. Nothing is written yet."""
        from helix_desktop.histories.leaked_keys import list_outputs_beside_facts
        from helix_desktop.histories.openai_chat_export import digests_needed_for_export

        session = await self.bench.open_session(self.row.id)
        state = session.conversation.state
        facts: Sequence[Recorded] = list(state.facts)
        needed_digests: Sequence[Digest] = ()
        if form == "markdown":
            # Markdown is for readers, who should not take replaced messages for valid ones.
            facts = state.facts_on_path()
            needed_digests = list_outputs_beside_facts(facts)
        elif form == "openai":
            needed_digests = digests_needed_for_export(facts)
        contents = await self.bench.workspace.cache.read_contents(needed_digests)
        text = await asyncio.to_thread(_build_export, form, self.row.title, facts, contents)
        missing_digests = set(needed_digests) - set(contents)
        keys = await asyncio.to_thread(_list_masked_keys, text)
        return ReadExport(text, len(missing_digests), keys)

    # --- As a session of another agent

    def ask_where_to_continue(self) -> None:
        choices: list[DialogChoice] = []
        for agent in AGENTS_TO_CONTINUE_IN:
            label = describe_agent_to_continue_in(agent)
            choices.append(DialogChoice(label, partial(self.offer_to_continue, agent)))
        title = tr("Continue in another agent")
        text = tr("The conversation stays here, and the other agent gets a copy.")
        ask_to_choose_one(self.parts.widget, title, text, choices)

    def offer_to_continue(self, agent: str) -> None:
        """Offers the conversation as it is, its state before a compaction, or a shortened one."""
        counting = _count_compactions(self.bench, self.row)
        self.parts.runner.run_in_background(counting, then=partial(self._offer_states, agent))

    def _offer_states(self, agent: str, compactions: int) -> None:
        save = partial(self._save_session, agent)
        # In `save`, compaction 0 stands for the conversation as it is now.
        save_as_it_is = partial(save, 0)
        label_of_saving = tr("Save the session")
        choices = [DialogChoice(label_of_saving, save_as_it_is)]
        label_with_number = tr("Save the session as it was before summary {n}")
        oldest_offered = max(1, compactions - OFFERED_COMPACTIONS + 1)
        for number in range(compactions, oldest_offered - 1, -1):
            label = label_with_number.format(n=number)
            save_as_it_was = partial(save, number)
            choices.append(DialogChoice(label, save_as_it_was))
        save_shortened = partial(save, 0, is_folded=True)
        label_of_shortening = tr("Shorten older parts first")
        choices.append(DialogChoice(label_of_shortening, save_shortened))
        name = AGENTS_TO_CONTINUE_IN[agent]
        text = tr("“{title}” is saved as a new session where {agent} looks for its sessions. Existing files are not changed, and the agent's login is not read.", agent=name, title=self.row.title)  # fmt: skip
        about_shortening = tr("Shortening older parts may incur a charge from your provider, and adds this workspace's MCP server to the agent's settings, so that the agent can read the originals.")  # fmt: skip
        title = tr("Continue in {agent}", agent=name)
        question = f"{text}\n\n{about_shortening}"
        ask_to_choose_one(self.parts.widget, title, question, choices, is_first_usual=True)

    def _save_session(self, agent: str, compaction: int, *, is_folded: bool = False) -> None:
        writing = self._write_session_for_agent(agent, compaction, is_folded=is_folded)
        show = partial(self._show_saved_or_offer_folding, agent, compaction)
        self.parts.runner.run_in_background(writing, then=show)

    def _show_saved_or_offer_folding(
        self, agent: str, compaction: int, saved: SavedAgentSession | None
    ) -> None:
        if saved is None:
            self._offer_folding(agent, compaction)
            return
        title = tr("The session was saved")
        text = "\n\n".join(saved.notes)
        show_text_box(self.parts.widget, title, text, saved.resume_command)

    def _offer_folding(self, agent: str, compaction: int) -> None:
        name = AGENTS_TO_CONTINUE_IN[agent]
        text = tr("This conversation is too long for {agent}. Its older parts can be shortened in a copy of the conversation. Your provider may charge for this. This workspace's MCP server is then added to the agent's settings, so that the agent can read the originals.", agent=name)  # fmt: skip
        save_shortened = partial(self._save_session, agent, compaction, is_folded=True)
        choices = [DialogChoice(tr("Shorten older parts"), save_shortened)]
        title = tr("Continue in {agent}", agent=name)
        ask_to_choose_one(self.parts.widget, title, text, choices)

    async def _write_session_for_agent(
        self, agent: str, compaction: int, *, is_folded: bool
    ) -> SavedAgentSession | None:
        """Writes the session where the agent looks for its own. Returns None, and writes nothing,
        if the conversation is too long for it.
        """
        from helix_desktop.histories import conversation_restoring as restoring
        from helix_desktop.histories.history_format import HistoryPlaces

        folder = next(iter(self.bench.allowed_folders), Path.home())
        request = restoring.RestoreRequest(self.row.id, agent, str(folder), compaction, is_folded)
        relay = self.bench.relay
        restored = await relay.prepare_session_for_agent(request, may_fold=is_folded)
        if not is_folded and not restored.fits:
            return None
        places = HistoryPlaces.of_this_user()
        notes: list[str] = []
        if is_folded:
            added = await asyncio.to_thread(relay.add_mcp_server, agent, folder, places)
            notes.append(added)
        path = await asyncio.to_thread(restoring.write_restored_session, restored, places)
        notes += restoring.describe_restored_session(restored, path)
        command = restoring.command_to_resume(restored)
        # No line changes the folder in all terminals of Windows.
        if sys.platform != "win32":
            command = f"cd {shlex.quote(restored.folder)} && {command}"
        translated_notes = [translate_sentences(note) for note in notes]
        return SavedAgentSession(translated_notes, command)


async def _write_export(file: Path, export: ReadExport, *, masks_keys: bool) -> None:
    """Writes the file. With `masks_keys`, of what looks like a key, only the ends stand there."""
    text = export.text
    if masks_keys:
        text = await asyncio.to_thread(_text_without_keys, export.text)
    await save_text_file(file, partial(str, text))


def _text_without_keys(text: str) -> str:
    from helix_desktop.histories.leaked_keys import mask_keys

    return mask_keys(text)


def _list_masked_keys(text: str) -> list[str]:
    from helix_desktop.histories.leaked_keys import find_keys, mask_key

    return sorted({mask_key(key) for key in find_keys(text)})


def _build_export(
    form: str, title: str, facts: Sequence[Recorded], contents: Mapping[Digest, bytes]
) -> str:
    from helix_desktop.gui import markdown_and_json_export
    from helix_desktop.histories.openai_chat_export import export_openai_lines

    if form == "json":
        return markdown_and_json_export.export_conversation_json(title, facts)
    if form == "markdown":
        texts: dict[Digest, str] = {}
        for digest, content in contents.items():
            texts[digest] = content.decode("utf-8", "replace")
        return markdown_and_json_export.export_conversation_markdown(title, facts, texts.get)
    lines: list[str] = []
    for message in export_openai_lines(facts, contents.get):
        lines.append(json.dumps(message, ensure_ascii=False) + "\n")
    return "".join(lines)


async def _count_compactions(bench: Workbench, row: ConversationListRow) -> int:
    from helix_desktop.histories import session_from_facts

    session = await bench.open_session(row.id)
    facts = list(session.conversation.state.facts)
    compactions = await asyncio.to_thread(session_from_facts.list_active_compactions, facts)
    return len(compactions)
