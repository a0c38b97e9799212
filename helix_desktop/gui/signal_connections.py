"""Connects every action of the window with its handler and every signal with its slot."""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt, SignalInstance
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QApplication, QWidget

from helix_desktop.engine.facts import FoldKind, Text, UserPart
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.errors import HelixError
from helix_desktop.gui import (
    attachment_previews,
    chat_action_handling,
    forget_text_dialog,
    message_sending,
    tab_order,
)
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.chat.composer import ALLOW_ALL
from helix_desktop.gui.chat.message_drafts import UnsentMessage
from helix_desktop.gui.common.running_states import WORKING_STATES
from helix_desktop.gui.deep_links import WindowPlace, open_file_or_its_folder
from helix_desktop.gui.frame.top_bar import PAGES
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.question_dialogs import (
    ask_allow_all,
    ask_files,
    ask_folder,
    ask_to_choose_one,
)
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.chat_actions import AskToFold
from helix_desktop.gui.translation import tr
from helix_desktop.gui.window_actions import LISTED_CONVERSATION_ACTIONS, QUESTION_ACTIONS
from helix_desktop.gui.workbench_types import MessageQueue, Session, Workbench
from helix_desktop.gui.workspace_actions import WorkspaceActions
from helix_desktop.program_settings import THEME, ZOOM, ProgramSettings

FOLD_KIND_BY_ACTION = {
    "fold-observations": FoldKind.OBSERVATIONS,
    "fold-reflection": FoldKind.REFLECTION,
    "fold-handover": FoldKind.HANDOVER,
}

HELP_OF_PAGES = {"changes": "changes.md", "cache": "cache.md", "timeline": "context.md"}


def wire_window(window: MainWindow) -> None:
    """Connects every action with its handler and every signal with its slot. Called once."""
    _wire_rail(window)
    _wire_sidebar(window)
    _wire_top_bar(window)
    window.chat_added.connect(partial(_wire_chat, window))
    _wire_chat(window, window.chat)
    _wire_writing(window)
    _wire_pages(window)
    _wire_conversation_actions(window)
    _wire_view_actions(window)


def _wire_rail(window: MainWindow) -> None:
    rail, on = window.rail, window.window_actions.set_action_handler
    acts = WorkspaceActions(window)
    rail.chosen.connect(lambda workspace: window.go_to_workspace(workspace))  # noqa: PLW0108 - the slot takes one argument
    rail.add_wanted.connect(window.window_actions["open-folder"].trigger)
    rail.ordered.connect(window.save_workspace_order)
    rail.settings_wanted.connect(window.window_actions["settings"].trigger)
    # The partial function keeps the object `acts` alive, which the signal alone would not do.
    rail.workspace_action_wanted.connect(partial(acts.run_workspace_action))
    on(
        "workspace-folder",
        lambda: acts.act_on_current_workspace(acts.go_to_workspace_and_ask_folder),
    )
    on("share-workspace", partial(_open_share_dialog, window))
    on("join-workspace", lambda: window.run_unless_blocked(partial(_open_join_dialog, window)))
    on(
        "export-workspace",
        lambda: acts.act_on_current_workspace(acts.ask_where_to_and_export_workspace),
    )
    on(
        "import-workspace",
        lambda: window.run_unless_blocked(acts.ask_which_file_and_import_workspace),
    )
    on("fleet", lambda: window.run_unless_blocked(partial(_open_fleet_dialog, window)))
    on("forget-text", partial(forget_text_dialog.open_forget_text_dialog, window))
    on("trash-workspace", lambda: acts.act_on_current_workspace(acts.trash_workspace_with_undo))
    on("workspace-trash", acts.open_trash_dialog)
    rail.add_action_wanted.connect(lambda name: window.window_actions[name].trigger())
    ask = partial(
        ask_folder, window, tr("Open folder as workspace"), window.create_workspace_for_folder
    )
    on("open-folder", lambda: window.run_unless_blocked(ask))
    on("find-workspace", window.ask_for_workspace)
    on("settings", lambda: window.settings_wanted.emit(""))
    on("workspace-settings", lambda: window.settings_wanted.emit("workspace"))
    on("help", lambda: window.show_help(HELP_OF_PAGES.get(window.showing.page, "index.md")))
    on("shortcuts", lambda: window.settings_wanted.emit("shortcuts"))
    on("doctor", lambda: window.settings_wanted.emit("about"))
    on("about", lambda: window.settings_wanted.emit("about"))
    on("quit", lambda: window.window().close())
    for number in range(1, 10):
        shortcut = QShortcut(QKeySequence(f"Ctrl+{number}"), window)
        shortcut.activated.connect(partial(_open_workspace_by_number, window, number))


def _open_share_dialog(window: MainWindow) -> None:
    if window.current_workbench is not None:
        from helix_desktop.gui.sharing.share_workspace_dialog import ShareWorkspaceDialog

        ShareWorkspaceDialog(window.current_workbench, window.background_runner, window).open()


def _open_join_dialog(window: MainWindow) -> None:
    from helix_desktop.gui.sharing.join_workspace_dialog import JoinWorkspaceDialog

    def open_joined_workspace(bench: Workbench) -> None:
        window.refresh_workspaces()
        window.go_to_workspace(bench.id)

    JoinWorkspaceDialog(
        window.workbenches,
        window.suggest_workspace_name,
        window.background_runner,
        open_joined_workspace,
        window,
    ).open()


def _open_fleet_dialog(window: MainWindow) -> None:
    from helix_desktop.gui.fleet.fleet_dialog import FleetDialog

    def open_conversation(workspace: str, conversation: str) -> None:
        window.go_to_place(WindowPlace("conversation", workspace, conversation))

    rows = sorted(window.listed_workspaces, key=lambda row: row.id != window.showing.workspace_id)
    names, doing = {row.id: row.name for row in rows}, window.background_runner
    FleetDialog(window.workbenches, names, open_conversation, window.theme, doing, window).show()


def _open_workspace_by_number(window: MainWindow, number: int) -> None:
    if workspace := window.rail.workspace_id_at(number):
        window.go_to_workspace(workspace)


def _wire_sidebar(window: MainWindow) -> None:
    side, on = window.sidebar, window.window_actions.set_action_handler
    side.list.opened.connect(
        lambda talk: window.go_to_place(
            WindowPlace("conversation", window.showing.workspace_id, talk)
        )
    )
    side.conversation_action_wanted.connect(partial(_act_on_conversation, window))
    side.empty_trash_link.clicked.connect(
        lambda: window.conversation_actions.ask_to_empty_trash(window.current_workbench)
    )
    side.shared.clicked.connect(window.window_actions["share-workspace"].trigger)
    side.new.clicked.connect(window.window_actions["new"].trigger)
    side.importing.clicked.connect(window.window_actions["bring-in"].trigger)
    side.search.search_everywhere_wanted.connect(window.palette_box.open_palette)
    side.workspace_menu_wanted.connect(
        lambda at: window.rail.show_workspace_menu(window.showing.workspace_id, at)
    )
    window.palette_box.search_wanted.connect(partial(message_sending.search_everywhere, window))
    window.palette_box.closed.connect(window.focus_current_composer)
    on("palette", lambda: window.palette_box.open_palette(window.sidebar.search.text()))
    on("new", lambda: _begin_new_conversation(window))
    on("new-with", partial(_ask_how_to_begin, window))
    on("new-copy", lambda: _ask_to_begin_in_copy(window))
    on("new-acp", lambda: _ask_agent_and_begin_conversation(window))
    on("undo", window.notices.run_notice_undo)
    on("previous", lambda: _open_neighbour_conversation(window, -1))
    on("next", lambda: _open_neighbour_conversation(window, 1))
    on("next-waiting", window.go_to_next_waiting_conversation)
    on("beside", window.ask_for_conversation_beside)
    on("other-side", window.go_to_other_side)
    on("close-side", lambda: window.close_chat(window.chat))
    side.list.beside_wanted.connect(partial(_act_on_conversation, window, "beside"))


def _act_on_conversation(window: MainWindow, action: str, conversation: str = "") -> None:
    row = window.find_row_of_conversation(conversation)
    if action == "beside":
        window.go_to_conversation(conversation, beside=True)
    elif window.current_workbench is not None and row is not None:
        window.conversation_actions.run_conversation_action(action, window.current_workbench, row)


def _begin_new_conversation(window: MainWindow) -> None:
    window.begin_new_conversation()
    window.go_to_side(window.chat)


def _ask_how_to_begin(window: MainWindow) -> None:
    """Offers the two other ways to begin: in a copy of the files, or with another agent."""
    ways = [
        (tr("A copy of the repository"), lambda: _ask_to_begin_in_copy(window)),
        (tr("Another agent"), lambda: _ask_agent_and_begin_conversation(window)),
    ]
    words = tr("In a copy, your own files change only when you bring the changes back. Another agent works with its own tools and account.")  # fmt: skip
    ask_to_choose_one(window, tr("New conversation with…"), words, "", ways)


def _ask_to_begin_in_copy(window: MainWindow) -> None:
    if (bench := window.current_workbench) is None:
        return

    begin, show = (
        bench.start_conversation_in_copy,
        partial(_run_and_show_begun_conversation, window, bench),
    )
    text = tr("The agent works in a private copy that is stored with the program's data. Your own folder is not changed until you bring the copy's changes back.")  # fmt: skip
    acts = [(tr("From the last commit"), lambda: show(begin()))]
    acts.append((tr("With my uncommitted changes"), lambda: show(begin(with_changes=True))))
    ask_to_choose_one(window, tr("New conversation in a copy of the repository"), text, "", acts)


def _ask_agent_and_begin_conversation(window: MainWindow) -> None:
    """Asks which agent on this computer (Agent Client Protocol) works in a new conversation."""
    if (bench := window.current_workbench) is None:
        return

    def begin_with_agent(name: str) -> None:
        _run_and_show_begun_conversation(
            window, bench, bench.start_users_conversation(acp_agent=name)
        )

    def show_agents(names: Sequence[str]) -> None:
        text = tr("The agent runs with your permissions, as it would in a terminal. This workspace's permissions apply to everything that the agent asks Helix Desktop to do. You can add other agents in the settings.")  # fmt: skip
        none = tr("No agent that supports the Agent Client Protocol was found on this computer. You can add one in the settings.")  # fmt: skip
        acts: list[tuple[str, Callable[[], object]]] = [
            (name, partial(begin_with_agent, name)) for name in names
        ]
        if not names:
            acts.append((tr("Open settings"), partial(window.settings_wanted.emit, "servers")))
        ask_to_choose_one(
            window, tr("New conversation with another agent"), text if names else none, "", acts
        )

    window.run_for_window(bench.acp.list_agent_names(), then=show_agents)


def _run_and_show_begun_conversation(
    window: MainWindow, bench: Workbench, work: Coroutine[Any, Any, Session]
) -> None:
    def show_begun_conversation(session: Session) -> None:
        if window.show_session_if_current(bench, session):
            window.switch_to_page("chat")
        window.refresh_conversations()

    window.run_for_window(work, then=show_begun_conversation)


def _open_neighbour_conversation(window: MainWindow, steps: int) -> None:
    if found := window.sidebar.list.find_neighbour_conversation(steps):
        window.go_to_conversation(found)


def _wire_top_bar(window: MainWindow) -> None:
    top, on = window.top, window.window_actions.set_action_handler
    top.page_chosen.connect(window.switch_to_page)
    top.stop.clicked.connect(partial(_stop_fold_or_show_agents, window))
    top.copy.clicked.connect(window.window_actions["bring-back"].trigger)
    for page in PAGES:
        on(page, partial(window.switch_to_page, page))
    on("policy", partial(_open_policy_choices, window))
    on("model", top.model.open_choices)
    on("mode", lambda: window.chat.composer.open_mode_menu())  # noqa: PLW0108 - of the side then
    on("agents", partial(_open_subagents_dialog, window))
    on("brought", lambda: window.settings_wanted.emit("brought"))


def _open_policy_choices(window: MainWindow) -> None:
    if window.context_panel.isHidden():
        window.open_or_close_context_panel()
    if window.context_panel.isVisible():
        window.context_panel.policy.open_choices()


def _stop_fold_or_show_agents(window: MainWindow) -> None:
    folds = window.current_session is not None and window.current_session.folding.kind_in_progress
    window.window_actions["stop" if folds else "agents"].trigger()


def _open_subagents_dialog(window: MainWindow) -> None:
    bench, session = window.current_workbench, window.current_session
    if bench is not None and session is not None:
        from helix_desktop.gui.subagents_dialog import SubagentsDialog

        SubagentsDialog(
            bench,
            session.id,
            lambda agent: window.go_to_place(WindowPlace("conversation", bench.id, agent)),
            window,
        ).show()


def _choose_policy_or_mode(window: MainWindow, what: str, name: str) -> None:
    if (bench := window.current_workbench) is None:
        return

    def save_choice() -> None:
        work = {"policy": bench.choose_context_policy, "mode": bench.choose_permission_mode}[what](
            name
        )
        window.run_for_window(work, then=lambda _done: window.show_policy_model_and_permissions())

    if (what, name) == ("mode", ALLOW_ALL) and bench.permission_mode != ALLOW_ALL:
        ask_allow_all(window, save_choice)
    else:
        save_choice()


def _wire_chat(window: MainWindow, chat: ChatPage) -> None:
    """Connects one side. Every action on it selects it first, even if a screen reader
    triggers it without the focus.
    """
    composer, actions = chat.composer, window.window_actions

    def connect_side(signal: SignalInstance, handler: Callable[..., object]) -> None:
        def select_and_handle(*given: object) -> None:
            window.select_chat(chat)
            if chat is window.chat:
                handler(*given)

        signal.connect(select_and_handle)

    connect_side(composer.sent, partial(message_sending.send_or_hold_message, window))
    connect_side(composer.resent, partial(_resend_edited_message, window))
    connect_side(composer.text.offers_wanted, partial(message_sending.offer_completions, window))
    connect_side(
        composer.text.offer_taken, partial(message_sending.act_on_chosen_completion, window)
    )
    connect_side(composer.mode_chosen, partial(_choose_policy_or_mode, window, "mode"))
    connect_side(composer.context_wanted, window.open_or_close_context_panel)
    connect_side(composer.fold_wanted, actions["fold-marker"].trigger)
    connect_side(composer.stop_wanted, actions["stop"].trigger)
    connect_side(composer.attach_wanted, actions["attach"].trigger)
    connect_side(composer.text.files_given, window.attaching.attach_dropped_data)
    connect_side(composer.text.long_pasted, window.attaching.attach_long_text)
    preview = partial(
        attachment_previews.show_thumbnail_or_token_count, window, composer.attachments
    )
    composer.attachments.unknown.connect(preview)
    open_picture = attachment_previews.open_picture_dialog
    connect_side(
        composer.attachments.opened, lambda one: open_picture(window, one.stored, one.name)
    )
    connect_side(composer.waiting.moving, partial(_move_queued_message, window))
    connect_side(composer.waiting.steering, partial(_change_time_of_queued_message, window))
    connect_side(composer.waiting.editing, partial(_take_back_queued_message, window, edit=True))
    connect_side(
        composer.waiting.discarding, partial(_take_back_queued_message, window, edit=False)
    )
    connect_side(chat.approvals.answered, partial(_answer_and_focus_composer, window))
    connect_side(chat.foreign.continuing, partial(_act_on_conversation, window, "fork"))
    connect_side(chat.foreign.taking_over, window.sharing.take_over_shown_conversation)
    connect_side(chat.rewrite_cost.price_wanted, actions["model-price"].trigger)
    connect_side(chat.way_on.settings_wanted, window.settings_wanted.emit)
    connect_side(chat.way_on.going_on, actions["resume"].trigger)
    connect_side(chat.intent_requested, partial(chat_action_handling.carry_out_intent, window))


def _wire_writing(window: MainWindow) -> None:
    on = window.window_actions.set_action_handler
    window.conversation_opened.connect(partial(message_sending.send_held_messages, window))
    window.workbench_shown.connect(
        partial(message_sending.send_messages_held_for_workspace, window)
    )
    on("compose", lambda: window.go_to_side(window.chat))
    on("attach", partial(_ask_files_to_attach, window))
    on("stop", lambda: _act_on_shown_session(window, _stop_turn_or_fold))
    on("resume", partial(_retry_and_resume, window))
    for scope in ("once", "conversation", "always"):
        on(f"allow-{scope}", partial(_answer_shown_question, window, scope))
    on("refuse", partial(_answer_shown_question, window))
    window.enable_possible_actions()


def _ask_files_to_attach(window: MainWindow) -> None:
    folder = (
        window.current_workbench.main_folder
        if window.current_workbench is not None
        else Path.home()
    )
    ask_files(window, tr("Attach files"), folder, window.attaching.attach_files)


def _resend_edited_message(window: MainWindow, seq: int, parts: tuple[UserPart, ...]) -> None:
    bench, session = window.current_workbench, window.current_session
    if bench is None or session is None:
        window.hold_message_until_open(UnsentMessage(parts, edited=seq))
    else:
        not_sent = message_sending.build_message_returner(window, parts)
        message_sending.MessageToSend(window, bench, session, parts, not_sent).resend_edited(seq)


def _retry_and_resume(window: MainWindow) -> None:
    window.retry_wanted.emit()
    _act_on_shown_session(window, lambda session: session.resume_turn())


def _act_on_shown_session(window: MainWindow, act: Callable[[Session], object]) -> None:
    if window.current_session is not None:
        try:
            act(window.current_session)
        except HelixError as error:
            window.notices.show_error_notice(error)


def _stop_turn_or_fold(session: Session) -> None:
    if session.running in WORKING_STATES:
        session.stop_turn()
    else:
        session.folding.cancel_fold_in_work()


def _answer_shown_question(window: MainWindow, scope: str = "") -> None:
    """Allows the shown question for a scope, or refuses it without one."""
    card = window.chat.approvals.visible_card
    if card is not None and scope:
        card.allow_by_shortcut(scope)
    elif card is not None:
        card.refuse_permission()


def _answer_and_focus_composer(window: MainWindow, number: int, answer: PermissionAnswer) -> None:
    if window.current_session is not None:
        window.current_session.answer_question(number, answer)
        window.chat.composer.text.setFocus()


def _find_queue_as_shown(window: MainWindow) -> MessageQueue | None:
    """Returns the queue, unless a message was sent since it was shown: another one would have
    its place.
    """
    session = window.current_session
    if session is None:
        return None
    queued = tuple(waiting.parts for waiting in session.queue)
    return session.queue if queued == window.chat.composer.waiting.shown_messages else None


def _move_queued_message(window: MainWindow, index: int, step: int) -> None:
    queue = _find_queue_as_shown(window)
    if queue is not None:
        queue.move_message(index, index + step)


def _change_time_of_queued_message(window: MainWindow, index: int, steer: bool) -> None:  # noqa: FBT001 - a slot
    queue = _find_queue_as_shown(window)
    if queue is not None:
        queue.set_steering(index, steer=steer)


def _take_back_queued_message(window: MainWindow, index: int, *, edit: bool) -> None:
    session = window.current_session
    composer = window.chat.composer
    if session is None or _find_queue_as_shown(window) is None:
        return
    taken: tuple[UserPart, ...] = session.queue.take_back_queued(index)
    if edit:
        composer.put_message_back(taken)
    else:
        window.notices.show_notice(
            tr("The message was removed."), act=lambda: session.send_message(taken)
        )


def _wire_pages(window: MainWindow) -> None:
    on = window.window_actions.set_action_handler
    window.pages.wanted.connect(partial(chat_action_handling.carry_out_intent, window))
    window.pages.page_made.connect(partial(_wire_page, window))
    on("find", partial(_open_search_of_shown_page, window))
    on("bottom", lambda: window.chat.transcript.view.jump_to_end())  # noqa: PLW0108 - of the current side
    on("sidebar", window.toggle_sidebar)
    on("inspector", window.toggle_side_panel)
    on("next-area", partial(_focus_next_area, window))


def _wire_page(window: MainWindow, name: str, page: Any) -> None:
    if name == "cache":
        page.over_limit_button.clicked.connect(lambda: window.settings_wanted.emit("storage"))
        page.bar.show_find_shortcut(_shortcut_hint(window, "find"))
    elif name == "changes":
        page.notice_wanted.connect(
            lambda words, button: window.notices.show_notice(words, **button)
        )
        page.agent_message_written.connect(partial(_send_comment_to_agent, window))
    elif name == "preview":
        page.closed.connect(window.hide_preview)
        page.comment_written.connect(
            lambda words: window.chat.composer.put_message_back((Text(words),))
        )
        page.changes_wanted.connect(partial(chat_action_handling.show_file_in_changes, window))
        page.open_wanted.connect(open_file_or_its_folder)
        window.showing.workspace_changed.connect(page.close_preview)
    elif name == "inspector":
        page.close_button.clicked.connect(window.toggle_side_panel)
    elif name == "context":
        page.policy.chosen.connect(lambda name: _choose_policy_or_mode(window, "policy", name))
        page.policy.more_wanted.connect(lambda: window.settings_wanted.emit("policy"))
        page.figures.intent_requested.connect(
            partial(chat_action_handling.carry_out_intent, window)
        )
        page.compare_link.clicked.connect(window.window_actions["lab"].trigger)
        page.side_link.clicked.connect(window.toggle_side_panel)
        page.fold_link.clicked.connect(window.window_actions["fold-handover"].trigger)
        page.request_link.clicked.connect(lambda: window.pages.inspector.show_request_of_step())  # noqa: PLW0108 - built then


def _send_comment_to_agent(window: MainWindow, text: str) -> None:
    """Sends a comment on a change, at once or after the agent's current step."""
    if window.current_session is not None:
        window.current_session.send_message((Text(text),), steer=True)
        window.notices.show_notice(tr("Sent to the agent."))


def _open_search_of_shown_page(window: MainWindow) -> None:
    """Searches the shown page, or everything if the page has no search."""
    if window.showing.page == "chat":
        window.chat.transcript.open_find_bar()
    elif window.showing.page == "cache":
        window.pages.cache.focus_entry_search()
    else:
        window.palette_box.open_palette("")


def _focus_next_area(window: MainWindow) -> None:
    """Moves the focus to the next area: list, each conversation and its composer or
    another page, inspector.
    """
    talks = [part for chat in window.chats for part in (chat.transcript, chat.composer.text)]
    pages = talks if window.showing.page == "chat" else [window.page_area]
    sides: list[QWidget] = []
    if window.is_preview_shown:
        sides.append(window.pages.preview)
    elif window.is_side_panel_shown:
        sides.append(window.pages.inspector)
    areas: list[QWidget] = [
        part for part in (window.sidebar.list, *pages, *sides) if part.isVisible()
    ]
    here = QApplication.focusWidget()
    at = next(
        (
            i
            for i, area in enumerate(areas)
            if here is not None and (area is here or area.isAncestorOf(here))
        ),
        -1,
    )
    if areas:
        tab_order.focus_first_stop(areas[(at + 1) % len(areas)])


def _wire_conversation_actions(window: MainWindow) -> None:
    on = window.window_actions.set_action_handler
    for name in LISTED_CONVERSATION_ACTIONS:
        on(name, partial(_act_on_conversation, window, name))

    def run_on_session(act: Callable[[Session], Coroutine[Any, Any, object]]) -> None:
        if window.current_session is not None:
            window.run_for_window(act(window.current_session))

    on(
        "fold-marker",
        lambda: run_on_session(lambda session: session.fold_on_request(FoldKind.MARKER)),
    )
    on("regenerate", lambda: run_on_session(lambda session: session.ask_again()))
    for name, kind in FOLD_KIND_BY_ACTION.items():
        on(name, partial(chat_action_handling.carry_out_intent, window, AskToFold(kind)))
    window.enable_possible_actions()


def _wire_view_actions(window: MainWindow) -> None:
    on, theme = window.window_actions.set_action_handler, window.theme
    for name, scheme in (("light", "light"), ("dark", "dark"), ("as-system", "system")):
        on(name, partial(window.settings.change_setting, THEME, scheme))
    for name, steps in (("zoom-in", 1), ("zoom-out", -1), ("zoom-usual", 0)):
        on(name, partial(_change_and_save_text_zoom, theme, window.settings, steps))
    on(
        "full-screen",
        lambda: window.window().setWindowState(
            window.window().windowState() ^ Qt.WindowState.WindowFullScreen
        ),
    )
    window.window_actions["zoom-in"].setShortcuts(
        [window.window_actions["zoom-in"].shortcut(), QKeySequence("Ctrl+=")]
    )
    theme.changed.connect(window.update)
    window.window_actions.shortcuts_changed.connect(partial(_update_shown_shortcuts, window))
    window.showing.conversation_changed.connect(partial(_show_shortcuts_on_answer_buttons, window))
    _update_shown_shortcuts(window)


def _update_shown_shortcuts(window: MainWindow) -> None:
    _show_shortcuts_on_answer_buttons(window)
    window.sidebar.search.show_shortcut_in_field(_shortcut_hint(window, "palette"))
    if window.pages.is_page_built("cache"):
        window.pages.cache.bar.show_find_shortcut(_shortcut_hint(window, "find"))


def _show_shortcuts_on_answer_buttons(window: MainWindow) -> None:
    """Shows the shortcuts on the current conversation's question, the only one they answer."""
    keys = {name: window.window_actions.format_shortcut(name) for name in QUESTION_ACTIONS}
    for chat in window.chats:
        chat.approvals.show_shortcuts_on_answers(keys if chat is window.chat else {})


def _shortcut_hint(window: MainWindow, action: str) -> str:
    return window.window_actions.format_shortcut(action).replace("+", " ")


def _change_and_save_text_zoom(theme: Theme, settings: ProgramSettings, steps: int) -> None:
    theme.zoom_by_steps(steps)
    settings.change_setting(ZOOM, round(theme.text_zoom * 100))
