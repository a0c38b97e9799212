"""Carries out what the user requested in the chat, the timeline, the inspector or the preview."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import QObject
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.changes.turn_changes import FileChange
from helix_desktop.engine.facts import (
    Attachment,
    Fact,
    FoldKind,
    ModelReplied,
    Recorded,
    Text,
    ToolReturned,
    UserPart,
    UserSaid,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui import attachment_previews, message_sending
from helix_desktop.gui.changes.undo_and_redo import (
    describe_undone_elsewhere,
    describe_undone_files,
    redo_undone_changes,
)
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.common.escape_key import EscapeCloser
from helix_desktop.gui.common.figure_formats import format_time_ago
from helix_desktop.gui.context_panel_opening import ContextPanelOpener
from helix_desktop.gui.conversation_actions import ConversationActions
from helix_desktop.gui.conversation_sides import ConversationSides
from helix_desktop.gui.deep_links import WindowPlace, open_file_or_its_folder, open_in_browser
from helix_desktop.gui.everything_search import EverythingSearch
from helix_desktop.gui.frame.command_palette import PaletteItem
from helix_desktop.gui.message_sending import FilesToUndo
from helix_desktop.gui.question_dialogs import DialogChoice, ask_to_choose_one
from helix_desktop.gui.shown_workspace import ShownSession, ShownWorkspace, client_of_host
from helix_desktop.gui.timeline.fold_now_dialog import FoldNowDialog
from helix_desktop.gui.transcript import chat_actions
from helix_desktop.gui.transcript.chat_actions import ActOnMessage, ConversationAct, MessageAct
from helix_desktop.gui.translation import tr
from helix_desktop.gui.window_contents import WindowContents
from helix_desktop.gui.window_parts import WindowParts
from helix_desktop.gui.workbench_types import FileUndoResult, PreviewedFile

LONGEST_ROW = 200  # Characters of a message in the list of messages to rewind to.
FOLD_KIND_BY_ACTION = {
    "fold-observations": FoldKind.OBSERVATIONS,
    "fold-reflection": FoldKind.REFLECTION,
    "fold-handover": FoldKind.HANDOVER,
}


class ChatActionHandler(QObject):
    """Hears the requests of all sides and pages, and does what each asks for."""

    def __init__(
        self,
        contents: WindowContents,
        search: EverythingSearch,
        conversations: ConversationActions,
        context_panel: ContextPanelOpener,
    ) -> None:
        super().__init__(contents.frame)
        parts = contents.parts
        self._parts = parts
        self._showing = parts.showing
        self._frame = contents.frame
        self._pages = contents.pages
        self._sides = contents.sides
        self._search = search
        self._conversations = conversations
        # By conversation: what takes a message out of the box that a rewind has put there.
        self._messages_given_back: dict[str, Callable[[], None]] = {}
        self._pages.wanted.connect(self.carry_out_intent)
        self._pages.page_made.connect(self._connect_changes_or_preview)
        context_panel.intent_wanted.connect(self.carry_out_intent)
        parts.requests.file_wanted.connect(self._show_file_of_workspace)
        self._sides.call_for_each_side(self._hear_intents_of)
        for name, kind in FOLD_KIND_BY_ACTION.items():
            fold = partial(self.carry_out_intent, chat_actions.AskToFold(kind))
            parts.actions.set_action_handler(name, fold, when=parts.showing.sends_its_requests)
        has_conversation = parts.showing.has_conversation
        parts.actions.set_action_handler(
            "copy-answer", self._copy_last_answer, when=has_conversation
        )
        parts.actions.set_action_handler(
            "return", self._return_before_last_rewind, when=has_conversation
        )
        parts.actions.set_action_handler(
            "rewind", self._ask_for_message_to_rewind_to, when=has_conversation
        )
        has_workbench = parts.showing.has_workbench
        parts.actions.set_action_handler("push", self._push_branch_on_page, when=has_workbench)
        parts.actions.set_action_handler(
            "pull-request", self._open_pull_request_on_page, when=has_workbench
        )

    def _copy_last_answer(self) -> None:
        """Copies the text of the newest answer as Markdown, without reasoning and calls."""
        session = self._showing.conversation
        if session is None:
            return
        for recorded in reversed(session.conversation.state.facts_on_path()):
            text = _text_of_answer(recorded.fact)
            if text:
                QGuiApplication.clipboard().setText(text)
                self._parts.notices.show_notice(tr("The last answer was copied."))
                return
        self._parts.notices.show_notice(tr("This conversation has no answer yet."))

    def _push_branch_on_page(self) -> None:
        # Few conversations need this module, so the start does not wait for it.
        from helix_desktop.gui.changes.after_commit_bar import AfterCommitWish

        self._frame.switch_to_page("changes")
        self._pages.changes.carry_out_after_commit(AfterCommitWish.PUSH)

    def _open_pull_request_on_page(self) -> None:
        from helix_desktop.gui.changes.after_commit_bar import AfterCommitWish

        self._frame.switch_to_page("changes")
        self._pages.changes.carry_out_after_commit(AfterCommitWish.PULL_REQUEST)

    def _show_file_of_workspace(self, path: str) -> None:
        self._open_file_in_preview(chat_actions.OpenFile(path))

    def _hear_intents_of(self, side: ChatPage) -> None:
        self._sides.connect_side(side, side.intent_requested, self.carry_out_intent)

    def _connect_changes_or_preview(self, name: str, page: Any) -> None:
        if name == "changes":
            page.notice_wanted.connect(self._show_notice_of_changes_page)
            page.agent_message_written.connect(self._send_comment_to_agent)
        elif name == "preview":
            page.closed.connect(self._frame.hide_preview)
            page.comment_written.connect(self._put_comment_into_message)
            page.changes_wanted.connect(self.show_file_in_changes)
            page.entry_wanted.connect(self._show_entry_in_cache)
            page.has_changed = self._has_conversation_changed
            page.open_wanted.connect(open_file_or_its_folder)
            self._showing.workspace_changed.connect(page.close_preview)
            # On the frame, so that Escape in the message box closes the preview, too.
            EscapeCloser(self._frame, self._does_escape_close_preview, page.close_preview)

    def _does_escape_close_preview(self) -> bool:
        """Where the conversation has the focus, a running agent is stopped first."""
        if not self._frame.is_preview_shown:
            return False
        if not self._parts.actions["stop"].isEnabled():
            return True
        focused = QApplication.focusWidget()
        return focused is None or not self._sides.current.isAncestorOf(focused)

    def _show_notice_of_changes_page(self, text: str, button: Mapping[str, Any]) -> None:
        self._parts.notices.show_notice(text, **button)

    def _send_comment_to_agent(self, text: str) -> None:
        """Sends a comment on a change, at once or after the agent's current step."""
        if self._showing.conversation is not None:
            self._showing.conversation.send_message((Text(text),), steer=True)
            self._parts.notices.show_notice(tr("Sent to the agent."))

    def _put_comment_into_message(self, comment: str) -> None:
        self._sides.current.composer.put_message_back((Text(comment),))

    def carry_out_intent(self, intent: chat_actions.ChatIntent) -> None:
        workspace = self._showing.workspace_id
        conversation = self._showing.conversation_id
        go_to_place = self._parts.requests.place_wanted.emit
        match intent:
            case chat_actions.RecallEntry(digest, lines):
                self._search.recall_into_draft(digest, lines)
            case chat_actions.OpenEntry(digest):
                go_to_place(WindowPlace("entry", workspace, digest=digest))
            case chat_actions.OpenFile():
                self._open_file_in_preview(intent)
            case chat_actions.OpenFold(fold):
                go_to_place(WindowPlace("fold", workspace, conversation, fold=fold))
            case chat_actions.OpenChanges(seq, path):
                self._frame.switch_to_page("changes")
                if self._showing.has_workbench():
                    self._pages.changes.show_turn_of_fact(seq, path)
            case chat_actions.OpenConversation(other):
                go_to_place(WindowPlace("conversation", workspace, other))
            case chat_actions.OpenSubAgent(call):
                self._open_subagent_of_call(call)
            case chat_actions.ShowInChat(other, seq):
                go_to_place(WindowPlace("conversation", workspace, other, seq))
            case _:
                self._carry_out_window_intent(intent)

    def _carry_out_window_intent(self, intent: chat_actions.ChatIntent) -> None:
        match intent:
            case chat_actions.OpenLink(address):
                open_in_browser(address)
            case chat_actions.OpenAttachment(attachment):
                self._open_attachment_in_preview(attachment)
            case chat_actions.OpenPicture(stored, name):
                attachment_previews.open_picture_dialog(self._parts, stored, name)
            case ConversationAct.OPEN_KEY_SETTINGS:
                self._parts.requests.settings_wanted.emit("providers")
            case ConversationAct.SET_MODEL_PRICE:
                self._parts.actions["model-price"].trigger()
            case ConversationAct.OPEN_MODEL_CHOOSER:
                self._parts.actions["model"].trigger()
            case _:
                self._carry_out_conversation_intent(intent)

    def _carry_out_conversation_intent(self, intent: chat_actions.ChatIntent) -> None:
        session = self._showing.conversation
        if session is None:
            return
        match intent:
            case chat_actions.ActOnMessage(act, seq):
                self._act_on_message(session, act, seq)
            case chat_actions.PinPart(ref, True):
                self._parts.run_for_window(session.context.pin_part(ref))
            case chat_actions.PinPart(ref, False):
                self._parts.run_for_window(session.context.unpin_part(ref))
            case chat_actions.AskToFold(kind):
                can_forecast = self._showing.session is not None
                dialog = FoldNowDialog(
                    session,
                    self._parts.runner,
                    self._parts.widget,
                    kind,
                    can_forecast=can_forecast,
                )
                dialog.open()
            case ConversationAct.CONTINUE_TURN:
                self._parts.requests.retry_wanted.emit()
                session.resume_turn()
            case ConversationAct.RETRY_MODEL_NOW:
                session.turns.retry_immediately()
            case ConversationAct.STOP_FOLD:
                session.folding.cancel_fold_in_work()

    def _act_on_message(self, session: ShownSession, act: MessageAct, seq: int) -> None:
        match act:
            case MessageAct.EDIT:
                self._edit_earlier_user_message(session, seq)
            case MessageAct.REGENERATE:
                self._parts.run_for_window(self._regenerate_answer(session, seq))
            case MessageAct.CHOOSE:
                self._parts.run_for_window(session.switch_to_answer(seq))
            case MessageAct.SHOW_REQUEST:
                self._pages.inspector.show_request_of_reply(seq)
            case MessageAct.RETURN:
                self._parts.run_for_window(self._return_to_left_messages(session, seq))
            case MessageAct.REWIND:
                self._ask_to_rewind(session, seq)
            case MessageAct.FORK:
                self._fork_at_message(session, seq)

    async def _return_to_left_messages(self, session: ShownSession, seq: int) -> None:
        """Goes on from messages that a rewind left, of which the fact `seq` is the last."""
        session.refuse_while_running("rewind")
        newest_seq = session.conversation.state.seq
        await session.rewind_to(seq)
        take_out_again = self._messages_given_back.pop(session.id, _do_nothing)
        take_out_again()
        undo_return = partial(self._start_rewind, session, newest_seq)
        self._parts.notices.show_notice(
            tr("These messages are part of the conversation again. Files stay as they are."),
            act=undo_return,
        )

    def _start_rewind(self, session: ShownSession, seq: int) -> None:
        self._parts.run_for_window(session.rewind_to(seq))

    def _return_before_last_rewind(self) -> None:
        session = self._showing.conversation
        if session is None:
            return
        last_left = session.conversation.state.last_seq_left_by_rewind()
        if last_left:
            self._parts.run_for_window(self._return_to_left_messages(session, last_left))
        else:
            self._parts.notices.show_notice(
                tr(
                    "Nothing was rewound here. To go back, search for “Rewind to an earlier message…”."
                )
            )

    def _ask_for_message_to_rewind_to(self) -> None:
        """Lists the user's own messages, the newest first. Choosing one asks as its menu does."""
        session = self._showing.conversation
        if session is None:
            return
        items: list[PaletteItem] = []
        for recorded in reversed(session.conversation.state.facts_on_path()):
            message = _own_message_at(session, recorded.seq)
            if not message:
                continue
            act = ActOnMessage(MessageAct.REWIND, recorded.seq)
            first_words = " ".join(_text_of_parts(message).split())[:LONGEST_ROW]
            item = PaletteItem(
                first_words or tr("Message without text"),
                partial(self.carry_out_intent, act),
                kind="message",
                note=format_time_ago(recorded.time, time.time()),
            )
            items.append(item)
        hint = tr("Rewind to which message?")
        if not items:
            hint = tr("You have not sent a message in this conversation yet.")
        self._search.ask_for_one_of(items, hint)

    def _edit_earlier_user_message(self, session: ShownSession, seq: int) -> None:
        """Puts an earlier message of the user's into the message box, to be sent anew."""
        fact = session.conversation.state.facts[seq - 1].fact
        if isinstance(fact, UserSaid):
            self._sides.current.composer.edit_earlier_message(seq, fact.parts)

    def _ask_to_rewind(self, session: ShownSession, seq: int) -> None:
        workspace = self._showing.workspace
        if workspace is not None:
            question = RewindQuestion(
                self._parts, self._sides, workspace, session, seq, self._messages_given_back
            )
            question.ask_to_rewind()

    def _fork_at_message(self, session: ShownSession, seq: int) -> None:
        """Opens a new conversation that has the messages up to this one."""
        workspace = self._showing.workspace
        row = self._sides.find_listed_conversation()
        if workspace is not None and row is not None:
            message = _own_message_at(session, seq)
            self._conversations.fork_and_open(workspace, row, seq, message_to_write_again=message)

    async def _regenerate_answer(self, session: ShownSession, seq: int) -> None:
        await session.ask_again(seq)
        self._sides.jump_to_end_of(session)

    # --- Files and sub-agents

    def _open_file_in_preview(self, intent: chat_actions.OpenFile) -> None:
        """Shows a file that a text names, at its line. A file that is not there is said."""
        workspace = self._showing.workspace
        if workspace is None:
            return
        conversation = self._showing.conversation_id
        reading = workspace.read_file_for_preview(conversation, intent.path)
        show = partial(self._show_preview_if_still_open, workspace, conversation, intent)
        self._parts.run_for_window(reading, then=show)

    def _open_attachment_in_preview(self, attachment: Attachment) -> None:
        workspace = self._showing.workspace
        if workspace is None:
            return
        conversation = self._showing.conversation_id
        intent = chat_actions.OpenFile(attachment.name)
        show = partial(self._show_preview_if_still_open, workspace, conversation, intent)
        self._parts.run_for_window(workspace.read_attachment_for_preview(attachment), then=show)

    def _show_entry_in_cache(self, digest: Digest) -> None:
        self.carry_out_intent(chat_actions.OpenEntry(digest))

    def _show_preview_if_still_open(
        self,
        workspace: ShownWorkspace,
        conversation: str,
        intent: chat_actions.OpenFile,
        file: PreviewedFile,
    ) -> None:
        if self._showing.workspace is not workspace:
            return
        self._frame.switch_to_page("chat")
        preview = self._pages.preview
        preview.show_file(
            workspace, file, intent.first_line, intent.last_line, conversation=conversation
        )
        self._frame.show_preview(preview)

    def show_file_in_changes(self, shown_path: str) -> None:
        """Shows the newest change of a file by this conversation."""
        newest_change = self._find_newest_change_here(shown_path)
        if newest_change is None:
            self._parts.notices.show_notice(tr("This conversation has not changed this file."))
        else:
            self.carry_out_intent(newest_change)

    def _has_conversation_changed(self, shown_path: str) -> bool:
        return self._find_newest_change_here(shown_path) is not None

    def _find_newest_change_here(self, shown_path: str) -> chat_actions.OpenChanges | None:
        session = self._showing.conversation
        if session is None:
            return None
        return _find_newest_change(session.conversation.state.facts, shown_path)

    def _open_subagent_of_call(self, call: str) -> None:
        """Opens the newest sub-agent this call started. Some models reuse call ids in every
        reply.
        """
        bench = self._showing.workspace
        session = self._showing.conversation
        if session is None or bench is None:
            return
        newest_row = None
        for row in self._sides.list_rows():
            if row.parent != session.id or row.parent_call != call:
                continue
            if newest_row is None or row.updated > newest_row.updated:
                newest_row = row
        if newest_row is None:
            self._parts.notices.show_notice(tr("The sub-agent hasn't started yet."))
        else:
            self._parts.requests.request_conversation(bench.id, newest_row.id)


def _find_newest_change(
    facts: Sequence[Recorded], shown_path: str
) -> chat_actions.OpenChanges | None:
    """Finds the newest change of a file, which may be named by the end of its path alone."""
    for recorded in reversed(facts):
        if not isinstance(recorded.fact, ToolReturned):
            continue
        for change in recorded.fact.changes:
            if change.path == shown_path or change.path.endswith(f"/{shown_path}"):
                return chat_actions.OpenChanges(recorded.seq, change.path)
    return None


@dataclass(frozen=True, eq=False)
class RewindQuestion:
    """Asks whether to rewind to the fact `seq`, and rewinds the conversation that the question
    was about, even if another one is shown by then.

    A message of the user is rewound, too, and goes back into the message box: with nothing below
    it, it would wait in the conversation and be sent again, together with the next one.
    `messages_given_back`: by conversation, what takes such a message out of its box again.
    """

    parts: WindowParts
    sides: ConversationSides
    bench: ShownWorkspace
    session: ShownSession
    seq: int
    messages_given_back: dict[str, Callable[[], None]]

    def ask_to_rewind(self) -> None:
        self.parts.run_for_window(
            message_sending.find_files_to_undo(self.bench, self.session.id, self.seq),
            then=self._ask_which_way,
            failed=self._ask_without_files,
        )

    def _ask_without_files(self, _error: HelixError) -> None:
        """The conversation can be rewound, even if nothing is known about the files."""
        self._ask_which_way(FilesToUndo())

    def _ask_which_way(self, changed: FilesToUndo) -> None:
        if _own_message_at(self.session, self.seq):
            text = tr(
                "Rewind to this message? It goes back into the message box. It is also kept here with what followed, and you can return to it."
            )
        else:
            text = tr("Rewind to this point? Later messages are kept, and you can return to them.")
        choices = [DialogChoice(tr("Rewind"), partial(self._rewind_session, None))]
        if changed.description:
            text = f"{text}\n\n{changed.description}"
            rewind_and_undo = partial(self._rewind_session, changed)
            choices.append(DialogChoice(tr("Rewind and undo these changes"), rewind_and_undo))
        elif message_sending.are_checkpoints_off(self.bench, self.session.id):
            text = f"{text}\n\n{tr('Checkpoints are turned off, so files stay as they are.')}"
        # Later messages and files stay, and the notice behind it takes it back.
        ask_to_choose_one(self.parts.widget, tr("Rewind"), text, choices, is_first_usual=True)

    def _rewind_session(self, changed: FilesToUndo | None) -> None:
        self.parts.run_for_window(self._undo_and_rewind(changed))

    async def _undo_and_rewind(self, changed: FilesToUndo | None) -> None:
        """Rewinds, and undoes the files that have changed, if the user wants that."""
        self.session.refuse_while_running("rewind")
        newest_seq = self.session.conversation.state.seq
        lines = [tr("Conversation rewound.")]
        undone = None
        client = client_of_host(self.bench)
        if changed is not None and client is not None:
            undone_there = await client.undo_changes_after(self.session.id, self.seq)
            lines.append(describe_undone_elsewhere(undone_there.paths, undone_there.left_alone))
        elif changed is not None:
            undone = await self._undo_here(changed.changes)
        take_out_again = await self._rewind_and_give_message_back()
        if undone is not None:
            lines.append(describe_undone_files(undone))
        undo_rewinding = partial(self._start_return_to, newest_seq, undone, take_out_again)
        self.parts.notices.show_notice("\n".join(lines), act=undo_rewinding)
        # The line with the way back stands last, where the notice would cover it.
        side = self.sides.find_side(self.session.id)
        if side is not None:
            side.fit_room_to_notice()

    async def _rewind_and_give_message_back(self) -> Callable[[], None]:
        """Rewinds, and returns what takes the message out of its box again."""
        message = _own_message_at(self.session, self.seq)
        if not message:
            await self.session.rewind_to(self.seq)
            return _do_nothing
        place = (self.bench.id, self.session.id)
        # Before the rewind, so that the message is in one of both if the program is killed.
        take_out_again = self.sides.give_message_back_and_save(place, message)
        self.messages_given_back[self.session.id] = take_out_again
        try:
            await self.session.rewind_to(self.seq - 1)
        except HelixError:
            take_out_again()
            raise
        return take_out_again

    async def _undo_here(self, files: Sequence[FileChange]) -> FileUndoResult | None:
        changes = message_sending.file_changes_of_shown(self.bench, self.session.id)
        if changes is None or not files:
            return None
        return await changes.undo_file_changes(files, conversation=self.session.id)

    def _start_return_to(
        self, newest_seq: int, undone: FileUndoResult | None, take_out_again: Callable[[], None]
    ) -> None:
        self.parts.run_for_window(self._return_to(newest_seq, undone, take_out_again))

    async def _return_to(
        self, newest_seq: int, undone: FileUndoResult | None, take_out_again: Callable[[], None]
    ) -> None:
        await self.session.switch_to_answer(newest_seq)
        take_out_again()
        changes = message_sending.file_changes_of_shown(self.bench, self.session.id)
        if changes is not None and undone is not None and undone.fact is not None:
            await redo_undone_changes(changes, undone.fact, self.session.id)


def _own_message_at(session: ShownSession, seq: int) -> tuple[UserPart, ...]:
    """Returns the message of the user at `seq`, or nothing if another fact stands there."""
    fact = session.conversation.state.facts[seq - 1].fact
    if not isinstance(fact, UserSaid) or fact.by:
        return ()
    return fact.parts


def _do_nothing() -> None:
    pass


def _text_of_answer(fact: Fact) -> str:
    if not isinstance(fact, ModelReplied):
        return ""
    return _text_of_parts(fact.parts)


def _text_of_parts(parts: Sequence[object]) -> str:
    texts = [part.text for part in parts if isinstance(part, Text)]
    return "\n\n".join(texts)
