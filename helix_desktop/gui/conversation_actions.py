"""Actions on the conversations of the list: open, rename, pin, archive, trash, fork, export. Most
can be undone.
"""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import QObject, QPoint

from helix_desktop.engine.facts import UserPart
from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.engine.ports import EmptyTrashResult
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.common.figure_formats import format_byte_size
from helix_desktop.gui.conversation_exporting import SUFFIX_BY_EXPORT_FORM, ConversationExport
from helix_desktop.gui.copy_bring_back import (
    CopyBringBack,
    CopyOfConversation,
    explain_copies_left,
    find_copies_of_conversations,
)
from helix_desktop.gui.question_dialogs import (
    DialogChoice,
    ask_text,
    ask_to_choose_one,
    ask_to_confirm,
)
from helix_desktop.gui.sentence_translation import join_sentences, translate_sentences
from helix_desktop.gui.shown_workspace import ShownSession, ShownWorkspace, workbench_of_shown
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.window_contents import WindowContents
from helix_desktop.gui.workbench_types import Workbench
from helix_desktop.histories.program_names import AGENTS_TO_CONTINUE_IN

ConversationAction = Callable[[ShownWorkspace, ConversationListRow], object]
# What can be done only where the workspace is open.
WorkbenchAction = Callable[[Workbench, ConversationListRow], object]


@dataclass(frozen=True, slots=True)
class DeletionQuestion:
    """A question whether conversations are deleted. Without `ids`, the trash is emptied."""

    bench: Workbench
    title: str
    text: str
    rows: Sequence[ConversationListRow]
    ids: Sequence[str]


class ConversationActions(QObject):
    """Serves the sidebar, its menu and the actions on the shown conversation."""

    def __init__(self, contents: WindowContents) -> None:
        super().__init__(contents.frame)
        self._parts = contents.parts
        self._showing = contents.parts.showing
        self._frame = contents.frame
        self._sides = contents.sides
        self._workspaces = contents.workspaces
        # What the menu of a conversation offers and what can also be done to the shown one.
        self._listed: dict[str, ConversationAction] = {
            "rename": self.ask_and_save_new_title,
            "pin": self.toggle_conversation_pinned,
            "archive": self.toggle_conversation_archived,
            "trash": self.trash_conversation,
            "fork": self.fork_and_open,
            "restore": self.restore_conversation,
        }
        self._listed_of_workbench: dict[str, WorkbenchAction] = {
            "fork-copy": partial(self.fork_and_open, in_copy=True),
            "bring-back": self.ask_how_to_bring_back,
            "export": self._ask_form_and_export,
            "continue-in": self._ask_where_to_continue,
            "delete": self.ask_to_delete,
        }
        for form in SUFFIX_BY_EXPORT_FORM:
            export = partial(self._export, form=form)
            self._listed_of_workbench[f"export-{form}"] = export
        for agent in AGENTS_TO_CONTINUE_IN:
            offer = partial(self._offer_to_continue, agent=agent)
            self._listed_of_workbench[f"continue-{agent}"] = offer
        self._declare_conversation_actions()
        self._connect_sidebar()
        self._sides.call_for_each_side(self._connect_continuing)

    def _declare_conversation_actions(self) -> None:
        set_handler = self._parts.actions.set_action_handler
        showing = self._showing
        for name in self._listed:
            if name != "restore":
                act_on_shown = partial(self._act_on_conversation, name)
                set_handler(name, act_on_shown, when=showing.has_conversation)
        for name in self._listed_of_workbench:
            if name != "delete":
                act_on_shown = partial(self._act_on_conversation, name)
                set_handler(name, act_on_shown, when=showing.has_own_session)
        set_handler("undo", self._parts.notices.run_notice_undo)
        set_handler("previous", partial(self._go_to_neighbour, -1), when=showing.has_workspace)
        set_handler("next", partial(self._go_to_neighbour, 1), when=showing.has_workspace)
        set_handler("next-waiting", self._workspaces.go_to_next_waiting_conversation)
        set_handler("other-side", self._sides.go_to_other_side, when=self._has_two_sides)
        set_handler("close-side", self._close_current_side, when=self._has_two_sides)
        self._parts.actions.explain_condition(
            self._has_two_sides, lambda: tr("No other conversation is open to the side.")
        )
        set_handler("agents", self._open_subagents_dialog, when=showing.has_own_session)

    def _has_two_sides(self) -> bool:
        return len(self._sides.sides) > 1

    def _close_current_side(self) -> None:
        self._sides.close_side(self._sides.current)

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
        bench = self._showing.workspace
        row = self._sides.find_listed_conversation(conversation)
        if bench is not None and row is not None:
            self.run_conversation_action(action, bench, row)

    def run_conversation_action(
        self, action: str, bench: ShownWorkspace, row: ConversationListRow
    ) -> None:
        if action in self._listed:
            self._listed[action](bench, row)
            return
        workbench = workbench_of_shown(bench)
        if workbench is not None:
            self._listed_of_workbench[action](workbench, row)
        else:
            self._notice_only_where_open()

    def _notice_only_where_open(self) -> None:
        self._parts.notices.show_done_elsewhere()

    def _open_subagents_dialog(self) -> None:
        bench = self._showing.bench
        if bench is None or self._showing.session is None:
            return
        from helix_desktop.gui.subagents_dialog import SubagentsDialog

        go_to = partial(self._parts.requests.request_conversation, bench.id)
        SubagentsDialog(bench, self._showing.session.id, go_to, self._parts.widget).show()

    # --- What the conversation is called, and where it stands

    def ask_and_save_new_title(self, bench: ShownWorkspace, row: ConversationListRow) -> None:
        heading = tr("Rename conversation")
        save_title = partial(self._save_title, bench, row)
        ask_text(self._parts.widget, heading, tr("Title"), row.title, save_title)

    def _save_title(self, bench: ShownWorkspace, row: ConversationListRow, title: str) -> None:
        self._open_session_and_change(bench, row, lambda session: session.set_title(title))

    def toggle_conversation_pinned(self, bench: ShownWorkspace, row: ConversationListRow) -> None:
        is_pinned = not row.pinned
        self._open_session_and_change(
            bench, row, lambda session: session.set_pinned(pinned=is_pinned)
        )

    def toggle_conversation_archived(self, bench: ShownWorkspace, row: ConversationListRow) -> None:
        title = row.title or tr("New conversation")
        if row.archived:
            notice = tr("“{title}” was unarchived.").format(title=title)
        else:
            notice = tr("“{title}” was archived.").format(title=title)
        archive = partial(self._set_archived, bench, row)
        undo = partial(archive, archived=row.archived)
        archive(archived=not row.archived, then=partial(self._show_notice_with_undo, notice, undo))

    def _set_archived(
        self,
        bench: ShownWorkspace,
        row: ConversationListRow,
        *,
        archived: bool,
        then: Callable[[], object] = lambda: None,
    ) -> None:
        self._open_session_and_change(
            bench, row, lambda session: session.set_archived(archived=archived), then
        )

    def _show_notice_with_undo(self, text: str, undo: Callable[[], object]) -> None:
        self._parts.notices.show_notice(text, act=undo)

    def trash_conversation(self, bench: ShownWorkspace, row: ConversationListRow) -> None:
        title = row.title or tr("New conversation")
        notice = tr("“{title}” was moved to the trash.", title=title)
        restore = partial(self.restore_conversation, bench, row)
        self._open_session_and_change(
            bench,
            row,
            lambda session: session.set_trashed(),
            then=partial(self._show_notice_with_undo, notice, restore),
        )

    def restore_conversation(self, bench: ShownWorkspace, row: ConversationListRow) -> None:
        self._open_session_and_change(
            bench, row, lambda session: session.set_trashed(trashed=False)
        )

    def _open_session_and_change(
        self,
        bench: ShownWorkspace,
        row: ConversationListRow,
        change: Callable[[ShownSession], Coroutine[Any, Any, None]],
        then: Callable[[], object] = lambda: None,
    ) -> None:
        """Changes a conversation, which may be one that is not open, and lists it anew."""

        async def open_and_change() -> None:
            session = await bench.open_session(row.id)
            await change(session)
            self._sides.refresh_conversations()
            then()

        self._parts.runner.run_in_background(open_and_change())

    # --- Deleting

    def ask_to_empty_trash(self) -> None:
        bench = self._showing.bench
        if bench is None:
            self._notice_only_where_open()
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
            about_files = tr("The agent's own files are kept. If the agent continues this conversation, the recorder saves only what is new.")  # fmt: skip
            text = join_sentences(text, about_files)
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
        deletion = DeletionQuestion(bench, title, text, rows, ids)
        rows_with_copy = [row for row in rows if row.copy]
        if rows_with_copy:
            search = find_copies_of_conversations(bench, rows_with_copy)
            ask = partial(self._ask_to_delete_with_copies, deletion)
            self._parts.runner.run_in_background(search, then=ask)
        else:
            self._ask_to_delete_with_copies(deletion, [])

    def _ask_to_delete_with_copies(
        self, deletion: DeletionQuestion, copies: Sequence[CopyOfConversation]
    ) -> None:
        widget = self._parts.widget
        delete = partial(self._delete_with_copies, deletion)
        keep_copies = partial(delete, [])
        discard_copies = partial(delete, copies)
        if not copies:
            label = tr("Delete permanently")
            ask_to_confirm(widget, deletion.title, deletion.text, label, keep_copies)
            return
        files_not_brought_back: list[str] = []
        for copy in copies:
            files_not_brought_back.extend(copy.files_not_brought_back)
        choices: list[DialogChoice] = []
        if len(deletion.rows) == 1:
            bring_back = partial(self.ask_how_to_bring_back, deletion.bench, deletion.rows[0])
            label_of_bringing_back = tr("Bring back…")
            choices.append(DialogChoice(label_of_bringing_back, bring_back))
        label_of_keeping = tr("Keep the copy")
        choices.append(DialogChoice(label_of_keeping, keep_copies))
        label_of_discarding = tr("Discard the copy")
        choices.append(DialogChoice(label_of_discarding, discard_copies))
        explanation = explain_copies_left(len(copies), files_not_brought_back)
        text = f"{deletion.text}\n\n{explanation}"
        ask_to_choose_one(widget, deletion.title, text, choices)

    def _delete_with_copies(
        self, deletion: DeletionQuestion, copies: Sequence[CopyOfConversation]
    ) -> None:
        work = _discard_copies_and_delete(deletion.bench, copies, deletion.ids)
        self._parts.runner.run_in_background(work, then=self._notice_deleted)

    def _notice_deleted(self, deleted: EmptyTrashResult) -> None:
        self._parts.state_file.forget_deleted_ids(*deleted.conversations)
        self._sides.refresh_conversations()
        count = format_count(
            len(deleted.conversations), "{n} conversation deleted", "{n} conversations deleted"
        )
        size = format_byte_size(deleted.bytes)
        self._parts.notices.show_notice(tr("{what}, {size} freed.", what=count, size=size))

    # --- Forks and copies

    def fork_and_open(
        self,
        bench: ShownWorkspace,
        row: ConversationListRow,
        seq: int = 0,
        *,
        in_copy: bool = False,
        message_to_write_again: tuple[UserPart, ...] = (),
    ) -> None:
        """Forks at the end or at the fact `seq`, and opens the fork. `in_copy`: in a
        copy of the folders. `message_to_write_again`: the user's message at `seq`, which is put
        into the fork's message box: nothing answers it there.
        """
        titles = [listed.title for listed in bench.list_conversations()]
        title = _unique_fork_title(row.title, titles)
        last_seq = seq
        if message_to_write_again:
            last_seq = seq - 1
        forking = bench.fork_conversation(row.id, last_seq, title=title, in_copy=in_copy)
        show_fork = partial(self._show_fork, bench, message_to_write_again)
        self._parts.runner.run_in_background(forking, then=show_fork)

    def _show_fork(
        self, bench: ShownWorkspace, message: tuple[UserPart, ...], session: ShownSession
    ) -> None:
        self._sides.refresh_conversations()
        if message:
            self._sides.give_message_back_and_save((bench.id, session.id), message)
        self._sides.show_session_if_current(bench, session)

    def ask_how_to_bring_back(self, bench: Workbench, row: ConversationListRow) -> None:
        """Offers the ways to merge the copy that a conversation works in."""
        parts = self._parts
        if not row.copy:
            parts.notices.show_notice(
                tr("This conversation does not have its own copy of the repository.")
            )
            return
        CopyBringBack(
            parts.widget, parts.runner, bench, row, self._notice_brought_back
        ).ask_for_way()

    def _notice_brought_back(self, sentences: Sequence[str]) -> None:
        self._sides.refresh_conversations()
        lines = [translate_sentences(sentence) for sentence in sentences]
        self._parts.notices.show_notice("\n".join(lines))

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
    bench: Workbench, copies: Sequence[CopyOfConversation], ids: Sequence[str]
) -> EmptyTrashResult:
    for copy in copies:
        await bench.copies.bring_back(copy.copy, "discard")
    return await bench.empty_conversation_trash(ids)


def _unique_fork_title(title: str, used_titles: Sequence[str]) -> str:
    """Returns a title that distinguishes a fork from its parent and from other forks."""
    if not title:
        return ""
    fork_title = tr("{title} (fork)", title=title)
    number = 2
    while fork_title in used_titles:
        fork_title = tr("{title} (fork {n})", title=title, n=number)
        number += 1
    return fork_title
