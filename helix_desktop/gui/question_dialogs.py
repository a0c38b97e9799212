"""Opens small dialogs that never block and answer through a callback."""

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QGuiApplication, QKeyEvent
from PySide6.QtWidgets import (
    QFileDialog,
    QInputDialog,
    QLabel,
    QLineEdit,
    QMessageBox,
    QPushButton,
    QWidget,
)

from helix_desktop.console import escape_control_characters
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.screen_fitting import keep_on_screen
from helix_desktop.gui.theme import make_default_button
from helix_desktop.gui.translation import tr

LONGEST_NAME = 200  # A longer line that the user enters is cut to this many characters.
MOST_KEYS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class DialogChoice:
    """A button of a question, and what is done when it is pressed."""

    label: str
    act: Callable[[], object]


def ask_text(
    parent: QWidget, title: str, label: str, text: str, then: Callable[[str], object]
) -> QInputDialog:
    """Asks for one line of text. `then` gets it unless it is empty; pasted lines are joined."""
    dialog = QInputDialog(parent)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.setWindowTitle(title)
    dialog.setLabelText(label)
    dialog.setTextValue(text)
    keep_on_screen(dialog, 420)
    label_widget = dialog.findChild(QLabel)
    if label_widget is not None:
        label_widget.setWordWrap(True)

    def answer_with_line(typed: str) -> None:
        line = " ".join(typed.split())[:LONGEST_NAME]
        if line:
            then(line)

    dialog.textValueSelected.connect(answer_with_line)
    dialog.open()
    return dialog


def ask_to_confirm(
    parent: QWidget, title: str, text: str, yes: str, then: Callable[[], object]
) -> QMessageBox:
    """Asks before something that cannot be undone; `then` is called only for `yes`."""
    return ask_to_choose_one(parent, title, text, [DialogChoice(yes, then)])


def ask_to_forget_keys(
    parent: QWidget, masked_keys: Sequence[str], then: Callable[[], object]
) -> QMessageBox:
    text = tr("These secrets will be permanently removed from conversations, outputs and backups. The other programs' files will still contain them:\n\n{keys}", keys="\n".join(masked_keys[:MOST_KEYS_SHOWN]))  # fmt: skip
    return ask_to_confirm(parent, tr("Forget secrets"), text, tr("Forget them"), then)


def ask_allow_all_for_an_hour(parent: QWidget, then: Callable[[], object]) -> QMessageBox:
    text = tr("For one hour, in all conversations of this workspace, agents can run commands, change files and use tools without asking you first. Rules that deny something still apply. After the hour, or when the workspace is closed, you are asked again.")  # fmt: skip
    title = tr("Allow everything for an hour?")
    return ask_to_confirm(parent, title, text, tr("Allow for an hour"), then)


def ask_allow_all(parent: QWidget, then: Callable[[], object]) -> QMessageBox:
    text = tr("In all conversations of this workspace, agents can run commands, change files and use tools without asking you first. Rules that deny something still apply.")  # fmt: skip
    return ask_to_confirm(parent, tr("Allow everything?"), text, tr("Allow everything"), then)


def ask_to_choose_one(
    parent: QWidget,
    title: str,
    text: str,
    choices: Sequence[DialogChoice],
    *,
    cancel_label: str = "",
    is_first_usual: bool = False,
) -> QMessageBox:
    """Asks a question with a button for each choice, and one that does nothing.

    `cancel_label` is another name for that last button than "Cancel". `is_first_usual`: the first
    choice is what most people want, and does no harm, so Return takes it.
    """
    box = _build_message_box(parent, title, text, QMessageBox.StandardButton.Cancel)
    if cancel_label:
        box.button(QMessageBox.StandardButton.Cancel).setText(cancel_label)
    usual_button: QPushButton | None = None
    for index, choice in enumerate(choices):
        # Of several buttons with AcceptRole, Qt puts some to the left of Cancel on Linux and
        # macOS.
        button = box.addButton(choice.label, QMessageBox.ButtonRole.YesRole)
        button.clicked.connect(lambda _checked=False, act=choice.act: act())
        if is_first_usual and index == 0:
            usual_button = button
    if usual_button is None:
        box.setDefaultButton(QMessageBox.StandardButton.Cancel)
    else:
        box.setDefaultButton(usual_button)
    # The box has given it the keyboard, too.
    make_default_button(box.defaultButton())
    box.open()
    return box


def _home() -> str:
    """Where the program was started says nothing about where the user's files are."""
    return str(Path.home())


def ask_folder(parent: QWidget, title: str, then: Callable[[Path], object]) -> QFileDialog:
    dialog = QFileDialog(parent, title, _home(), fileMode=QFileDialog.FileMode.Directory)
    dialog.setOption(QFileDialog.Option.ShowDirsOnly)
    return _open_file_dialog(dialog, lambda names: then(Path(names[0])))


def ask_files(
    parent: QWidget, title: str, folder: Path, then: Callable[[list[Path]], object]
) -> QFileDialog:
    dialog = QFileDialog(parent, title, str(folder), fileMode=QFileDialog.FileMode.ExistingFiles)
    return _open_file_dialog(dialog, lambda names: then([Path(name) for name in names]))


def ask_file(
    parent: QWidget, title: str, pattern: str, then: Callable[[Path], object]
) -> QFileDialog:
    """Asks for one file. `pattern` has Qt's form: "Pictures (*.png)"."""
    dialog = QFileDialog(parent, title, _home(), fileMode=QFileDialog.FileMode.ExistingFile)
    dialog.setNameFilters([pattern, tr("All files (*)")])
    return _open_file_dialog(dialog, lambda names: then(Path(names[0])))


def ask_new_file(
    parent: QWidget, title: str, name: str, then: Callable[[Path], object]
) -> QFileDialog:
    """Asks where to save: at first, `name` in the user's folder, or the path `name`. The dialog itself asks before it
    replaces a file. A name that is typed without an ending gets the one of `name`.
    """
    dialog = QFileDialog(parent, title, _home(), acceptMode=QFileDialog.AcceptMode.AcceptSave)
    dialog.setDefaultSuffix(Path(name).suffix)
    dialog.selectFile(name)
    return _open_file_dialog(dialog, lambda names: then(Path(names[0])))


def show_text_box(parent: QWidget, title: str, text: str, command: str = "") -> QMessageBox:
    """Shows a text. `command` is a command line in it, which a button copies."""
    box = _build_message_box(
        parent, title or tr("Helix Desktop"), text, QMessageBox.StandardButton.Close
    )
    box.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    if command:
        copy_button = box.addButton(tr("Copy command"), QMessageBox.ButtonRole.ActionRole)
        copy_button.clicked.connect(lambda: QGuiApplication.clipboard().setText(command))
    box.open()
    return box


def _build_message_box(
    parent: QWidget, title: str, text: str, button: QMessageBox.StandardButton
) -> QMessageBox:
    # Names of files and words of servers are part of many questions.
    safe_title = escape_control_characters(title)
    safe_text = escape_control_characters(text)
    box = QMessageBox(QMessageBox.Icon.NoIcon, safe_title, safe_text, button, parent)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    box.setTextFormat(Qt.TextFormat.PlainText)
    label = box.findChild(QLabel, "qt_msgbox_label")
    if label is not None:
        # Qt wraps only later, so that a long line would not seem to fit the screen.
        label.setWordWrap(True)
    keep_on_screen(box)
    return box


def _open_file_dialog(dialog: QFileDialog, then: Callable[[list[str]], object]) -> QFileDialog:
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    line = dialog.findChild(QLineEdit)
    if line is not None:  # The system's dialogs have no such line.
        line.setCompleter(None)  # type: ignore[arg-type]  # Qt allows none
        line.installEventFilter(_TypedPathAcceptor(dialog, line))

    def answer_with_names(names: list[str]) -> None:
        if names:
            then(list(names))

    dialog.filesSelected.connect(answer_with_names)
    dialog.open()
    return dialog


class _TypedPathAcceptor(QObject):
    """Handles Return in a file dialog's line before the dialog looks at its selection.

    Qt's own dialog lists folders in a thread, and selects each that matches what has been typed
    until then. The selection takes precedence over the typed line, so a fast typist would get a
    parent folder.
    """

    def __init__(self, dialog: QFileDialog, line: QLineEdit) -> None:
        super().__init__(dialog)
        self._dialog = dialog
        self._line = line

    def eventFilter(self, _watched: QObject, event: QEvent) -> bool:
        if not isinstance(event, QKeyEvent) or event.type() is not QEvent.Type.KeyPress:
            return False
        if event.key() not in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            return False
        if self._dialog.acceptMode() is not QFileDialog.AcceptMode.AcceptOpen:
            return False
        typed_path = Path(self._line.text()).expanduser()
        if not typed_path.is_absolute() or not self._is_what_is_asked_for(typed_path):
            return False
        self._dialog.filesSelected.emit([str(typed_path)])
        self._dialog.close()
        return True

    def _is_what_is_asked_for(self, path: Path) -> bool:
        if self._dialog.fileMode() is QFileDialog.FileMode.Directory:
            return path.is_dir()
        return path.is_file()
