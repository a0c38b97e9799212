"""Every action of the window, declared once: the palette, the menus, the shortcuts page and the help are made from it.

A handler is given by whoever can do it (`Actions.on`). An action without a handler at the moment is shown disabled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QWidget

from helix_desktop.gui.words import tr
from helix_desktop.settings import SHORTCUTS, Settings
from helix_desktop.values import dataclass

# What each of them is about; without it they can do nothing.
OF_A_WORKSPACE = (
    "new", "workspace-settings", "workspace-folder", "share-workspace", "export-workspace", "forget-text", "trash-workspace", "find", "compose",
    "attach", "chat", "cache", "timeline", "sidebar", "inspector", "bottom", "next-area", "previous", "next", "policy",
    "lab", "model", "mode", "brought", "side-by-side",
)  # fmt: skip
OF_A_CONVERSATION = (
    "rename", "pin", "fork", "archive", "trash", "export-markdown", "export-json", "export-html", "export-claude-code",
    "export-openai", "fold-marker", "fold-observations", "fold-reflection", "fold-handover", "agents",
)  # fmt: skip
OF_A_QUESTION = ("allow-once", "allow-conversation", "allow-always", "refuse")


@dataclass(frozen=True, slots=True)
class Action:
    """`group` is the menu it stands in; `shortcut` as QKeySequence reads it ("Ctrl" is Command on a Mac)."""

    id: str
    title: str
    group: str
    shortcut: str = ""


def declared() -> tuple[Action, ...]:
    """All actions in the order of the menus, in the user's language."""
    return (*_of_the_window(), *_of_conversations())


def _of_the_window() -> tuple[Action, ...]:
    file, edit, view = tr("Workspace"), tr("Edit"), tr("View")
    return (
        Action("new", tr("New conversation"), file, "Ctrl+N"),
        Action("find-workspace", tr("Go to a workspace…"), file, "Ctrl+O"),
        Action("open-folder", tr("Open folder as workspace…"), file, "Ctrl+Shift+O"),
        Action("workspace-settings", tr("Workspace settings"), file),
        Action("workspace-folder", tr("Change the workspace folder…"), file),
        Action("bring-in", tr("Import conversations…"), file),
        Action("connect-agent", tr("Connect an agent…"), file),
        Action("share-workspace", tr("Share this workspace…"), file),
        Action("join-workspace", tr("Join a shared workspace…"), file),
        Action("export-workspace", tr("Export workspace…"), file),
        Action("import-workspace", tr("Import workspace…"), file),
        Action("forget-text", tr("Forget text everywhere…"), file),
        Action("trash-workspace", tr("Move workspace to trash"), file),
        Action("workspace-trash", tr("Workspaces in the trash…"), file),
        Action("settings", tr("Settings"), file, "Ctrl+,"),
        Action("quit", tr("Quit"), file, "Ctrl+Q"),
        Action("find", tr("Find on this page"), edit, "Ctrl+F"),
        Action("palette", tr("Search everything"), edit, "Ctrl+K"),
        Action("undo", tr("Undo the last change to the conversation list"), edit, "Ctrl+Alt+Z"),
        Action("compose", tr("Write a message"), edit, "Ctrl+L"),
        Action("attach", tr("Attach files…"), edit, "Ctrl+U"),
        Action("chat", tr("Show Chat"), view, "Alt+1"),
        Action("changes", tr("Show Changes"), view, "Alt+4"),
        Action("cache", tr("Show Cache"), view, "Alt+2"),
        Action("timeline", tr("Show Timeline"), view, "Alt+3"),
        Action("sidebar", tr("Show or hide the sidebar"), view, "Ctrl+B"),
        Action("inspector", tr("Show or hide the inspector"), view, "Ctrl+I"),
        Action("bottom", tr("Jump to the newest message"), view, "Ctrl+End"),
        Action("next-area", tr("Move to the next pane"), view, "F6"),
        Action("zoom-in", tr("Larger text"), view, "Ctrl++"),
        Action("zoom-out", tr("Smaller text"), view, "Ctrl+-"),
        Action("zoom-usual", tr("Default text size"), view, "Ctrl+0"),
        Action("light", tr("Light theme"), view),
        Action("dark", tr("Dark theme"), view),
        Action("as-system", tr("Follow the system theme"), view),
        Action("full-screen", tr("Full screen"), view, "F11"),
    )


def _of_conversations() -> tuple[Action, ...]:
    talk, context, helping = tr("Conversation"), tr("Context"), tr("Help")
    return (
        Action("stop", tr("Stop the agent"), talk, "Esc"),
        Action("resume", tr("Continue where the agent stopped"), talk),
        Action("regenerate", tr("Regenerate"), talk, "Ctrl+Shift+R"),
        Action("allow-once", tr("Allow this request once"), talk, "Alt+Y"),
        Action("allow-conversation", tr("Allow this request in this conversation"), talk, "Alt+C"),
        Action("allow-always", tr("Always allow this request"), talk, "Alt+A"),
        Action("refuse", tr("Deny this request"), talk, "Alt+N"),
        Action("previous", tr("Previous conversation"), talk, "Ctrl+PgUp"),
        Action("next", tr("Next conversation"), talk, "Ctrl+PgDown"),
        Action("rename", tr("Rename conversation"), talk, "F2"),
        Action("pin", tr("Pin or unpin conversation"), talk),
        Action("fork", tr("Fork conversation"), talk, "Ctrl+Shift+K"),
        Action("side-by-side", tr("Ask two models…"), talk, "Ctrl+Shift+A"),
        Action("archive", tr("Archive conversation"), talk),
        Action("trash", tr("Move conversation to trash"), talk),
        Action("export-markdown", tr("Export as Markdown…"), talk, "Ctrl+Shift+E"),
        Action("export-json", tr("Export as JSON…"), talk),
        Action("export-html", tr("Export as HTML…"), talk),
        Action("export-claude-code", tr("Export for Claude Code…"), talk),
        Action("export-openai", tr("Export as OpenAI messages…"), talk),
        Action("fold-marker", tr("Cache old outputs now"), context),
        Action("fold-observations", tr("Take observations now"), context),
        Action("fold-reflection", tr("Merge observations now"), context),
        Action("fold-handover", tr("Hand over now"), context, "Ctrl+Shift+H"),
        Action("policy", tr("Choose a policy"), context),
        Action("agents", tr("Show the agents of this conversation…"), context),
        Action("brought", tr("Rules, skills, hooks and agents in this folder…"), context),
        Action("lab", tr("Replay lab: compare policies…"), context),
        Action("model", tr("Choose a model"), context, "Ctrl+M"),
        Action("mode", tr("Choose the permission mode"), context, "Ctrl+Shift+M"),
        Action("tour", tr("Take the tour"), helping, "F1"),
        Action("shortcuts", tr("Keyboard shortcuts"), helping, "Ctrl+/"),
        Action("doctor", tr("Check this installation"), helping),
        Action("about", tr("About Helix Desktop"), helping),
    )


class Actions(QObject):
    """The declared actions as QActions of one window. `changed`: a shortcut is another one now.

    `settings` keeps what differs from the declarations: the action's id, and its keys or "none".
    """

    changed = Signal()

    def __init__(self, window: QWidget, settings: Settings) -> None:
        super().__init__(window)
        self._settings = settings
        self._declared = {each.id: each for each in declared()}
        self._actions: dict[str, QAction] = {}
        for each in self._declared.values():
            made = QAction(each.title, self)
            made.setObjectName(each.id)
            made.setEnabled(False)
            made.setShortcutContext(Qt.ShortcutContext.WindowShortcut)
            made.setShortcut(self._chosen(each))
            self._actions[each.id] = made
            window.addAction(made)

    def __getitem__(self, name: str) -> QAction:
        return self._actions[name]

    def __iter__(self) -> Iterator[Action]:
        return iter(self._declared.values())

    def on(self, name: str, handler: Callable[[], object]) -> None:
        """Say who does it."""
        action = self._actions[name]
        action.triggered.connect(lambda _checked=False: handler())
        action.setEnabled(True)

    def allow(self, names: Iterable[str], *, when: bool) -> None:
        """Whether they can be done at the moment."""
        for name in names:
            self._actions[name].setEnabled(when)

    def shortcut(self, name: str) -> str:
        """As the platform writes it: "Ctrl+K", "⌘K"."""
        return self._actions[name].shortcut().toString(QKeySequence.SequenceFormat.NativeText)

    def groups(self) -> dict[str, list[QAction]]:
        """The actions by menu."""
        menus: dict[str, list[QAction]] = {}
        for each in self:
            menus.setdefault(each.group, []).append(self._actions[each.id])
        return menus

    def change(self, name: str, sequence: QKeySequence) -> str:
        """Give an action another shortcut, or none. Returns the title of the action that had it and lost it."""
        robbed = self._holder(sequence, but=name) if not sequence.isEmpty() else ""
        if robbed:
            self._actions[robbed].setShortcut(QKeySequence())
        self._actions[name].setShortcut(sequence)
        self._keep()
        return self._declared[robbed].title if robbed else ""

    def reset(self) -> None:
        """All shortcuts as they were declared."""
        for each in self:
            self._actions[each.id].setShortcut(QKeySequence(each.shortcut))
        self._keep()

    def _keep(self) -> None:
        changed = {
            i: keys for i, keys in self._keys() if QKeySequence(keys) != QKeySequence(self._declared[i].shortcut)
        }
        self._settings.change(SHORTCUTS, {i: keys or "none" for i, keys in changed.items()})
        self.changed.emit()

    def _keys(self) -> Iterator[tuple[str, str]]:
        portable = QKeySequence.SequenceFormat.PortableText
        return ((i, action.shortcut().toString(portable)) for i, action in self._actions.items())

    def _chosen(self, each: Action) -> QKeySequence:
        kept = self._settings[SHORTCUTS].get(each.id, each.shortcut)
        return QKeySequence() if kept == "none" else QKeySequence.fromString(kept)

    def _holder(self, sequence: QKeySequence, *, but: str) -> str:
        return next((i for i, a in self._actions.items() if i != but and a.shortcut() == sequence), "")
