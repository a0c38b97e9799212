"""Writes a conversation to a file, or as a session in which another agent continues it."""

import asyncio
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from helix_desktop.engine.facts import Recorded, ToolReturned
from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.agent_titles import describe_agent_to_continue_in
from helix_desktop.gui.question_dialogs import ask_new_file, ask_to_choose_one, show_text_box
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.text_file_saving import file_name_from_title, save_text_file
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.window_parts import WindowParts
from helix_desktop.gui.workbench_types import Workbench
from helix_desktop.histories.program_names import AGENTS_TO_CONTINUE_IN

OFFERED_COMPACTIONS = 3  # States before older compactions can be restored on the command line.
SUFFIX_BY_EXPORT_FORM = {"markdown": ".md", "json": ".json", "openai": ".jsonl"}


@dataclass(frozen=True, eq=False)
class ConversationExport:
    """Exports one conversation, or hands it to another agent."""

    parts: WindowParts
    bench: Workbench
    row: ConversationListRow

    # --- As a file

    def ask_form_and_export(self) -> None:
        ways = [
            (tr("Markdown"), lambda: self.ask_where_to_and_export("markdown")),
            (tr("JSON"), lambda: self.ask_where_to_and_export("json")),
            (tr("OpenAI messages"), lambda: self.ask_where_to_and_export("openai")),
        ]
        words = tr("Markdown is for reading. JSON has every record of the conversation. OpenAI messages are for other programs.")  # fmt: skip
        ask_to_choose_one(
            self.parts.widget, tr("Export conversation"), words, "", ways, has_main_way=True
        )

    def ask_where_to_and_export(self, form: str) -> None:
        """Asks where to save, and writes the file in a thread."""

        def export_to_chosen_file(file: Path) -> None:
            self.parts.runner.run_in_background(
                self._export_and_count_missing(form, file),
                then=partial(self._notice_exported, file),
            )

        name = file_name_from_title(self.row.title, "conversation") + SUFFIX_BY_EXPORT_FORM[form]
        suggested = str(self.bench.main_folder / name)
        title = tr("Export conversation")
        ask_new_file(self.parts.widget, title, suggested, export_to_chosen_file)

    def _notice_exported(self, file: Path, missing: int) -> None:
        words = tr("Saved as {file}.", file=file.name)
        if missing:
            words += "\n" + format_count(
                missing,
                "{n} output is missing: it was removed from the cache or is damaged.",
                "{n} outputs are missing: they were removed from the cache or are damaged.",
            )
        self.parts.notices.show_notice(words)

    async def _export_and_count_missing(self, form: str, file: Path) -> int:
        """Writes the file, and returns how many outputs could not be read."""
        from helix_desktop.histories.openai_chat_export import digests_needed_for_export

        session = await self.bench.open_session(self.row.id)
        facts: Sequence[Recorded] = list(session.conversation.state.facts)
        needed: Sequence[Digest] = ()
        if form == "markdown":
            # Markdown is for readers, who should not take replaced messages for valid ones.
            facts = session.conversation.state.facts_on_path()
            needed = _digests_of_outputs(facts)
        elif form == "openai":
            needed = digests_needed_for_export(facts)
        contents = await self.bench.workspace.cache.read_contents(needed)
        await save_text_file(file, partial(_build_export, form, self.row.title, facts, contents))
        return len(set(needed) - set(contents))

    # --- As a session of another agent

    def ask_where_to_continue(self) -> None:
        ways = []
        for agent in AGENTS_TO_CONTINUE_IN:
            title = describe_agent_to_continue_in(agent)
            ways.append((title, partial(self.offer_to_continue, agent)))
        words = tr("The conversation stays here, and the other agent gets a copy.")
        ask_to_choose_one(self.parts.widget, tr("Continue in another agent"), words, "", ways)

    def offer_to_continue(self, agent: str) -> None:
        """Offers the whole conversation, its state before the last compaction, or a folded one."""
        self.parts.runner.run_in_background(
            _count_compactions(self.bench, self.row), then=partial(self._offer_ways, agent)
        )

    def _offer_ways(self, agent: str, compactions: int) -> None:
        save = partial(self._save_session, agent)
        ways = [(tr("Save the session"), partial(save, 0))]
        words = tr("Save the session as it was before summary {n}")
        for n in range(compactions, max(0, compactions - OFFERED_COMPACTIONS), -1):
            ways.append((words.format(n=n), partial(save, n)))
        ways.append((tr("Shorten older parts first"), partial(save, 0, is_folded=True)))
        name = AGENTS_TO_CONTINUE_IN[agent]
        text = tr("“{title}” is saved as a new session where {agent} looks for its sessions. Existing files are not changed, and the agent's login is not read.", agent=name, title=self.row.title)  # fmt: skip
        more = tr("Shortening older parts may incur a charge from your provider, and adds this workspace's MCP server to the agent's settings, so that the agent can read the originals.")  # fmt: skip
        title = tr("Continue in {agent}", agent=name)
        ask_to_choose_one(
            self.parts.widget, title, f"{text}\n\n{more}", "", ways, has_main_way=True
        )

    def _save_session(self, agent: str, compaction: int, *, is_folded: bool = False) -> None:
        def show_saved_or_offer_folding(saved: tuple[Sequence[str], str] | None) -> None:
            if saved is None:
                self._offer_folding(agent, compaction)
                return
            notes, command = saved
            title = tr("The session was saved")
            show_text_box(self.parts.widget, title, "\n\n".join(notes), command)

        writing = self._write_session_for_agent(agent, compaction, is_folded=is_folded)
        self.parts.runner.run_in_background(writing, then=show_saved_or_offer_folding)

    def _offer_folding(self, agent: str, compaction: int) -> None:
        name = AGENTS_TO_CONTINUE_IN[agent]
        text = tr("This conversation is too long for {agent}. Its older parts can be shortened in a copy of the conversation. Your provider may charge for this. This workspace's MCP server is then added to the agent's settings, so that the agent can read the originals.", agent=name)  # fmt: skip
        fold = partial(self._save_session, agent, compaction, is_folded=True)
        title = tr("Continue in {agent}", agent=name)
        ask_to_choose_one(self.parts.widget, title, text, "", [(tr("Shorten older parts"), fold)])

    async def _write_session_for_agent(
        self, agent: str, compaction: int, *, is_folded: bool
    ) -> tuple[Sequence[str], str] | None:
        """Returns notes on the saved session and the command to continue it, or None if
        it is too long.
        """
        from helix_desktop.histories import conversation_restoring as restoring
        from helix_desktop.histories.history_finding import HistoryPlaces

        bench = self.bench
        folder = next(iter(bench.allowed_folders), Path.home())
        places = HistoryPlaces.of_this_user()
        request = restoring.RestoreRequest(self.row.id, agent, str(folder), compaction, is_folded)
        restored = await bench.relay.prepare_session_for_agent(request, may_fold=is_folded)
        if not is_folded and not restored.fits:
            return None

        def write_and_describe_session() -> tuple[Sequence[str], str]:
            notes: list[str] = []
            if is_folded:
                notes.append(bench.relay.add_mcp_server(agent, folder, places))
            path = restoring.write_restored_session(restored, places)
            notes += restoring.describe_restored_session(restored, path)
            command = restoring.command_to_resume(restored)
            # No line changes the folder in all terminals of Windows.
            if sys.platform != "win32":
                command = f"cd {shlex.quote(restored.folder)} && {command}"
            return [translate_sentences(note) for note in notes], command

        return await asyncio.to_thread(write_and_describe_session)


def _digests_of_outputs(facts: Sequence[Recorded]) -> list[Digest]:
    digests: list[Digest] = []
    for recorded in facts:
        fact = recorded.fact
        if isinstance(fact, ToolReturned) and not fact.head:
            digests.append(fact.output.digest)
    return digests


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

    facts = (await bench.open_session(row.id)).conversation.state.facts
    return len(await asyncio.to_thread(session_from_facts.list_active_compactions, list(facts)))
