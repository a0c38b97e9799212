"""Opens small dialogs that never block and answer through a callback."""

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QGuiApplication, QKeyEvent
from PySide6.QtWidgets import QFileDialog, QInputDialog, QLabel, QLineEdit, QMessageBox, QWidget

from helix_desktop.console import escape_control_characters
from helix_desktop.gui.screen_fitting import keep_on_screen
from helix_desktop.gui.theme import set_widget_look
from helix_desktop.gui.translation import tr

LONGEST_NAME = 200  # A longer line that the user enters is cut to this many characters.


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
    words = dialog.findChild(QLabel)
    if words is not None:
        words.setWordWrap(True)

    def pass_line_on(typed: str) -> None:
        line = " ".join(typed.split())[:LONGEST_NAME]
        if line:
            then(line)

    dialog.textValueSelected.connect(pass_line_on)
    dialog.open()
    return dialog


def ask_to_confirm(
    parent: QWidget, title: str, text: str, yes: str, then: Callable[[], object]
) -> QMessageBox:
    """Asks before something that cannot be undone; `then` is called only for `yes`."""
    return ask_to_choose_one(parent, title, text, "", [(yes, then)])


def ask_to_forget_keys(
    parent: QWidget, masked_keys: Sequence[str], then: Callable[[], object]
) -> QMessageBox:
    text = tr("These keys will be permanently removed from conversations, outputs and backups. The other programs' files will still contain them:\n\n{keys}", keys="\n".join(masked_keys[:20]))  # fmt: skip
    return ask_to_confirm(parent, tr("Forget keys"), text, tr("Forget them"), then)


def ask_allow_all(parent: QWidget, then: Callable[[], object]) -> QMessageBox:
    text = tr("In all conversations of this workspace, agents can run commands, change files and use tools without asking you first. Rules that deny something still apply.")  # fmt: skip
    return ask_to_confirm(parent, tr("Allow everything?"), text, tr("Allow everything"), then)


def ask_to_choose_one(
    parent: QWidget,
    title: str,
    text: str,
    cancel_label: str,
    ways: Sequence[tuple[str, Callable[[], object]]],
    *,
    has_main_way: bool = False,
) -> QMessageBox:
    """Offers several ways, each with a button and its action. `cancel_label` does nothing.
    `has_main_way`: the first way is the usual one and does no harm. Return takes it.
    """
    box = _build_message_box(parent, title, text, QMessageBox.StandardButton.Cancel)
    box.setDefaultButton(QMessageBox.StandardButton.Cancel)
    if cancel_label:
        box.button(QMessageBox.StandardButton.Cancel).setText(cancel_label)
    for words, act in ways:
        # Of several buttons with AcceptRole, Qt puts some to the left of Cancel on Linux and
        # macOS.
        button = box.addButton(words, QMessageBox.ButtonRole.YesRole)
        button.clicked.connect(lambda _checked=False, a=act: a())
        is_main_way = has_main_way and words == ways[0][0]
        if is_main_way:
            set_widget_look(button, "primary")
            box.setDefaultButton(button)
    box.open()
    return box


def ask_folder(parent: QWidget, title: str, then: Callable[[Path], object]) -> QFileDialog:
    # Where the program was started says nothing about where the user's folders are.
    home = str(Path.home())
    dialog = QFileDialog(parent, title, home, fileMode=QFileDialog.FileMode.Directory)
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
    dialog = QFileDialog(parent, title, fileMode=QFileDialog.FileMode.ExistingFile)
    dialog.setNameFilters([pattern, tr("All files (*)")])
    return _open_file_dialog(dialog, lambda names: then(Path(names[0])))


def ask_new_file(
    parent: QWidget, title: str, name: str, then: Callable[[Path], object]
) -> QFileDialog:
    """Asks where to save: at first, the path `name`. The dialog itself asks before it
    replaces a file.
    """
    dialog = QFileDialog(parent, title, acceptMode=QFileDialog.AcceptMode.AcceptSave)
    dialog.selectFile(name)
    return _open_file_dialog(dialog, lambda names: then(Path(names[0])))


def show_text_box(parent: QWidget, title: str, text: str, command: str = "") -> QMessageBox:
    """Shows a text. `command` is a command line in it, which a button copies."""
    box = _build_message_box(
        parent, title or tr("Helix Desktop"), text, QMessageBox.StandardButton.Close
    )
    box.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    if command:
        copying = box.addButton(tr("Copy command"), QMessageBox.ButtonRole.ActionRole)
        copying.clicked.connect(lambda: QGuiApplication.clipboard().setText(command))
    box.open()
    return box


def _build_message_box(
    parent: QWidget, title: str, text: str, button: QMessageBox.StandardButton
) -> QMessageBox:
    # Names of files and words of servers are part of many questions.
    shown = escape_control_characters(text)
    box = QMessageBox(
        QMessageBox.Icon.NoIcon, escape_control_characters(title), shown, button, parent
    )
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

    def pass_names_on(names: list[str]) -> None:
        if names:
            then(list(names))

    dialog.filesSelected.connect(pass_names_on)
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

    def eventFilter(self, _: QObject, event: QEvent) -> bool:
        if isinstance(event, QKeyEvent) and event.type() is QEvent.Type.KeyPress:
            typed = Path(self._line.text()).expanduser()
            fits = (
                typed.is_dir()
                if self._dialog.fileMode() is QFileDialog.FileMode.Directory
                else typed.is_file()
            )
            if (
                event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
                and typed.is_absolute()
                and fits
                and self._dialog.acceptMode() is QFileDialog.AcceptMode.AcceptOpen
            ):
                self._dialog.filesSelected.emit([str(typed)])
                self._dialog.close()
                return True
        return False
