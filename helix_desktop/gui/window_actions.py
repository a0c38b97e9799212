"""Declares every action of the window once. The command palette, the menus, the shortcuts page and
the help are built from these declarations.

The module that can carry out an action sets its handler (`ActionRegistry.set_action_handler`). An
action without a handler is disabled.
"""

from collections.abc import Callable, Iterable, Iterator

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenu, QMenuBar, QWidget

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.translation import tr
from helix_desktop.histories.program_names import AGENTS_TO_CONTINUE_IN
from helix_desktop.program_settings import SHORTCUTS, ProgramSettings

# Actions that are disabled without an open workspace, conversation or question.
WORKSPACE_ACTIONS = (
    "new", "new-copy", "new-acp", "workspace-settings", "workspace-folder", "share-workspace", "export-workspace", "forget-text", "trash-workspace", "find", "compose",
    "attach", "chat", "cache", "timeline", "sidebar", "inspector", "bottom", "next-area", "previous", "next", "policy",
    "lab", "compare-presets", "model", "mode", "brought", "beside",
)  # fmt: skip
LISTED_CONVERSATION_ACTIONS = (
    "rename", "pin", "fork", "fork-copy", "bring-back", "archive", "trash", "export-markdown", "export-json",
    "export-openai", *(f"continue-{agent}" for agent in AGENTS_TO_CONTINUE_IN),
)  # fmt: skip
CONVERSATION_ACTIONS = (
    *LISTED_CONVERSATION_ACTIONS, "fold-marker", "fold-observations", "fold-reflection", "fold-handover", "agents",
)  # fmt: skip
QUESTION_ACTIONS = ("allow-once", "allow-conversation", "allow-always", "refuse")


@dataclass(frozen=True, slots=True)
class WindowAction:
    """`group` is its menu. `shortcut` has QKeySequence's form ("Ctrl" is Command on a Mac)."""

    id: str
    title: str
    group: str
    shortcut: str = ""


def declare_actions() -> tuple[WindowAction, ...]:
    """Returns all actions in the order of the menus, in the user's language."""
    return (*_window_actions(), *_conversation_actions())


def _window_actions() -> tuple[WindowAction, ...]:
    file, edit, view = tr("Workspace"), tr("Edit"), tr("View")
    return (
        WindowAction("new", tr("New conversation"), file, "Ctrl+N"),
        WindowAction("new-copy", tr("New conversation in a copy of the repository…"), file),
        WindowAction("new-acp", tr("New conversation with another agent…"), file),
        WindowAction("find-workspace", tr("Go to a workspace…"), file, "Ctrl+O"),
        WindowAction("open-folder", tr("Open folder as workspace…"), file, "Ctrl+Shift+O"),
        WindowAction("workspace-settings", tr("Workspace settings"), file),
        WindowAction("workspace-folder", tr("Change the workspace folder…"), file),
        WindowAction("bring-in", tr("Import or record conversations…"), file),
        WindowAction("connect-agent", tr("Connect an agent…"), file),
        WindowAction("share-workspace", tr("Share this workspace…"), file),
        WindowAction("join-workspace", tr("Join a shared workspace…"), file),
        WindowAction("export-workspace", tr("Export workspace…"), file),
        WindowAction("import-workspace", tr("Import workspace…"), file),
        WindowAction("forget-text", tr("Forget text everywhere…"), file),
        WindowAction("trash-workspace", tr("Move workspace to trash"), file),
        WindowAction("workspace-trash", tr("Workspaces in the trash…"), file),
        WindowAction("settings", tr("Settings"), file, "Ctrl+,"),
        WindowAction("quit", tr("Quit"), file, "Ctrl+Q"),
        WindowAction("find", tr("Find on this page"), edit, "Ctrl+F"),
        WindowAction("palette", tr("Search everything"), edit, "Ctrl+K"),
        WindowAction("undo", tr("Undo the last change to the conversation list"), edit, "Ctrl+Alt+Z"),
        WindowAction("compose", tr("Write a message"), edit, "Ctrl+L"),
        WindowAction("attach", tr("Attach files…"), edit, "Ctrl+U"),
        WindowAction("chat", tr("Show Chat"), view, "Alt+1"),
        WindowAction("changes", tr("Show Changes"), view, "Alt+2"),
        WindowAction("cache", tr("Show Cache"), view, "Alt+3"),
        WindowAction("timeline", tr("Show Timeline"), view, "Alt+4"),
        WindowAction("fleet", tr("Fleet: tasks, workers and schedules…"), view, "Ctrl+Shift+F"),
        WindowAction("sidebar", tr("Show or hide the sidebar"), view, "Ctrl+B"),
        WindowAction("inspector", tr("Show or hide the inspector"), view, "Ctrl+I"),
        WindowAction("bottom", tr("Jump to the newest message"), view, "Ctrl+End"),
        WindowAction("next-area", tr("Move to the next pane"), view, "F6"),
        WindowAction("zoom-in", tr("Larger text"), view, "Ctrl++"),
        WindowAction("zoom-out", tr("Smaller text"), view, "Ctrl+-"),
        WindowAction("zoom-usual", tr("Default text size"), view, "Ctrl+0"),
        WindowAction("light", tr("Light theme"), view),
        WindowAction("dark", tr("Dark theme"), view),
        WindowAction("as-system", tr("Follow the system theme"), view),
        WindowAction("full-screen", tr("Full screen"), view, "F11"),
    )


def _conversation_actions() -> tuple[WindowAction, ...]:
    talk, context, helping = tr("Conversation"), tr("Context"), tr("Help")
    return (
        WindowAction("stop", tr("Stop the agent"), talk, "Esc"),
        WindowAction("resume", tr("Continue where the agent stopped"), talk),
        WindowAction("regenerate", tr("Regenerate"), talk, "Ctrl+Shift+R"),
        WindowAction("allow-once", tr("Allow this request once"), talk, "Alt+Y"),
        WindowAction("allow-conversation", tr("Allow this request in this conversation"), talk, "Alt+C"),
        WindowAction("allow-always", tr("Always allow this request"), talk, "Alt+A"),
        WindowAction("refuse", tr("Deny this request"), talk, "Alt+N"),
        WindowAction("previous", tr("Previous conversation"), talk, "Ctrl+PgUp"),
        WindowAction("next", tr("Next conversation"), talk, "Ctrl+PgDown"),
        WindowAction("next-waiting", tr("Next conversation that is waiting for you"), talk, "Ctrl+J"),
        WindowAction("beside", tr("Open a conversation to the side…"), talk, "Ctrl+D"),
        WindowAction("other-side", tr("Go to the conversation in the other pane"), talk, "Ctrl+Shift+D"),
        WindowAction("close-side", tr("Close this pane"), talk, "Ctrl+W"),
        WindowAction("rename", tr("Rename conversation"), talk, "F2"),
        WindowAction("pin", tr("Pin or unpin conversation"), talk),
        WindowAction("fork", tr("Fork conversation"), talk, "Ctrl+Shift+K"),
        WindowAction("fork-copy", tr("Fork conversation into a copy of the repository"), talk),
        WindowAction("bring-back", tr("Bring back…"), talk),
        WindowAction("archive", tr("Archive conversation"), talk),
        WindowAction("trash", tr("Move conversation to trash"), talk),
        WindowAction("export-markdown", tr("Export as Markdown…"), talk, "Ctrl+Shift+E"),
        WindowAction("export-json", tr("Export as JSON…"), talk),
        *(
            WindowAction(f"continue-{agent}", tr("Continue in {agent}…", agent=title), talk)
            for agent, title in AGENTS_TO_CONTINUE_IN.items()
        ),
        WindowAction("export-openai", tr("Export as OpenAI messages…"), talk),
        WindowAction("fold-marker", tr("Replace old outputs with markers now"), context),
        WindowAction("fold-observations", tr("Condense older messages into observations now"), context),
        WindowAction("fold-reflection", tr("Merge observations about older messages now"), context),
        WindowAction("fold-handover", tr("Write a handover document now"), context, "Ctrl+Shift+H"),
        WindowAction("policy", tr("Choose a preset"), context),
        WindowAction("agents", tr("Show the agents in this conversation…"), context),
        WindowAction("brought", tr("Rules, skills, hooks and agents in this folder…"), context),
        WindowAction("lab", tr("What would other settings have cost here?"), context),
        WindowAction("compare-presets", tr("What would each preset have cost in my last conversations?"), context),
        WindowAction("model", tr("Choose a model"), context, "Ctrl+M"),
        WindowAction("model-price", tr("Set the model's price…"), context),
        WindowAction("mode", tr("Choose the permission mode"), context, "Ctrl+Shift+M"),
        WindowAction("help", tr("Help"), helping, "F1"),
        WindowAction("tour", tr("Take the tour"), helping),
        WindowAction("shortcuts", tr("Keyboard shortcuts"), helping, "Ctrl+/"),
        WindowAction("doctor", tr("Check this installation"), helping),
        WindowAction("about", tr("About Helix Desktop"), helping),
    )


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
            made = QAction(each.title, self, enabled=False, autoRepeat=each.id not in QUESTION_ACTIONS)
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
        return iter(self._declared.values())

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
        others = (i for i, action in self._actions.items() if i != name and action.shortcut() == sequence)
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
        changed = {i: keys for i, keys in current.items() if keys != QKeySequence(declared[i].shortcut)}
        self._settings.change_setting(SHORTCUTS, {i: keys.toString(portable) or "none" for i, keys in changed.items()})
        self.shortcuts_changed.emit()
