"""The menu of what an agent of another maker offers to choose: its modes, its models and its other options."""

from functools import partial

from PySide6.QtCore import QPoint

from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.shared.plain_widgets import build_popup_menu
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import tr
from helix_desktop.gui.workbench_types import ForeignConversation, Session

LONGEST_CHOICE = 60  # characters


def show_agent_choices(window: MainWindow, session: Session, foreign: ForeignConversation) -> None:
    """A submenu for each thing to choose, named with what is chosen now. Nothing where another conversation is shown meanwhile."""
    if window.current_session is not session:
        return
    menu = build_popup_menu(window.top.model)
    for choice in foreign.choices.values():
        below = menu.addMenu(
            f"{_menu_text(choice.name)}: {_menu_text(choice.values.get(choice.current, choice.current))}"
        )
        for value, name in choice.values.items():
            action = below.addAction(_menu_text(name or value))
            action.setCheckable(True)
            action.setChecked(value == choice.current)
            action.triggered.connect(partial(_choose, window, foreign, choice.id, value))
    if not foreign.choices:
        menu.addAction(tr("{agent} offers nothing to choose", agent=_menu_text(foreign.name))).setEnabled(False)
    menu.popup(window.top.model.mapToGlobal(QPoint(0, window.top.model.height() + 4)))


def _choose(window: MainWindow, foreign: ForeignConversation, identity: str, value: str, *_checked: object) -> None:
    window.background_runner.run_in_background(foreign.choose(identity, value), owner=window)


def _menu_text(foreign: str) -> str:
    """An agent's words, on one line, and no letter of them a shortcut."""
    return make_safe_text(foreign)[:LONGEST_CHOICE].replace("&", "&&")
