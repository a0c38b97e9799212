"""Actions on the conversations of the list: open, rename, pin, archive, trash, fork, export. Most
can be undone.
"""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import QObject, QPoint

from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.engine.ports import EmptyTrashResult
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.common.figure_formats import format_byte_size
from helix_desktop.gui.conversation_exporting import SUFFIX_BY_EXPORT_FORM, ConversationExport
from helix_desktop.gui.conversation_sides import ConversationSides
from helix_desktop.gui.copy_bring_back import (
    CopyBringBack,
    explain_copies_left,
    find_files_left_in_copies,
)
from helix_desktop.gui.frame.window_layout import WindowFrame
from helix_desktop.gui.open_workspaces import OpenWorkspaces
from helix_desktop.gui.question_dialogs import ask_text, ask_to_choose_one, ask_to_confirm
from helix_desktop.gui.sentence_translation import join_sentences, translate_sentences
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.window_parts import WindowParts
from helix_desktop.gui.workbench_types import FolderCopy, Session, Workbench
from helix_desktop.histories.program_names import AGENTS_TO_CONTINUE_IN

ConversationAction = Callable[[Workbench, ConversationListRow], object]


class ConversationActions(QObject):
    """Serves the sidebar, its menu and the actions on the shown conversation."""

    def __init__(
        self,
        parts: WindowParts,
        frame: WindowFrame,
        workspaces: OpenWorkspaces,
        sides: ConversationSides,
    ) -> None:
        super().__init__(frame)
        self._parts = parts
        self._showing = parts.showing
        self._frame = frame
        self._sides = sides
        # What the menu of a conversation offers and what can also be done to the shown one.
        self._listed: dict[str, ConversationAction] = {
            "rename": self.ask_and_save_new_title,
            "pin": self.toggle_conversation_pinned,
            "archive": self.toggle_conversation_archived,
            "trash": self.trash_conversation,
            "fork": self.fork_and_open,
            "fork-copy": partial(self.fork_and_open, in_copy=True),
            "bring-back": self.ask_how_to_bring_back,
            "export": self._ask_form_and_export,
            "continue-in": self._ask_where_to_continue,
        }
        for form in SUFFIX_BY_EXPORT_FORM:
            self._listed[f"export-{form}"] = partial(self._export, form=form)
        for agent in AGENTS_TO_CONTINUE_IN:
            self._listed[f"continue-{agent}"] = partial(self._offer_to_continue, agent=agent)
        self._declare_conversation_actions(workspaces)
        self._connect_sidebar()
        sides.call_for_each_side(self._connect_continuing)

    def _declare_conversation_actions(self, workspaces: OpenWorkspaces) -> None:
        on = self._parts.actions.set_action_handler
        sides = self._sides
        for name in self._listed:
            act = partial(self._act_on_conversation, name)
            on(name, act, when=self._showing.has_conversation)
        on("undo", self._parts.notices.run_notice_undo)
        on("previous", lambda: self._go_to_neighbour(-1), when=self._showing.has_workspace)
        on("next", lambda: self._go_to_neighbour(1), when=self._showing.has_workspace)
        on("next-waiting", workspaces.go_to_next_waiting_conversation)
        on("other-side", sides.go_to_other_side, when=lambda: len(sides.sides) > 1)
        on(
            "close-side",
            lambda: sides.close_side(sides.current),
            when=lambda: len(sides.sides) > 1,
        )
        on("agents", self._open_subagents_dialog, when=self._showing.has_conversation)

    def _connect_sidebar(self) -> None:
        sidebar = self._frame.sidebar
        actions = self._parts.actions
        sidebar.list.opened.connect(self._open_conversation)
        sidebar.list.beside_wanted.connect(self._open_beside)
        sidebar.conversation_action_wanted.connect(self._act_on_conversation)
        sidebar.empty_trash_link.clicked.connect(self.ask_to_empty_trash)
        sidebar.shared.clicked.connect(actions["share-workspace"].trigger)
        sidebar.new.clicked.connect(actions["new"].trigger)
        sidebar.importing.clicked.connect(actions["bring-in"].trigger)
        sidebar.workspace_menu_wanted.connect(self._show_workspace_menu)

    def _show_workspace_menu(self, position: QPoint) -> None:
        self._frame.rail.show_workspace_menu(self._showing.workspace_id, position)

    def _open_conversation(self, conversation: str) -> None:
        self._parts.requests.request_conversation(self._showing.workspace_id, conversation)

    def _open_beside(self, conversation: str) -> None:
        self._sides.go_to_conversation(conversation, beside=True)

    def _go_to_neighbour(self, steps: int) -> None:
        conversation = self._frame.sidebar.list.find_neighbour_conversation(steps)
        if conversation:
            self._sides.go_to_conversation(conversation)

    def _connect_continuing(self, side: ChatPage) -> None:
        self._sides.connect_side(side, side.foreign.continuing, self._fork_shown)

    def _fork_shown(self) -> None:
        self._act_on_conversation("fork")

    def _act_on_conversation(self, action: str, conversation: str = "") -> None:
        """Acts on a conversation of the list, or on the shown one without a name."""
        if action == "beside":
            self._open_beside(conversation)
            return
        bench = self._showing.bench
        row = self._sides.find_listed_conversation(conversation)
        if bench is not None and row is not None:
            self.run_conversation_action(action, bench, row)

    def run_conversation_action(
        self, action: str, bench: Workbench, row: ConversationListRow
    ) -> None:
        if action == "restore":
            self.restore_conversation(bench, row)
        elif action == "delete":
            self.ask_to_delete(bench, row)
        else:
            self._listed[action](bench, row)

    def _open_subagents_dialog(self) -> None:
        bench = self._showing.bench
        if bench is None or self._showing.session is None:
            return
        from helix_desktop.gui.subagents_dialog import SubagentsDialog

        go_to = partial(self._parts.requests.request_conversation, bench.id)
        SubagentsDialog(bench, self._showing.session.id, go_to, self._parts.widget).show()

    # --- What the conversation is called, and where it stands

    def ask_and_save_new_title(self, bench: Workbench, row: ConversationListRow) -> None:
        def save_new_title(title: str) -> None:
            self._open_session_and_change(bench, row, lambda session: session.set_title(title))

        heading = tr("Rename conversation")
        ask_text(self._parts.widget, heading, tr("Title"), row.title, save_new_title)

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
            title = row.title or tr("New conversation")
            if row.archived:
                words = tr("“{title}” was unarchived.")
            else:
                words = tr("“{title}” was archived.")
            self._parts.notices.show_notice(words.format(title=title), act=undo_archiving)

        self._open_session_and_change(
            bench,
            row,
            lambda session: session.set_archived(archived=not row.archived),
            notice_archived,
        )

    def trash_conversation(self, bench: Workbench, row: ConversationListRow) -> None:
        def notice_trashed() -> None:
            title = row.title or tr("New conversation")
            words = tr("“{title}” was moved to the trash.", title=title)
            restore = partial(self.restore_conversation, bench, row)
            self._parts.notices.show_notice(words, act=restore)

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

        def show_changed(_done: None) -> None:
            self._sides.refresh_conversations()
            then()

        self._parts.runner.run_in_background(open_and_change(), then=show_changed)

    # --- Deleting

    def ask_to_empty_trash(self) -> None:
        bench = self._showing.bench
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

        def delete_with_copies(copies: Sequence[FolderCopy] = ()) -> None:
            work = _discard_copies_and_delete(bench, copies, ids)
            self._parts.runner.run_in_background(work, then=self._notice_deleted)

        def ask_without_copies() -> None:
            confirm = tr("Delete permanently")
            ask_to_confirm(self._parts.widget, title, text, confirm, delete_with_copies)

        def ask_about_copies(left: Sequence[tuple[FolderCopy, Sequence[str]]]) -> None:
            if not left:
                ask_without_copies()
                return
            copies: list[FolderCopy] = []
            names: list[str] = []
            for copy, files in left:
                copies.append(copy)
                names.extend(files)
            ways: list[tuple[str, Callable[[], object]]] = []
            if len(rows) == 1:
                bring_back = partial(self.ask_how_to_bring_back, bench, rows[0])
                ways.append((tr("Bring back…"), bring_back))
            ways.append((tr("Keep the copy"), delete_with_copies))
            ways.append((tr("Discard the copy"), partial(delete_with_copies, copies)))
            words = f"{text}\n\n{explain_copies_left(len(copies), names)}"
            ask_to_choose_one(self._parts.widget, title, words, "", ways)

        in_copies = [row for row in rows if row.copy]
        if in_copies:
            work = find_files_left_in_copies(bench, in_copies)
            self._parts.runner.run_in_background(work, then=ask_about_copies)
        else:
            ask_without_copies()

    def _notice_deleted(self, deleted: EmptyTrashResult) -> None:
        self._parts.state_file.forget_deleted_ids(*deleted.conversations)
        self._sides.refresh_conversations()
        words = format_count(
            len(deleted.conversations), "{n} conversation deleted", "{n} conversations deleted"
        )
        size = format_byte_size(deleted.bytes)
        self._parts.notices.show_notice(tr("{what}, {size} freed.", what=words, size=size))

    # --- Forks and copies

    def fork_and_open(
        self, bench: Workbench, row: ConversationListRow, seq: int = 0, *, in_copy: bool = False
    ) -> None:
        """Forks at the end or at the fact `seq`, and opens the fork. `in_copy`: in a
        copy of the folders.
        """

        def open_new_fork(session: Session) -> None:
            self._sides.refresh_conversations()
            self._sides.show_session_if_current(bench, session)

        taken = [other.title for other in bench.list_conversations()]
        title = _unique_fork_title(row.title, taken)
        work = bench.fork_conversation(row.id, seq, title=title, in_copy=in_copy)
        self._parts.runner.run_in_background(work, then=open_new_fork)

    def ask_how_to_bring_back(self, bench: Workbench, row: ConversationListRow) -> None:
        """Offers the ways to merge the copy that a conversation works in."""
        if not row.copy:
            self._parts.notices.show_notice(
                tr("This conversation does not have its own copy of the repository.")
            )
            return

        def notice_brought_back(sentences: Sequence[str]) -> None:
            self._sides.refresh_conversations()
            words = [translate_sentences(sentence) for sentence in sentences]
            self._parts.notices.show_notice("\n".join(words))

        parts = self._parts
        CopyBringBack(parts.widget, parts.runner, bench, row, notice_brought_back).ask_for_way()

    # --- Exports

    def _ask_form_and_export(self, bench: Workbench, row: ConversationListRow) -> None:
        ConversationExport(self._parts, bench, row).ask_form_and_export()

    def _export(self, bench: Workbench, row: ConversationListRow, form: str) -> None:
        ConversationExport(self._parts, bench, row).ask_where_to_and_export(form)

    def _ask_where_to_continue(self, bench: Workbench, row: ConversationListRow) -> None:
        ConversationExport(self._parts, bench, row).ask_where_to_continue()

    def _offer_to_continue(self, bench: Workbench, row: ConversationListRow, agent: str) -> None:
        ConversationExport(self._parts, bench, row).offer_to_continue(agent)


async def _discard_copies_and_delete(
    bench: Workbench, copies: Sequence[FolderCopy], ids: Sequence[str]
) -> EmptyTrashResult:
    for copy in copies:
        await bench.copies.bring_back(copy, "discard")
    return await bench.empty_conversation_trash(ids)


def _unique_fork_title(title: str, taken: Sequence[str]) -> str:
    """Returns a title that distinguishes a fork from its parent and from other forks."""
    if not title:
        return ""
    fork_title = tr("{title} (fork)", title=title)
    number = 2
    while fork_title in taken:
        fork_title = tr("{title} (fork {n})", title=title, n=number)
        number += 1
    return fork_title
