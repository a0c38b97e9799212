"""Carries out what the user requested in the chat, the timeline or the inspector."""

from collections.abc import Sequence

from helix_desktop.engine.changes.turn_changes import FileChange
from helix_desktop.engine.facts import ToolReturned, UserSaid
from helix_desktop.gui import attachment_previews, message_sending
from helix_desktop.gui.changes.undo_and_redo import describe_undone_files, redo_undone_changes
from helix_desktop.gui.deep_links import WindowPlace, open_in_browser
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.question_dialogs import ask_to_choose_one
from helix_desktop.gui.timeline.fold_now_dialog import FoldNowDialog
from helix_desktop.gui.transcript import chat_actions
from helix_desktop.gui.transcript.chat_actions import ConversationAct, MessageAct
from helix_desktop.gui.translation import tr
from helix_desktop.gui.workbench_types import FileUndoResult, PreviewedFile, Session


def carry_out_intent(window: MainWindow, want: chat_actions.ChatIntent) -> None:
    bench, session = window.current_workbench, window.current_session
    workspace = bench.id if bench else ""
    match want:
        case chat_actions.RecallEntry(digest, lines):
            message_sending.recall_into_draft(window, digest, lines)
        case chat_actions.OpenEntry(digest):
            window.go_to_place(WindowPlace("entry", workspace, digest=digest))
        case chat_actions.OpenFile():
            _open_file_in_preview(window, want)
        case chat_actions.OpenFold(fold):
            window.go_to_place(
                WindowPlace("fold", workspace, session.id if session else "", fold=fold)
            )
        case chat_actions.OpenChanges(seq, path):
            window.switch_to_page("changes")
            window.pages.changes.show_turn_of_fact(seq, path)
        case chat_actions.OpenConversation(conversation):
            window.go_to_place(WindowPlace("conversation", workspace, conversation))
        case chat_actions.OpenSubAgent(call):
            _open_subagent_of_call(window, call)
        case chat_actions.ShowInChat(conversation, seq):
            window.go_to_place(WindowPlace("conversation", workspace, conversation, seq))
        case _:
            _carry_out_window_intent(window, want)


def _carry_out_window_intent(window: MainWindow, want: chat_actions.ChatIntent) -> None:
    match want:
        case chat_actions.OpenLink(address):
            open_in_browser(address)
        case chat_actions.OpenPicture(stored, name):
            attachment_previews.open_picture_dialog(window, stored, name)
        case ConversationAct.OPEN_KEY_SETTINGS:
            window.settings_wanted.emit("providers")
        case ConversationAct.SET_MODEL_PRICE:
            window.window_actions["model-price"].trigger()
        case ConversationAct.OPEN_MODEL_CHOOSER:
            window.window_actions["model"].trigger()
        case _:
            _carry_out_conversation_intent(window, want)


def _open_file_in_preview(window: MainWindow, want: chat_actions.OpenFile) -> None:
    """Shows a file that a text names, at its line. A file that is not there is said."""
    bench, session = window.current_workbench, window.current_session
    if bench is None:
        return

    def show_if_still_open(file: PreviewedFile) -> None:
        if window.current_workbench is not bench:
            return
        window.switch_to_page("chat")
        window.pages.preview.show_file(bench, file, want.first_line, want.last_line)
        window.show_preview(window.pages.preview)

    work = bench.read_file_for_preview(session.id if session is not None else "", want.path)
    window.run_for_window(work, then=show_if_still_open)


def show_file_in_changes(window: MainWindow, shown_path: str) -> None:
    """Shows the newest change of a file by this conversation."""
    session = window.current_session
    for recorded in reversed(session.conversation.state.facts if session is not None else ()):
        if not isinstance(recorded.fact, ToolReturned):
            continue
        for change in recorded.fact.changes:
            if change.path == shown_path or change.path.endswith(f"/{shown_path}"):
                carry_out_intent(window, chat_actions.OpenChanges(recorded.seq, change.path))
                return
    window.notices.show_notice(tr("This conversation has not changed this file."))


def _open_subagent_of_call(window: MainWindow, call: str) -> None:
    """Opens the newest sub-agent this call started. Some models reuse call ids in every reply."""
    session, bench = window.current_session, window.current_workbench
    if session is None or bench is None:
        return
    begun = [
        row
        for row in window.workspace_conversation_rows()
        if (row.parent, row.parent_call) == (session.id, call)
    ]
    if begun:
        window.go_to_place(
            WindowPlace("conversation", bench.id, max(begun, key=lambda row: row.updated).id)
        )
    else:
        window.notices.show_notice(tr("The sub-agent hasn't started yet."))


def _carry_out_conversation_intent(window: MainWindow, want: chat_actions.ChatIntent) -> None:
    session, run = window.current_session, window.run_for_window
    if session is None:
        return
    match want:
        case chat_actions.ActOnMessage(act, seq):
            _act_on_message(window, session, act, seq)
        case chat_actions.PinPart(ref, is_pinned):
            run(session.context.pin_part(ref) if is_pinned else session.context.unpin_part(ref))
        case chat_actions.AskToFold(kind):
            FoldNowDialog(session, window.background_runner, window, kind).open()
        case ConversationAct.CONTINUE_TURN:
            window.retry_wanted.emit()
            session.resume_turn()
        case ConversationAct.RETRY_MODEL_NOW:
            session.turns.retry_immediately()


def _act_on_message(window: MainWindow, session: Session, act: MessageAct, seq: int) -> None:
    match act:
        case MessageAct.EDIT:
            fact = session.conversation.state.facts[seq - 1].fact
            if isinstance(fact, UserSaid):
                window.chat.composer.edit_earlier_message(seq, fact.parts)
        case MessageAct.REGENERATE:
            window.run_for_window(
                session.ask_again(seq), then=lambda _done: window.jump_to_end_of(session)
            )
        case MessageAct.CHOOSE:
            window.run_for_window(session.switch_to_answer(seq))
        case MessageAct.SHOW_REQUEST:
            window.pages.inspector.show_request_of_reply(seq)
        case MessageAct.REWIND:
            _ask_and_rewind(window, session, seq)
        case MessageAct.FORK:
            row = window.find_row_of_conversation()
            if window.current_workbench is not None and row is not None:
                window.conversation_actions.fork_and_open(window.current_workbench, row, seq)


def _ask_and_rewind(window: MainWindow, session: Session, seq: int) -> None:
    """Rewinds the conversation that the question was about, even if another one is
    shown by then.
    """
    if (bench := window.current_workbench) is None:
        return
    changes, run = bench.file_changes_of(session.id), window.run_for_window

    async def rewind_session(files: Sequence[FileChange]) -> tuple[int, FileUndoResult | None]:
        session.refuse_while_running("rewind")
        newest = session.conversation.state.seq
        undone = await changes.undo_file_changes(files, conversation=session.id) if files else None
        await session.rewind_to(seq)
        return newest, undone

    async def return_to(newest: int, undone: FileUndoResult | None) -> None:
        await session.switch_to_answer(newest)
        if undone is not None and undone.fact is not None:
            await redo_undone_changes(changes, undone.fact, session.id)

    def show_rewound(done: tuple[int, FileUndoResult | None]) -> None:
        said = tr("Conversation rewound.")
        said += f"\n{describe_undone_files(done[1])}" if done[1] is not None else ""
        window.notices.show_notice(said, act=lambda: run(return_to(*done)))

    def ask_to_rewind(files: Sequence[FileChange], named: str) -> None:
        text = tr("Rewind to this point? Later messages are kept, and you can return to them.")
        ways = [(tr("Rewind"), lambda: run(rewind_session(()), then=show_rewound))]
        if named:
            text = f"{text}\n\n{named}"
            ways.append(
                (
                    tr("Rewind and undo these changes"),
                    lambda: run(rewind_session(files), then=show_rewound),
                )
            )
        elif changes.checkpoint_progress.state == "off":
            text = f"{text}\n\n{tr('Checkpoints are turned off, so files stay as they are.')}"
        ask_to_choose_one(window, tr("Rewind"), text, "", ways)

    finding = message_sending.find_files_to_undo(changes, session.id, seq)
    run(finding, then=lambda found: ask_to_rewind(*found), failed=lambda _: ask_to_rewind((), ""))
