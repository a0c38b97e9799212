"""Carries out what the user requested in the chat, the timeline, the inspector or the preview."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import QObject

from helix_desktop.engine.changes.turn_changes import FileChange
from helix_desktop.engine.facts import FoldKind, Text, ToolReturned, UserSaid
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui import attachment_previews, message_sending
from helix_desktop.gui.changes.undo_and_redo import describe_undone_files, redo_undone_changes
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.context_panel_opening import ContextPanelOpener
from helix_desktop.gui.conversation_actions import ConversationActions
from helix_desktop.gui.conversation_sides import ConversationSides
from helix_desktop.gui.deep_links import WindowPlace, open_file_or_its_folder, open_in_browser
from helix_desktop.gui.everything_search import EverythingSearch
from helix_desktop.gui.frame.window_layout import WindowFrame
from helix_desktop.gui.frame.window_pages import WindowPages
from helix_desktop.gui.question_dialogs import ask_to_choose_one
from helix_desktop.gui.timeline.fold_now_dialog import FoldNowDialog
from helix_desktop.gui.transcript import chat_actions
from helix_desktop.gui.transcript.chat_actions import ConversationAct, MessageAct
from helix_desktop.gui.translation import tr
from helix_desktop.gui.window_parts import WindowParts
from helix_desktop.gui.workbench_types import (
    FileChanges,
    FileUndoResult,
    PreviewedFile,
    Session,
    Workbench,
)

FOLD_KIND_BY_ACTION = {
    "fold-observations": FoldKind.OBSERVATIONS,
    "fold-reflection": FoldKind.REFLECTION,
    "fold-handover": FoldKind.HANDOVER,
}


class ChatActionHandler(QObject):
    """Hears the requests of all sides and pages, and does what each asks for."""

    def __init__(
        self,
        parts: WindowParts,
        frame: WindowFrame,
        pages: WindowPages,
        sides: ConversationSides,
        search: EverythingSearch,
        conversations: ConversationActions,
        context_panel: ContextPanelOpener,
    ) -> None:
        super().__init__(frame)
        self._parts = parts
        self._showing = parts.showing
        self._frame = frame
        self._pages = pages
        self._sides = sides
        self._search = search
        self._conversations = conversations
        pages.wanted.connect(self.carry_out_intent)
        pages.page_made.connect(self._connect_changes_or_preview)
        context_panel.intent_wanted.connect(self.carry_out_intent)
        sides.call_for_each_side(self._hear_intents_of)
        for name, kind in FOLD_KIND_BY_ACTION.items():
            fold = partial(self.carry_out_intent, chat_actions.AskToFold(kind))
            parts.actions.set_action_handler(name, fold, when=parts.showing.has_conversation)
        for name in ("push", "pull-request"):
            go_on = partial(self._go_on_after_commit, name)
            parts.actions.set_action_handler(name, go_on, when=parts.showing.has_workspace)

    def _go_on_after_commit(self, action: str) -> None:
        from helix_desktop.gui.changes.after_commit_bar import AfterCommitWish

        wish = AfterCommitWish.PULL_REQUEST
        if action == "push":
            wish = AfterCommitWish.PUSH
        self._frame.switch_to_page("changes")
        self._pages.changes.carry_out_after_commit(wish)

    def _hear_intents_of(self, side: ChatPage) -> None:
        self._sides.connect_side(side, side.intent_requested, self.carry_out_intent)

    def _connect_changes_or_preview(self, name: str, page: Any) -> None:
        if name == "changes":
            page.notice_wanted.connect(
                lambda words, button: self._parts.notices.show_notice(words, **button)
            )
            page.agent_message_written.connect(self._send_comment_to_agent)
        elif name == "preview":
            page.closed.connect(self._frame.hide_preview)
            page.comment_written.connect(self._put_comment_into_message)
            page.changes_wanted.connect(self.show_file_in_changes)
            page.open_wanted.connect(open_file_or_its_folder)
            self._showing.workspace_changed.connect(page.close_preview)

    def _send_comment_to_agent(self, text: str) -> None:
        """Sends a comment on a change, at once or after the agent's current step."""
        if self._showing.session is not None:
            self._showing.session.send_message((Text(text),), steer=True)
            self._parts.notices.show_notice(tr("Sent to the agent."))

    def _put_comment_into_message(self, words: str) -> None:
        self._sides.current.composer.put_message_back((Text(words),))

    def carry_out_intent(self, want: chat_actions.ChatIntent) -> None:
        workspace = self._showing.workspace_id
        conversation = self._showing.conversation_id
        go_to_place = self._parts.requests.place_wanted.emit
        match want:
            case chat_actions.RecallEntry(digest, lines):
                self._search.recall_into_draft(digest, lines)
            case chat_actions.OpenEntry(digest):
                go_to_place(WindowPlace("entry", workspace, digest=digest))
            case chat_actions.OpenFile():
                self._open_file_in_preview(want)
            case chat_actions.OpenFold(fold):
                go_to_place(WindowPlace("fold", workspace, conversation, fold=fold))
            case chat_actions.OpenChanges(seq, path):
                self._frame.switch_to_page("changes")
                self._pages.changes.show_turn_of_fact(seq, path)
            case chat_actions.OpenConversation(other):
                go_to_place(WindowPlace("conversation", workspace, other))
            case chat_actions.OpenSubAgent(call):
                self._open_subagent_of_call(call)
            case chat_actions.ShowInChat(other, seq):
                go_to_place(WindowPlace("conversation", workspace, other, seq))
            case _:
                self._carry_out_window_intent(want)

    def _carry_out_window_intent(self, want: chat_actions.ChatIntent) -> None:
        match want:
            case chat_actions.OpenLink(address):
                open_in_browser(address)
            case chat_actions.OpenPicture(stored, name):
                attachment_previews.open_picture_dialog(self._parts, stored, name)
            case ConversationAct.OPEN_KEY_SETTINGS:
                self._parts.requests.settings_wanted.emit("providers")
            case ConversationAct.SET_MODEL_PRICE:
                self._parts.actions["model-price"].trigger()
            case ConversationAct.OPEN_MODEL_CHOOSER:
                self._parts.actions["model"].trigger()
            case _:
                self._carry_out_conversation_intent(want)

    def _carry_out_conversation_intent(self, want: chat_actions.ChatIntent) -> None:
        session = self._showing.session
        if session is None:
            return
        match want:
            case chat_actions.ActOnMessage(act, seq):
                self._act_on_message(session, act, seq)
            case chat_actions.PinPart(ref, True):
                self._parts.run_for_window(session.context.pin_part(ref))
            case chat_actions.PinPart(ref, False):
                self._parts.run_for_window(session.context.unpin_part(ref))
            case chat_actions.AskToFold(kind):
                FoldNowDialog(session, self._parts.runner, self._parts.widget, kind).open()
            case ConversationAct.CONTINUE_TURN:
                self._parts.requests.retry_wanted.emit()
                session.resume_turn()
            case ConversationAct.RETRY_MODEL_NOW:
                session.turns.retry_immediately()

    def _act_on_message(self, session: Session, act: MessageAct, seq: int) -> None:
        match act:
            case MessageAct.EDIT:
                fact = session.conversation.state.facts[seq - 1].fact
                if isinstance(fact, UserSaid):
                    self._sides.current.composer.edit_earlier_message(seq, fact.parts)
            case MessageAct.REGENERATE:
                jump = self._sides.jump_to_end_of
                self._parts.run_for_window(session.ask_again(seq), then=lambda _done: jump(session))
            case MessageAct.CHOOSE:
                self._parts.run_for_window(session.switch_to_answer(seq))
            case MessageAct.SHOW_REQUEST:
                self._pages.inspector.show_request_of_reply(seq)
            case MessageAct.REWIND:
                if self._showing.bench is not None:
                    RewindQuestion(self._parts, self._showing.bench, session, seq).ask_to_rewind()
            case MessageAct.FORK:
                row = self._sides.find_listed_conversation()
                if self._showing.bench is not None and row is not None:
                    self._conversations.fork_and_open(self._showing.bench, row, seq)

    # --- Files and sub-agents

    def _open_file_in_preview(self, want: chat_actions.OpenFile) -> None:
        """Shows a file that a text names, at its line. A file that is not there is said."""
        bench = self._showing.bench
        if bench is None:
            return

        def show_if_still_open(file: PreviewedFile) -> None:
            if self._showing.bench is not bench:
                return
            self._frame.switch_to_page("chat")
            preview = self._pages.preview
            preview.show_file(bench, file, want.first_line, want.last_line)
            self._frame.show_preview(preview)

        work = bench.read_file_for_preview(self._showing.conversation_id, want.path)
        self._parts.run_for_window(work, then=show_if_still_open)

    def show_file_in_changes(self, shown_path: str) -> None:
        """Shows the newest change of a file by this conversation."""
        session = self._showing.session
        if session is not None:
            for recorded in reversed(session.conversation.state.facts):
                if not isinstance(recorded.fact, ToolReturned):
                    continue
                for change in recorded.fact.changes:
                    if change.path == shown_path or change.path.endswith(f"/{shown_path}"):
                        self.carry_out_intent(chat_actions.OpenChanges(recorded.seq, change.path))
                        return
        self._parts.notices.show_notice(tr("This conversation has not changed this file."))

    def _open_subagent_of_call(self, call: str) -> None:
        """Opens the newest sub-agent this call started. Some models reuse call ids in every
        reply.
        """
        bench = self._showing.bench
        session = self._showing.session
        if session is None or bench is None:
            return
        started = [
            row
            for row in self._sides.list_rows()
            if row.parent == session.id and row.parent_call == call
        ]
        if not started:
            self._parts.notices.show_notice(tr("The sub-agent hasn't started yet."))
            return
        newest = max(started, key=lambda row: row.updated)
        self._parts.requests.request_conversation(bench.id, newest.id)


@dataclass(frozen=True, eq=False)
class RewindQuestion:
    """Asks whether to rewind to the fact `seq`, and rewinds the conversation that the question
    was about, even if another one is shown by then.
    """

    parts: WindowParts
    bench: Workbench
    session: Session
    seq: int

    @property
    def _changes(self) -> FileChanges:
        return self.bench.file_changes_of(self.session.id)

    def ask_to_rewind(self) -> None:
        self.parts.run_for_window(
            message_sending.find_files_to_undo(self._changes, self.session.id, self.seq),
            then=lambda changed: self._ask_which_way(*changed),
            failed=lambda _error: self._ask_which_way((), ""),
        )

    def _ask_which_way(self, files: Sequence[FileChange], description: str) -> None:
        text = tr("Rewind to this point? Later messages are kept, and you can return to them.")
        ways = [(tr("Rewind"), lambda: self._rewind_session(()))]
        if description:
            text = f"{text}\n\n{description}"
            ways.append((tr("Rewind and undo these changes"), lambda: self._rewind_session(files)))
        elif self._changes.checkpoint_progress.state == "off":
            text = f"{text}\n\n{tr('Checkpoints are turned off, so files stay as they are.')}"
        ask_to_choose_one(self.parts.widget, tr("Rewind"), text, "", ways)

    def _rewind_session(self, files: Sequence[FileChange]) -> None:
        newest = self.session.conversation.state.seq

        def show_rewound(undone: FileUndoResult | None) -> None:
            words = tr("Conversation rewound.")
            if undone is not None:
                words = f"{words}\n{describe_undone_files(undone)}"
            self.parts.notices.show_notice(
                words, act=lambda: self.parts.run_for_window(self._return_to(newest, undone))
            )

        self.parts.run_for_window(self._undo_and_rewind(files), then=show_rewound)

    async def _undo_and_rewind(self, files: Sequence[FileChange]) -> FileUndoResult | None:
        self.session.refuse_while_running("rewind")
        undone = None
        if files:
            undone = await self._changes.undo_file_changes(files, conversation=self.session.id)
        await self.session.rewind_to(self.seq)
        return undone

    async def _return_to(self, newest: int, undone: FileUndoResult | None) -> None:
        await self.session.switch_to_answer(newest)
        if undone is not None and undone.fact is not None:
            await redo_undone_changes(self._changes, undone.fact, self.session.id)
