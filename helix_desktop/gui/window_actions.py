"""The actions of the window. Their titles, shortcuts and order in the menus are declared once, in
`resources/window_actions.json`: the command palette, the menus, the shortcuts page and the help
are built from it.

The module that can carry out an action says how and when (`ActionRegistry.set_action_handler`). An
action without a handler is disabled.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenu, QMenuBar, QWidget

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.translation import tr
from helix_desktop.histories.program_names import AGENTS_TO_CONTINUE_IN
from helix_desktop.program_settings import SHORTCUTS, ProgramSettings
from helix_desktop.resources import read_json_resource

Condition = Callable[[], bool]
# The palette finds the actions of these places, too. It does not find what answers a question,
# which nobody may press by searching, nor what a menu offers for the item that it belongs to.
SEARCHABLE_HOMES = (
    "answer",
    "chat",
    "changes",
    "settings",
    "models",
    "new conversation",
    "workspaces",
)
# Return on the first offer for "trash" must not move a whole workspace there.
ACTIONS_NOT_SEARCHED = ("trash-workspace",)
# They publish, start or delete something: the palette does them only for who types their words.
ACTIONS_WITH_CONSEQUENCES = (
    "push",
    "pull-request",
    "share-workspace",
    "forget-text",
    "regenerate",
    "archive",
    "trash",
    "quit",
)
ACTIONS_THAT_ANSWER = ("allow-once", "allow-conversation", "allow-always", "refuse")


@dataclass(frozen=True, slots=True)
class WindowAction:
    """`group` is its menu. `shortcut` has QKeySequence's form ("Ctrl" is Command on a Mac).
    `home`: where it is instead of in the menus, such as a page of the settings, or empty.
    `search_words`: what people call it who do not know its title.
    """

    id: str
    title: str
    group: str
    shortcut: str = ""
    home: str = ""
    search_words: str = ""


@cache
def read_declared_actions() -> tuple[WindowAction, ...]:
    """Returns all actions in the order of the menus, in English. `{agent}` stands for
    each agent to continue in.
    """
    declared: list[WindowAction] = []
    for group, actions in read_json_resource("window_actions.json").items():
        for fields in actions:
            declared.append(WindowAction(group=group, **fields))
    return tuple(declared)


def declare_actions() -> tuple[WindowAction, ...]:
    """Returns all actions in the order of the menus, in the user's language."""
    declared: list[WindowAction] = []
    for action in read_declared_actions():
        if "{agent}" not in action.id:
            declared.append(_translate_action(action, action.id, tr(action.title)))
            continue
        for agent, name in AGENTS_TO_CONTINUE_IN.items():
            title = tr(action.title, agent=name)
            action_id = action.id.format(agent=agent)
            declared.append(_translate_action(action, action_id, title))
    return tuple(declared)


def _translate_action(action: WindowAction, action_id: str, title: str) -> WindowAction:
    search_words = ""
    if action.search_words:
        search_words = tr(action.search_words)
    return replace(
        action, id=action_id, title=title, group=tr(action.group), search_words=search_words
    )


class ActionRegistry(QObject):
    """Holds the declared actions as QActions of one window, and saves changed shortcuts.

    `settings` contains only differences from the declarations: the action's id, and its shortcut or
    "none".
    """

    shortcuts_changed = Signal()

    def __init__(self, window: QWidget, settings: ProgramSettings) -> None:
        super().__init__(window)
        self._window = window
        self._settings = settings
        self._declared = {action.id: action for action in declare_actions()}
        self._actions: dict[str, QAction] = {}
        self._conditions: dict[str, Condition] = {}
        self._reasons: dict[Condition, Callable[[], str]] = {}
        for declared in self._declared.values():
            self._actions[declared.id] = self._build_action(declared)
            window.addAction(self._actions[declared.id])

    def _build_action(self, declared: WindowAction) -> QAction:
        # Otherwise, a key that is held down too long would also answer the next question.
        repeats = declared.id not in ACTIONS_THAT_ANSWER
        action = QAction(declared.title, self, enabled=False, autoRepeat=repeats)
        action.setObjectName(declared.id)
        action.setShortcutContext(Qt.ShortcutContext.WindowShortcut)
        shortcut = self._settings[SHORTCUTS].get(declared.id, declared.shortcut)
        if shortcut == "none":
            shortcut = ""
        action.setShortcut(QKeySequence.fromString(shortcut))
        return action

    def __getitem__(self, name: str) -> QAction:
        return self._actions[name]

    def __iter__(self) -> Iterator[WindowAction]:
        """Yields what the menus show."""
        for action in self._declared.values():
            if not action.home:
                yield action

    def list_searchable_actions(self) -> list[WindowAction]:
        """Returns what the palette finds: the menus' actions, and most of those that have their
        place elsewhere.
        """
        searchable: list[WindowAction] = []
        for action in self._declared.values():
            has_searched_place = not action.home or action.home in SEARCHABLE_HOMES
            if has_searched_place and action.id not in ACTIONS_NOT_SEARCHED:
                searchable.append(action)
        return searchable

    def list_actions_with_shortcuts(self) -> list[WindowAction]:
        """Returns what the menus show, and what has a shortcut of its own elsewhere."""
        actions: list[WindowAction] = []
        for action in self._declared.values():
            if not action.home or action.shortcut:
                actions.append(action)
        return actions

    def set_action_handler(
        self, name: str, handler: Callable[[], object], *, when: Condition | None = None
    ) -> None:
        """Says what the action does and when it can be done. Without `when`, always."""
        action = self._actions[name]
        action.triggered.connect(lambda _checked=False: handler())
        if when is None:
            action.setEnabled(True)
            return
        self._conditions[name] = when
        action.setEnabled(when())

    def explain_condition(self, condition: Condition, describe_reason: Callable[[], str]) -> None:
        """Says what the user reads of actions that wait for this condition. `describe_reason` is
        asked while it does not hold, since one condition may lack different things.
        """
        self._reasons[condition] = describe_reason

    def reason_why_disabled(self, name: str) -> str:
        """Returns why an action cannot be done now, or nothing if it can."""
        condition = self._conditions.get(name)
        if condition is None or condition():
            return ""
        return self._reasons[condition]()

    def limit_shortcut_to(self, name: str, widget: QWidget) -> None:
        """Lets the shortcut of an action work only while this widget or one within it has the
        keyboard focus. Called for several widgets, it works in each of them.
        """
        action = self._actions[name]
        action.setShortcutContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self._window.removeAction(action)
        widget.addAction(action)

    def update_enabled(self) -> None:
        """Enables what can be done now, and disables the rest."""
        for name, condition in self._conditions.items():
            self._actions[name].setEnabled(condition())

    def format_shortcut(self, name: str) -> str:
        return self._actions[name].shortcut().toString(QKeySequence.SequenceFormat.NativeText)

    def fill_menu_bar(self, bar: QMenuBar) -> None:
        menus: dict[str, QMenu] = {}
        for action in self:
            if action.group not in menus:
                menus[action.group] = bar.addMenu(action.group)
            menus[action.group].addAction(self._actions[action.id])

    def change_shortcut_and_return_robbed_title(self, name: str, sequence: QKeySequence) -> str:
        """Sets or removes an action's shortcut. Returns the title of the action that lost it."""
        robbed_title = ""
        if not sequence.isEmpty():
            robbed_title = self._take_shortcut_from_others(name, sequence)
        self._actions[name].setShortcut(sequence)
        self._save_shortcuts()
        return robbed_title

    def _take_shortcut_from_others(self, name: str, sequence: QKeySequence) -> str:
        for other_name, other_action in self._actions.items():
            if other_name != name and other_action.shortcut() == sequence:
                other_action.setShortcut(QKeySequence())
                return self._declared[other_name].title
        return ""

    def reset_shortcuts(self) -> None:
        for action in self._declared.values():
            self._actions[action.id].setShortcut(QKeySequence(action.shortcut))
        self._save_shortcuts()

    def _save_shortcuts(self) -> None:
        changed: dict[str, str] = {}
        for name, action in self._actions.items():
            sequence = action.shortcut()
            if sequence != QKeySequence(self._declared[name].shortcut):
                written = sequence.toString(QKeySequence.SequenceFormat.PortableText)
                changed[name] = written or "none"
        self._settings.change_setting(SHORTCUTS, changed)
        self.shortcuts_changed.emit()
