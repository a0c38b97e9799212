"""Small questions in dialogs that never block: each is opened, and answers through a callback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QInputDialog, QMessageBox, QWidget

from helix_desktop.gui.words import tr


def ask_text(parent: QWidget, title: str, label: str, text: str, then: Callable[[str], object]) -> QInputDialog:
    """Ask for a line; `then` gets it unless it is empty or was cancelled."""
    dialog = QInputDialog(parent)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.setWindowTitle(title)
    dialog.setLabelText(label)
    dialog.setTextValue(text)
    dialog.resize(420, dialog.sizeHint().height())
    dialog.textValueSelected.connect(lambda found: then(found.strip()) if found.strip() else None)
    dialog.open()
    return dialog


def ask_yes(parent: QWidget, title: str, text: str, yes: str, then: Callable[[], object]) -> QMessageBox:
    """Ask before something that cannot be taken back; `then` is called on `yes` alone."""
    return ask_which(parent, title, text, "", [(yes, then)])


def ask_which(
    parent: QWidget, title: str, text: str, none: str, ways: Sequence[tuple[str, Callable[[], object]]]
) -> QMessageBox:
    """Offer several ways on, each a button and what it does; `none` (usually "Cancel") does nothing."""
    box = QMessageBox(QMessageBox.Icon.NoIcon, title, text, QMessageBox.StandardButton.Cancel, parent)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    box.setTextFormat(Qt.TextFormat.PlainText)
    box.setDefaultButton(QMessageBox.StandardButton.Cancel)
    if none:
        box.button(QMessageBox.StandardButton.Cancel).setText(none)
    for words, act in ways:
        box.addButton(words, QMessageBox.ButtonRole.AcceptRole).clicked.connect(lambda _checked=False, a=act: a())
    box.open()
    return box


def ask_folder(parent: QWidget, title: str, then: Callable[[Path], object]) -> QFileDialog:
    dialog = QFileDialog(parent, title)
    dialog.setFileMode(QFileDialog.FileMode.Directory)
    dialog.setOption(QFileDialog.Option.ShowDirsOnly)
    return _opened(dialog, lambda names: then(Path(names[0])))


def ask_files(parent: QWidget, title: str, then: Callable[[list[Path]], object]) -> QFileDialog:
    dialog = QFileDialog(parent, title)
    dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
    return _opened(dialog, lambda names: then([Path(name) for name in names]))


def ask_file(parent: QWidget, title: str, pattern: str, then: Callable[[Path], object]) -> QFileDialog:
    """Ask for one file; `pattern` as Qt reads it: "Pictures (*.png)"."""
    dialog = QFileDialog(parent, title)
    dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
    dialog.setNameFilters([pattern, tr("All files (*)")])
    return _opened(dialog, lambda names: then(Path(names[0])))


def ask_new_file(parent: QWidget, title: str, name: str, then: Callable[[Path], object]) -> QFileDialog:
    """Ask where to save; the dialog itself asks before it replaces a file."""
    dialog = QFileDialog(parent, title)
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.selectFile(name)
    return _opened(dialog, lambda names: then(Path(names[0])))


def tell_text(parent: QWidget, title: str, text: str) -> QMessageBox:
    box = QMessageBox(QMessageBox.Icon.NoIcon, title, text, QMessageBox.StandardButton.Close, parent)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    box.setTextFormat(Qt.TextFormat.PlainText)
    box.setWindowTitle(title or tr("Helix Desktop"))
    box.open()
    return box


def _opened(dialog: QFileDialog, then: Callable[[list[str]], object]) -> QFileDialog:
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.filesSelected.connect(lambda names: then(list(names)) if names else None)
    dialog.open()
    return dialog
