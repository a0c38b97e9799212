"""Declares every action of the window once. The command palette, the menus, the shortcuts page and
the help are built from the declarations in `resources/window_actions.json`.

The module that can carry out an action sets its handler (`ActionRegistry.set_action_handler`). An
action without a handler is disabled.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenu, QMenuBar, QWidget

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.translation import tr
from helix_desktop.histories.program_names import AGENTS_TO_CONTINUE_IN
from helix_desktop.program_settings import SHORTCUTS, ProgramSettings
from helix_desktop.resources import read_json_resource


@dataclass(frozen=True, slots=True)
class WindowAction:
    """`group` is its menu. `shortcut` has QKeySequence's form ("Ctrl" is Command on a
    Mac). `needs` says without what it is disabled: an open workspace, an open or a
    listed conversation, or a question. `home`: where it is instead of in the menus and the
    palette, such as a page of the settings, or empty.
    """

    id: str
    title: str
    group: str
    shortcut: str = ""
    needs: str = ""
    home: str = ""


@cache
def read_declared_actions() -> tuple[WindowAction, ...]:
    """Returns all actions in the order of the menus, in English. `{agent}` stands for
    each agent to continue in.
    """
    menus = read_json_resource("window_actions.json")
    return tuple(
        WindowAction(group=group, **fields)
        for group, actions in menus.items()
        for fields in actions
    )


def declare_actions() -> tuple[WindowAction, ...]:
    """Returns all actions in the order of the menus, in the user's language."""
    return tuple(
        WindowAction(
            each.id.format(agent=agent),
            tr(each.title, agent=name),
            tr(each.group),
            each.shortcut,
            each.needs,
            each.home,
        )
        for each in read_declared_actions()
        for agent, name in _agents_of_action(each)
    )


def _agents_of_action(action: WindowAction) -> Iterable[tuple[str, str]]:
    return AGENTS_TO_CONTINUE_IN.items() if "{agent}" in action.id else [("", "")]


def _ids_of_actions_that_need(*needs: str) -> tuple[str, ...]:
    needed = (each for each in read_declared_actions() if each.needs in needs)
    return tuple(
        each.id.format(agent=agent) for each in needed for agent, _ in _agents_of_action(each)
    )


WORKSPACE_ACTIONS = _ids_of_actions_that_need("workspace")
LISTED_CONVERSATION_ACTIONS = _ids_of_actions_that_need("listed conversation")
CONVERSATION_ACTIONS = _ids_of_actions_that_need("conversation", "listed conversation")
QUESTION_ACTIONS = _ids_of_actions_that_need("question")


class ActionRegistry(QObject):
    """Holds the declared actions as QActions of one window, and saves changed shortcuts.

    `settings` contains only differences from the declarations: the action's id, and its shortcut or
    "none".
    """

    shortcuts_changed = Signal()

    def __init__(self, window: QWidget, settings: ProgramSettings) -> None:
        super().__init__(window)
        self._settings = settings
        self._declared = {each.id: each for each in declare_actions()}
        self._actions: dict[str, QAction] = {}
        for each in self._declared.values():
            made = QAction(
                each.title, self, enabled=False, autoRepeat=each.id not in QUESTION_ACTIONS
            )
            made.setObjectName(each.id)
            made.setShortcutContext(Qt.ShortcutContext.WindowShortcut)
            # Otherwise, a key that is held down too long would also answer the next question.
            kept = self._settings[SHORTCUTS].get(each.id, each.shortcut)
            made.setShortcut(QKeySequence() if kept == "none" else QKeySequence.fromString(kept))
            self._actions[each.id] = made
            window.addAction(made)

    def __getitem__(self, name: str) -> QAction:
        return self._actions[name]

    def __iter__(self) -> Iterator[WindowAction]:
        """Yields what the menus and the palette show."""
        return (each for each in self._declared.values() if not each.home)

    def list_actions_with_shortcuts(self) -> list[WindowAction]:
        """Returns what the menus show, and what has a shortcut of its own elsewhere."""
        return [each for each in self._declared.values() if not each.home or each.shortcut]

    def set_action_handler(self, name: str, handler: Callable[[], object]) -> None:
        action = self._actions[name]
        action.triggered.connect(lambda _checked=False: handler())
        action.setEnabled(True)

    def set_actions_enabled(self, names: Iterable[str], *, when: bool) -> None:
        for name in names:
            self._actions[name].setEnabled(when)

    def format_shortcut(self, name: str) -> str:
        return self._actions[name].shortcut().toString(QKeySequence.SequenceFormat.NativeText)

    def fill_menu_bar(self, bar: QMenuBar) -> None:
        menus: dict[str, QMenu] = {}
        for each in self:
            menu = menus.get(each.group) or menus.setdefault(each.group, bar.addMenu(each.group))
            menu.addAction(self._actions[each.id])

    def change_shortcut_and_return_robbed_title(self, name: str, sequence: QKeySequence) -> str:
        """Sets or removes an action's shortcut. Returns the title of the action that lost it."""
        others = (
            i for i, action in self._actions.items() if i != name and action.shortcut() == sequence
        )
        robbed = next(others, "") if not sequence.isEmpty() else ""
        if robbed:
            self._actions[robbed].setShortcut(QKeySequence())
        self._actions[name].setShortcut(sequence)
        self._save_shortcuts()
        return self._declared[robbed].title if robbed else ""

    def reset_shortcuts(self) -> None:
        for each in self:
            self._actions[each.id].setShortcut(QKeySequence(each.shortcut))
        self._save_shortcuts()

    def _save_shortcuts(self) -> None:
        declared, portable = self._declared, QKeySequence.SequenceFormat.PortableText
        current = {i: action.shortcut() for i, action in self._actions.items()}
        changed = {
            i: keys for i, keys in current.items() if keys != QKeySequence(declared[i].shortcut)
        }
        self._settings.change_setting(
            SHORTCUTS, {i: keys.toString(portable) or "none" for i, keys in changed.items()}
        )
        self.shortcuts_changed.emit()
