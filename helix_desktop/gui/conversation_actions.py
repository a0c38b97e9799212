"""Actions on a conversation: rename, pin, archive, trash, fork, export. Most can be undone."""

import asyncio
import json
import shlex
import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QWidget

from helix_desktop.engine.facts import Recorded, ToolReturned
from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.engine.ports import EmptyTrashResult
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui import question_dialogs
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.figure_formats import format_byte_size
from helix_desktop.gui.copy_bring_back import (
    CopyBringBack,
    explain_copies_left,
    find_files_left_in_copies,
)
from helix_desktop.gui.frame.notices import Notices
from helix_desktop.gui.question_dialogs import (
    ask_new_file,
    ask_text,
    ask_to_choose_one,
    ask_to_confirm,
    show_text_box,
)
from helix_desktop.gui.sentence_translation import join_sentences, translate_sentences
from helix_desktop.gui.text_file_saving import file_name_from_title, save_text_file
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.workbench_types import FolderCopy, Session, Workbench
from helix_desktop.histories.program_names import AGENTS_TO_CONTINUE_IN

OFFER_MS = 600_000  # An offer that is made only once stays until the user closes it.
OFFERED_COMPACTIONS = 3  # States before older compactions can be restored on the command line.
SUFFIX_BY_EXPORT_FORM = {"markdown": ".md", "json": ".json", "openai": ".jsonl"}


@dataclass(eq=False)
class ConversationActions:
    """`changed`: the list has changed. `gone`: a conversation was deleted. `opened`: a
    session is to be shown.
    """

    window: QWidget
    doing: BackgroundRunner
    notices: Notices
    changed: Callable[[], object]
    gone: Callable[..., object]
    opened: Callable[[Workbench, Session], object]

    def run_conversation_action(
        self, action: str, bench: Workbench, row: ConversationListRow
    ) -> None:
        acts: dict[str, Callable[[Workbench, ConversationListRow], None]] = {
            "rename": self.ask_and_save_new_title,
            "pin": self.toggle_conversation_pinned,
            "archive": self.toggle_conversation_archived,
            "trash": self.trash_conversation,
            "restore": self.restore_conversation,
            "delete": self.ask_to_delete,
            "fork": self.fork_and_open,
            "fork-copy": partial(self.fork_and_open, in_copy=True),
            "bring-back": self.ask_how_to_bring_back,
            "export": self.ask_form_and_export,
            "continue-in": self.ask_where_to_continue,
            **{
                f"export-{form}": partial(self.ask_where_to_and_export, form=form)
                for form in SUFFIX_BY_EXPORT_FORM
            },
            **{
                f"continue-{agent}": partial(self.offer_to_continue, agent=agent)
                for agent in AGENTS_TO_CONTINUE_IN
            },
        }
        acts[action](bench, row)

    def ask_form_and_export(self, bench: Workbench, row: ConversationListRow) -> None:
        export = self.ask_where_to_and_export
        ways = [
            (tr("Markdown"), lambda: export(bench, row, form="markdown")),
            (tr("JSON"), lambda: export(bench, row, form="json")),
            (tr("OpenAI messages"), lambda: export(bench, row, form="openai")),
        ]
        words = tr("Markdown is for reading. JSON has every record of the conversation. OpenAI messages are for other programs.")  # fmt: skip
        ask_to_choose_one(self.window, tr("Export conversation"), words, "", ways)

    def ask_where_to_continue(self, bench: Workbench, row: ConversationListRow) -> None:
        ways = [
            (title, partial(self.offer_to_continue, bench, row, agent=agent))
            for agent, title in AGENTS_TO_CONTINUE_IN.items()
        ]
        words = tr("The conversation stays here, and the other agent gets a copy.")
        ask_to_choose_one(self.window, tr("Continue in another agent"), words, "", ways)

    def ask_and_save_new_title(self, bench: Workbench, row: ConversationListRow) -> None:
        def save_new_title(title: str) -> None:
            self._open_session_and_change(bench, row, lambda session: session.set_title(title))

        ask_text(self.window, tr("Rename conversation"), tr("Title"), row.title, save_new_title)

    def toggle_conversation_pinned(self, bench: Workbench, row: ConversationListRow) -> None:
        self._open_session_and_change(
            bench, row, lambda session: session.set_pinned(pinned=not row.pinned)
        )

    def toggle_conversation_archived(self, bench: Workbench, row: ConversationListRow) -> None:
        def undo_archiving() -> None:
            self._open_session_and_change(
                bench, row, lambda session: session.set_archived(archived=row.archived)
            )

        def notice_archived() -> None:
            words = (
                tr("“{title}” was unarchived.") if row.archived else tr("“{title}” was archived.")
            )
            self.notices.show_notice(
                words.format(title=row.title or tr("New conversation")), act=undo_archiving
            )

        self._open_session_and_change(
            bench,
            row,
            lambda session: session.set_archived(archived=not row.archived),
            notice_archived,
        )

    def trash_conversation(self, bench: Workbench, row: ConversationListRow) -> None:
        def notice_trashed() -> None:
            words = tr(
                "“{title}” was moved to the trash.", title=row.title or tr("New conversation")
            )
            self.notices.show_notice(words, act=lambda: self.restore_conversation(bench, row))

        self._open_session_and_change(
            bench, row, lambda session: session.set_trashed(), notice_trashed
        )

    def restore_conversation(self, bench: Workbench, row: ConversationListRow) -> None:
        self._open_session_and_change(
            bench, row, lambda session: session.set_trashed(trashed=False)
        )

    def _open_session_and_change(
        self,
        bench: Workbench,
        row: ConversationListRow,
        change: Callable[[Session], Coroutine[Any, Any, None]],
        then: Callable[[], object] = lambda: None,
    ) -> None:
        async def open_and_change() -> None:
            await change(await bench.open_session(row.id))

        self.doing.run_in_background(open_and_change(), then=lambda _done: (self.changed(), then()))

    def ask_to_empty_trash(self, bench: Workbench | None) -> None:
        if bench is None:
            return
        rows = [row for row in bench.list_conversations() if row.trashed]
        text = format_count(
            len(rows),
            "{n} conversation in the trash will be deleted permanently, along with cached content that nothing else uses. This cannot be undone.",
            "{n} conversations in the trash will be deleted permanently, along with cached content that nothing else uses. This cannot be undone.",
        )
        self._ask_to_delete_for_good(bench, tr("Empty trash"), text, rows)

    def ask_to_delete(self, bench: Workbench, row: ConversationListRow) -> None:
        text = tr("“{title}” will be deleted permanently, along with cached content that nothing else uses. This cannot be undone.", title=row.title)  # fmt: skip
        if row.agent or row.recorded_from:
            kept = tr("The agent's own files are kept. If the agent continues this conversation, the recorder saves only what is new.")  # fmt: skip
            text = join_sentences(text, kept)
        self._ask_to_delete_for_good(bench, tr("Delete permanently"), text, [row], (row.id,))

    def _ask_to_delete_for_good(
        self,
        bench: Workbench,
        title: str,
        text: str,
        rows: Sequence[ConversationListRow],
        ids: Sequence[str] = (),
    ) -> None:
        """Asks also what becomes of the copies of the repository in which these
        conversations work.
        """

        def notice_deleted(gone: EmptyTrashResult) -> None:
            self.gone(*gone.conversations)
            self.changed()
            words = format_count(
                len(gone.conversations), "{n} conversation deleted", "{n} conversations deleted"
            )
            self.notices.show_notice(
                tr("{what}, {size} freed.", what=words, size=format_byte_size(gone.bytes))
            )

        def delete_with_copies(copies: Sequence[FolderCopy] = ()) -> None:
            async def discard_copies_and_delete() -> EmptyTrashResult:
                for copy in copies:
                    await bench.copies.bring_back(copy, "discard")
                return await bench.empty_conversation_trash(ids)

            self.doing.run_in_background(discard_copies_and_delete(), then=notice_deleted)

        def ask_about_copies(found: Sequence[tuple[FolderCopy, Sequence[str]]]) -> None:
            if not found:
                ask_to_confirm(
                    self.window, title, text, tr("Delete permanently"), delete_with_copies
                )
                return
            ways: list[tuple[str, Callable[[], object]]] = [
                (tr("Keep the copy"), delete_with_copies)
            ]
            ways += [
                (tr("Discard the copy"), partial(delete_with_copies, [one for one, _ in found]))
            ]
            if len(rows) == 1:
                ways.insert(
                    0, (tr("Bring back…"), partial(self.ask_how_to_bring_back, bench, rows[0]))
                )
            names = [name for _, files in found for name in files]
            ask_to_choose_one(
                self.window, title, f"{text}\n\n{explain_copies_left(len(found), names)}", "", ways
            )

        copied = [row for row in rows if row.copy]
        if copied:
            self.doing.run_in_background(
                find_files_left_in_copies(bench, copied), then=ask_about_copies
            )
        else:
            ask_about_copies(())

    def offer_to_forget_keys(self, bench: Workbench, new_facts: Sequence[Recorded]) -> None:
        """Offers once to forget texts that look like keys in what was recorded since
        the last offer.
        """
        from helix_desktop.histories.leaked_keys import find_keys_in_facts, mask_key

        async def find_new_keys() -> Sequence[str]:
            results = [one.fact for one in new_facts if isinstance(one.fact, ToolReturned)]
            contents = await bench.workspace.cache.read_contents(
                [one.output.digest for one in results if not one.head]
            )
            return await asyncio.to_thread(find_keys_in_facts, new_facts, contents.values())

        async def forget_keys(keys: Sequence[str]) -> None:
            for key in keys:
                await bench.forget_content(text=key)
            self.notices.show_notice(
                format_count(len(keys), "{n} key was removed.", "{n} keys were removed.")
            )

        def offer(keys: Sequence[str]) -> None:
            masked, run = [mask_key(key) for key in keys], self.doing.run_in_background
            words = tr(
                "This conversation contains text that looks like keys: {keys}",
                keys=", ".join(masked),
            )
            button = format_count(len(keys), "Forget the key…", "Forget the {n} keys…")
            ask = partial(
                question_dialogs.ask_to_forget_keys,
                self.window,
                masked,
                lambda: run(forget_keys(keys)),
            )
            if keys:
                self.notices.show_notice(words, button=button, act=ask, shown_ms=OFFER_MS)

        self.doing.run_in_background(find_new_keys(), then=offer)

    def fork_and_open(
        self, bench: Workbench, row: ConversationListRow, seq: int = 0, *, in_copy: bool = False
    ) -> None:
        """Forks at the end or at the fact `seq`, and opens the fork. `in_copy`: in a
        copy of the folders.
        """

        def open_new_fork(session: Session) -> None:
            self.changed()
            self.opened(bench, session)

        title = _unique_fork_title(row.title, [each.title for each in bench.list_conversations()])
        work = bench.fork_conversation(row.id, seq, title=title, in_copy=in_copy)
        self.doing.run_in_background(work, then=open_new_fork)

    def ask_how_to_bring_back(self, bench: Workbench, row: ConversationListRow) -> None:
        """Offers the ways to merge the copy that a conversation works in."""
        if row.copy:
            self._copy_bring_back(bench, row).ask_for_way()
        else:
            self.notices.show_notice(
                tr("This conversation does not have its own copy of the repository.")
            )

    def _copy_bring_back(self, bench: Workbench, row: ConversationListRow) -> CopyBringBack:
        def notice_brought_back(said: Sequence[str]) -> None:
            self.changed()
            self.notices.show_notice("\n".join(map(translate_sentences, said)))

        return CopyBringBack(self.window, self.doing, bench, row, notice_brought_back)

    def ask_where_to_and_export(
        self, bench: Workbench, row: ConversationListRow, form: str
    ) -> None:
        """Asks where to save, and writes the file in a thread."""

        def export_to_chosen_file(file: Path) -> None:
            def notice_exported(gone: int) -> None:
                missing = format_count(
                    gone,
                    "{n} output is missing: it was removed from the cache or is damaged.",
                    "{n} outputs are missing: they were removed from the cache or are damaged.",
                )
                saved = tr("Saved as {file}.", file=file.name)
                self.notices.show_notice(f"{saved}\n{missing}" if gone else saved)

            self.doing.run_in_background(
                self._export_and_count_missing(bench, row, form, file), then=notice_exported
            )

        name = file_name_from_title(row.title, "conversation") + SUFFIX_BY_EXPORT_FORM[form]
        ask_new_file(
            self.window,
            tr("Export conversation"),
            str(bench.main_folder / name),
            export_to_chosen_file,
        )

    def offer_to_continue(self, bench: Workbench, row: ConversationListRow, agent: str) -> None:
        """Offers the whole conversation, its state before the last compaction, or a folded one."""
        name = AGENTS_TO_CONTINUE_IN[agent]
        title = tr("Continue in {agent}", agent=name)

        def save_session(compaction: int, *, is_folded: bool = False) -> None:
            writing = self._write_session_for_agent(
                bench, row, agent, compaction, is_folded=is_folded
            )
            self.doing.run_in_background(writing, then=partial(show_saved_session, compaction))

        def show_saved_session(compaction: int, saved: tuple[Sequence[str], str] | None) -> None:
            if saved is not None:
                show_text_box(
                    self.window, tr("The session was saved"), "\n\n".join(saved[0]), saved[1]
                )
                return
            text = tr("This conversation is too long for {agent}. Its older parts can be folded in a copy of the conversation. Your provider may charge for this. This workspace's MCP server is then added to the agent's settings, so that the agent can read the originals.", agent=name)  # fmt: skip
            ways = [(tr("Shorten older parts"), partial(save_session, compaction, is_folded=True))]
            ask_to_choose_one(self.window, title, text, "", ways)

        def offer_ways(compactions: int) -> None:
            ways = [(tr("Save the session"), partial(save_session, 0))]
            words = tr("Save the session as it was before compaction {n}")
            last = range(compactions, max(0, compactions - OFFERED_COMPACTIONS), -1)
            ways += [(words.format(n=n), partial(save_session, n)) for n in last]
            ways.append((tr("Shorten older parts first"), partial(save_session, 0, is_folded=True)))
            text = tr("“{title}” is saved as a new session where {agent} looks for its sessions. Existing files are not changed, and the agent's login is not read.", agent=name, title=row.title)  # fmt: skip
            more = tr("Folding older parts may incur a charge from your provider, and adds this workspace's MCP server to the agent's settings, so that the agent can read the originals.")  # fmt: skip
            ask_to_choose_one(self.window, title, f"{text}\n\n{more}", "", ways)

        self.doing.run_in_background(_count_compactions(bench, row), then=offer_ways)

    async def _write_session_for_agent(
        self,
        bench: Workbench,
        row: ConversationListRow,
        agent: str,
        compaction: int,
        *,
        is_folded: bool,
    ) -> tuple[Sequence[str], str] | None:
        """Returns notes on the saved session and the command to continue it, or None if
        it is too long.
        """
        from helix_desktop.histories import conversation_restoring as restoring
        from helix_desktop.histories.history_finding import HistoryPlaces

        folder, places = (
            next(iter(bench.allowed_folders), Path.home()),
            HistoryPlaces.of_this_user(),
        )
        asked = restoring.RestoreRequest(row.id, agent, str(folder), compaction, is_folded)
        restored = await bench.relay.prepare_session_for_agent(asked, may_fold=is_folded)
        if not (is_folded or restored.fits):
            return None

        def write_session() -> tuple[Sequence[str], str]:
            lines = [bench.relay.add_mcp_server(agent, folder, places)] if is_folded else []
            path = restoring.write_restored_session(restored, places)
            lines += restoring.describe_restored_session(restored, path)
            # No line changes the folder in all terminals of Windows.
            change = "" if sys.platform == "win32" else f"cd {shlex.quote(restored.folder)} && "
            return list(
                map(translate_sentences, lines)
            ), f"{change}{restoring.command_to_resume(restored)}"

        return await asyncio.to_thread(write_session)

    async def _export_and_count_missing(
        self, bench: Workbench, row: ConversationListRow, form: str, file: Path
    ) -> int:
        """Writes the file, and returns how many outputs could not be read."""
        from helix_desktop.gui import markdown_and_json_export
        from helix_desktop.histories import openai_chat_export

        state = (await bench.open_session(row.id)).conversation.state
        # Markdown is for readers, who should not take replaced messages for valid ones.
        facts = state.facts_on_path() if form == "markdown" else list(state.facts)
        named = openai_chat_export.digests_needed_for_export(facts) if form == "openai" else []
        if form == "markdown":
            outputs = (one.fact for one in facts if isinstance(one.fact, ToolReturned))
            named = [output.output.digest for output in outputs if not output.head]
        contents = await bench.workspace.cache.read_contents(named)
        texts = {digest: content.decode("utf-8", "replace") for digest, content in contents.items()}
        lines = openai_chat_export.export_openai_lines(facts, contents.get)
        makers: dict[str, Callable[[], str]] = {
            "json": lambda: markdown_and_json_export.export_conversation_json(row.title, facts),
            "markdown": lambda: markdown_and_json_export.export_conversation_markdown(
                row.title, facts, texts.get
            ),
            "openai": lambda: "".join(
                f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines
            ),
        }
        await save_text_file(file, makers[form])
        return len(set(named) - set(texts))


async def _count_compactions(bench: Workbench, row: ConversationListRow) -> int:
    from helix_desktop.histories import session_from_facts

    facts = (await bench.open_session(row.id)).conversation.state.facts
    return len(await asyncio.to_thread(session_from_facts.list_active_compactions, list(facts)))


def _unique_fork_title(title: str, taken: Sequence[str]) -> str:
    """Returns a title that distinguishes a fork from its parent and from other forks."""
    if not title:
        return ""
    first = tr("{title} (fork)", title=title)
    numbered = (tr("{title} (fork {n})", title=title, n=n) for n in range(2, len(taken) + 3))
    return first if first not in taken else next(each for each in numbered if each not in taken)
