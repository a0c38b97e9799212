"""What each action of the window does, and where the signals of its parts go."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QApplication, QWidget

from helix_desktop.engine.facts import FoldKind, Text, UserPart
from helix_desktop.engine.ports import Answer
from helix_desktop.errors import HelixError
from helix_desktop.gui import chat_acts, forgetting, pictures, sending
from helix_desktop.gui.actions import OF_A_QUESTION
from helix_desktop.gui.background import Doing
from helix_desktop.gui.chat.approvals import Approvals
from helix_desktop.gui.chat.composer import Composer
from helix_desktop.gui.chat.drafts import UnsentMessage
from helix_desktop.gui.conversation_acts import SUFFIX
from helix_desktop.gui.frame.notices import Notices
from helix_desktop.gui.frame.top_bar import PAGES
from helix_desktop.gui.links import Place
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.ports import ALLOW_ALL, Session, Workbench
from helix_desktop.gui.questions import ask_allow_all, ask_files, ask_folder
from helix_desktop.gui.sharing.acts import SharingActs
from helix_desktop.gui.showing import Showing
from helix_desktop.gui.theme import ZOOMS, Theme
from helix_desktop.gui.words import tr
from helix_desktop.gui.workspace_acts import WorkspaceActs
from helix_desktop.settings import THEME, ZOOM, Settings

FOLDS = {
    "fold-marker": FoldKind.MARKER,
    "fold-observations": FoldKind.OBSERVATIONS,
    "fold-reflection": FoldKind.REFLECTION,
    "fold-handover": FoldKind.HANDOVER,
}


def wire(window: MainWindow) -> None:
    """Give every action its handler and every signal its slot. Called once."""
    _wire_rail(window)
    _wire_sidebar(window)
    _wire_top(window)
    _wire_composer(window)
    _wire_pages(window)
    _wire_conversation(window)
    _wire_view(window)


def _wire_rail(window: MainWindow) -> None:
    rail, on = window.rail, window.actions_.on
    acts = WorkspaceActs(window)
    rail.chosen.connect(lambda workspace: window.open_workspace(workspace))  # noqa: PLW0108 - the slot takes one argument
    rail.adding.connect(window.actions_["open-folder"].trigger)
    rail.ordered.connect(window.order_workspaces)
    rail.settings_wanted.connect(window.actions_["settings"].trigger)
    rail.wants.connect(partial(acts.do))  # a signal alone would not keep `acts` alive
    on("workspace-folder", lambda: acts.current(acts.folders))
    on("share-workspace", partial(_share, window.showing, window.doing, window))
    on("join-workspace", lambda: window.if_able(partial(_join, window)))
    on("export-workspace", lambda: acts.current(acts.export))
    on("import-workspace", lambda: window.if_able(acts.import_))
    on("forget-text", partial(forgetting.ask, window))
    on("trash-workspace", lambda: acts.current(acts.trash))
    on("workspace-trash", acts.show_trash)
    rail.add_menu.connect(lambda name: window.actions_[name].trigger())
    ask = partial(ask_folder, window, tr("Open folder as workspace"), window.create_workspace)
    on("open-folder", lambda: window.if_able(ask))
    on("find-workspace", window.find_workspace)
    on("settings", lambda: window.settings_wanted.emit(""))
    on("workspace-settings", lambda: window.settings_wanted.emit("workspace"))
    on("shortcuts", lambda: window.settings_wanted.emit("shortcuts"))
    on("doctor", lambda: window.settings_wanted.emit("about"))
    on("about", lambda: window.settings_wanted.emit("about"))
    on("quit", lambda: window.window().close())
    for number in range(1, 10):
        shortcut = QShortcut(QKeySequence(f"Ctrl+{number}"), window)
        shortcut.activated.connect(partial(_open_number, window, number))


def _share(showing: Showing, doing: Doing, parent: QWidget) -> None:
    if showing.bench is not None:
        from helix_desktop.gui.sharing.dialog import ShareDialog

        ShareDialog(showing.bench, doing, parent).open()


def _join(window: MainWindow) -> None:
    from helix_desktop.gui.sharing.join import JoinDialog

    def joined(bench: Workbench) -> None:
        window.refresh_workspaces()
        window.open_workspace(bench.id)

    JoinDialog(window.desk, window.name_for, window.doing, joined, window).open()


def _open_number(window: MainWindow, number: int) -> None:
    workspace = window.rail.workspace_at(number)
    if workspace:
        window.open_workspace(workspace)


def _wire_sidebar(window: MainWindow) -> None:
    side, on = window.sidebar, window.actions_.on
    side.opened.connect(lambda talk: window.go(Place("conversation", window.bench.id if window.bench else "", talk)))
    side.wants.connect(partial(_act, window))
    side.emptying_wanted.connect(lambda: window.acts.empty_trash(window.bench) if window.bench else None)
    side.sharing_wanted.connect(window.actions_["share-workspace"].trigger)
    parts = (window.sidebar, window.chat, window.notices)
    SharingActs(window.showing, window.doing, parts, window.refresh_conversations, window.open_conversation, window)
    side.new_wanted.connect(window.actions_["new"].trigger)
    side.search_wanted.connect(window.palette_.open)
    side.workspace_wanted.connect(lambda: window.settings_wanted.emit("workspace"))
    window.palette_.searching.connect(partial(sending.search, window))
    window.palette_.closed.connect(lambda: _focus_back(window))
    on("palette", lambda: window.palette_.open(window.sidebar.search.text()))
    on("new", lambda: _new(window))
    on("undo", window.notices.undo)
    on("previous", lambda: _neighbour(window, -1))
    on("next", lambda: _neighbour(window, 1))


def _act(window: MainWindow, what: str, conversation: str = "") -> None:
    row = window.row(conversation)
    if window.bench is not None and row is not None:
        window.acts.do(what, window.bench, row)


def _new(window: MainWindow) -> None:
    window.show_page("chat")
    window.begin_anew()
    window.chat.composer.text.setFocus()


def _neighbour(window: MainWindow, steps: int) -> None:
    found = window.sidebar.list.neighbour(steps)
    if found:
        window.open_conversation(found)


def _focus_back(window: MainWindow) -> None:
    if window.page == "chat":
        window.chat.composer.text.setFocus()


def _wire_top(window: MainWindow) -> None:
    top, on = window.top, window.actions_.on
    top.page_chosen.connect(window.show_page)
    top.policy.chosen.connect(lambda name: _choose(window, "policy", name))
    window.chat.composer.mode_chosen.connect(lambda name: _choose(window, "mode", name))
    top.policy.more_wanted.connect(lambda: window.settings_wanted.emit("policy"))
    for page in PAGES:
        on(page, partial(window.show_page, page))
    on("policy", top.policy.open)
    on("model", top.model.open)
    on("mode", window.chat.composer.open_modes)
    on("agents", partial(_agents, window))
    on("brought", lambda: window.settings_wanted.emit("brought"))


def _agents(window: MainWindow) -> None:
    """The agents of the open conversation, in a window that stays beside it."""
    bench, session = window.bench, window.session
    if bench is not None and session is not None:
        from helix_desktop.gui.agents import AgentsDialog

        AgentsDialog(bench, session.id, lambda agent: window.go(Place("conversation", bench.id, agent)), window).show()


def _choose(window: MainWindow, what: str, name: str) -> None:
    bench = window.bench
    if bench is None:
        return

    def choose() -> None:
        work = {"policy": bench.choose_policy, "mode": bench.choose_mode}[what](name)
        window.doing.do(work, name=f"choose a {what}", then=lambda _done: window.show_choices(), owner=window)

    if (what, name) == ("mode", ALLOW_ALL) and bench.mode != ALLOW_ALL:
        ask_allow_all(window, choose)
    else:
        choose()


def _wire_composer(window: MainWindow) -> None:
    composer, on = window.chat.composer, window.actions_.on
    composer.sent.connect(partial(sending.send, window))
    window.conversation_opened.connect(partial(sending.send_held, window))
    composer.resent.connect(partial(_resend, window))
    composer.offers_wanted.connect(partial(sending.offer, window))
    composer.taken.connect(partial(sending.take, window))
    composer.fold_wanted.connect(window.actions_["fold-marker"].trigger)
    composer.stop_wanted.connect(window.actions_["stop"].trigger)
    composer.attach_wanted.connect(window.actions_["attach"].trigger)
    composer.files_given.connect(window.attaching.mime)
    composer.long_pasted.connect(window.attaching.text)
    held = composer.attachments
    held.unknown.connect(lambda one: pictures.look_at(window.bench, window.doing, held, one))
    held.opened.connect(lambda one: pictures.open_(window.bench, window.doing, one.stored, one.name, window))
    composer.editing.connect(partial(_unqueue, window, edit=True))
    composer.dropping.connect(partial(_unqueue, window, edit=False))
    window.chat.approvals.answered.connect(partial(_answer, window.showing, composer))
    window.chat.foreign.continuing.connect(partial(_act, window, "fork"))
    window.chat.way_on.settings_wanted.connect(window.settings_wanted)
    window.chat.way_on.going_on.connect(window.actions_["resume"].trigger)
    on("compose", partial(_compose, window))
    on("attach", lambda: ask_files(window, tr("Attach files"), window.attaching.files))
    on("stop", _with_session(window.showing, window.notices, lambda session: session.stop()))
    on("resume", partial(_resume, window))
    for scope in ("once", "conversation", "always"):
        on(f"allow-{scope}", partial(_allow, window.chat.approvals, scope))
    on("refuse", lambda: window.chat.approvals.card.refuse() if window.chat.approvals.card else None)
    window._enable()  # noqa: SLF001 - handlers are there now; what is of use is decided by the window


def _resend(window: MainWindow, seq: int, parts: tuple[UserPart, ...]) -> None:
    if window.session is None:
        window.hold_message(UnsentMessage(parts, edited=seq))
    else:
        not_sent = sending.given_back(window.chat.composer, window.notices, parts)
        sending.resend(window, window.session, seq, parts, not_sent)


def _compose(window: MainWindow) -> None:
    window.show_page("chat")
    window.chat.composer.text.setFocus()


def _resume(window: MainWindow) -> None:
    window.trying_again.emit()
    _with_session(window.showing, window.notices, lambda session: session.resume())()


def _with_session(showing: Showing, notices: Notices, act: Callable[[Session], object]) -> Callable[[], None]:
    def run() -> None:
        if showing.session is not None:
            try:
                act(showing.session)
            except HelixError as error:
                notices.tell_error(error)

    return run


def _allow(approvals: Approvals, scope: str) -> None:
    if approvals.card is not None:
        approvals.card.allow(scope)


def _answer(showing: Showing, composer: Composer, number: int, answer: Answer) -> None:
    if showing.session is not None:
        showing.session.answer(number, answer)
        composer.text.setFocus()


def _unqueue(window: MainWindow, index: int, *, edit: bool) -> None:
    """Not where one has been sent since the list was shown: the number would be another message's."""
    session, composer = window.session, window.chat.composer
    if session is None or len(session.queue) != composer.waiting.number:
        return
    taken: tuple[UserPart, ...] = session.unqueue(index)
    window.watched_in_front.remove_waiting(session.id, taken)
    if edit:
        composer.take(taken)
    else:
        window.notices.tell(tr("The message was removed."), act=lambda: session.send(taken))


def _wire_pages(window: MainWindow) -> None:
    on = window.actions_.on
    window.pages.wanted.connect(partial(chat_acts.do, window))
    window.pages.made.connect(partial(_wire_page, window))
    on("find", partial(_find, window))
    on("bottom", window.pages.follow)
    on("sidebar", window.toggle_sidebar)
    on("inspector", window.toggle_side)
    areas = (window.sidebar.list, window.chat.transcript, window.chat.composer.text, window.pages.inspector)
    on("next-area", lambda: _next_area(areas))


def _wire_page(window: MainWindow, name: str, page: Any) -> None:
    """A page that is made only now."""
    if name == "cache":
        page.room_wanted.connect(lambda: window.settings_wanted.emit("storage"))
        page.bar.show_shortcut(_keys(window, "find"))
    elif name == "changes":
        page.told.connect(window.notices.tell)
        page.said.connect(partial(_tell_agent, window.showing, window.notices))


def _tell_agent(showing: Showing, notices: Notices, text: str) -> None:
    """A comment on a change: at once, or after the agent's present step."""
    if showing.session is not None:
        showing.session.send((Text(text),), steer=True)
        notices.tell(tr("Sent to the agent."))


def _find(window: MainWindow) -> None:
    """On the page that is shown; where it has nothing to find with, everywhere."""
    if window.page in ("chat", "cache"):
        window.pages.find(window.page)
    else:
        window.palette_.open("")


def _next_area(all_: Sequence[QWidget]) -> None:
    """Around the window with one key: the list, the page, the composer, the side."""
    areas = [widget for widget in all_ if widget.isVisible()]
    here = QApplication.focusWidget()
    at = next((i for i, area in enumerate(areas) if here is not None and (area is here or area.isAncestorOf(here))), -1)
    if areas:
        areas[(at + 1) % len(areas)].setFocus(Qt.FocusReason.ShortcutFocusReason)


def _wire_conversation(window: MainWindow) -> None:
    on = window.actions_.on
    for name in ("rename", "pin", "archive", "trash", "fork", *(f"export-{form}" for form in SUFFIX)):
        on(name, partial(_act, window, name))
    work = partial(_work, window.showing, partial(window.doing.do, owner=window))
    on("regenerate", lambda: work("regenerate", lambda session: session.regenerate()))
    for name, kind in FOLDS.items():
        on(name, partial(work, "fold now", partial(_fold, kind)))
    window._enable()  # noqa: SLF001 - see above


def _fold(kind: FoldKind, session: Session) -> Coroutine[Any, Any, object]:
    return session.fold_now(kind)


def _work(
    showing: Showing, do: Callable[..., object], name: str, act: Callable[[Session], Coroutine[Any, Any, object]]
) -> None:
    if showing.session is not None:
        do(act(showing.session), name=name)


def _wire_view(window: MainWindow) -> None:
    on, theme = window.actions_.on, window.theme
    for name, scheme in (("light", "light"), ("dark", "dark"), ("as-system", "system")):
        on(name, partial(window.settings.change, THEME, scheme))
    for name, steps in (("zoom-in", 1), ("zoom-out", -1), ("zoom-usual", 0)):
        on(name, partial(_zoom, theme, window.settings, steps))
    on("full-screen", lambda: _full_screen(window.window()))
    window.actions_["zoom-in"].setShortcuts([window.actions_["zoom-in"].shortcut(), QKeySequence("Ctrl+=")])
    theme.changed.connect(window.update)
    window.actions_.changed.connect(partial(_show_keys, window))
    _show_keys(window)


def _show_keys(window: MainWindow) -> None:
    """Where a shortcut is named, as it is now."""
    shortcut = window.actions_.shortcut
    window.chat.approvals.keys = {name: shortcut(name) for name in OF_A_QUESTION}
    window.sidebar.search.show_shortcut(_keys(window, "palette"))
    if window.pages.is_made("cache"):
        window.pages.cache.bar.show_shortcut(_keys(window, "find"))


def _keys(window: MainWindow, action: str) -> str:
    return window.actions_.shortcut(action).replace("+", " ")


def _zoom(theme: Theme, settings: Settings, steps: int) -> None:
    theme.zoom_by(steps)
    nearest = min(ZOOMS, key=lambda zoom: abs(zoom - theme.zoom))
    settings.change(ZOOM, round(nearest * 100))


def _full_screen(shell: QWidget) -> None:
    if shell.isFullScreen():
        shell.showNormal()
    else:
        shell.showFullScreen()
