"""Changing a provider that is set up: its address, and its key."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QDialog, QFormLayout, QLineEdit, QVBoxLayout, QWidget

from helix_desktop.errors import HelixError, NoKeyring
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.frame.connect import KeyPlaces
from helix_desktop.gui.setup import Provider
from helix_desktop.gui.shared.plain import plain_label, yes_or_cancel
from helix_desktop.gui.words import tr


class ProviderDialog(QDialog):
    """`saved(address, key, keep)`: an empty key leaves the present one, `keep` is where it goes. Open until it is accepted."""

    saved = Signal(str, str, str)

    def __init__(self, provider: Provider, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Edit provider"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(520, 200)
        self.address = QLineEdit(provider.address, self)
        self.key = QLineEdit(self)
        self.key.setEchoMode(QLineEdit.EchoMode.Password)
        self.key.setPlaceholderText(tr("Leave empty to keep the current key") if provider.key else tr("Paste the key"))
        form = QFormLayout()
        for words, field in ((tr("Address"), self.address), (tr("Key"), self.key)):
            field.setAccessibleName(words)
            form.addRow(words, field)
        title = plain_label(provider.title, "title", self, wraps=False)
        column = QVBoxLayout(self)
        column.setContentsMargins(20, 20, 20, 20)
        column.addWidget(title)
        column.addLayout(form)
        self._said = plain_label("", "danger", self)
        self._instead = KeyPlaces(self)
        self._instead.chosen.connect(self._save)
        column.addWidget(self._said)
        column.addWidget(self._instead)
        column.addStretch(1)
        column.addWidget(yes_or_cancel(self, tr("Save"), lambda: self._save("keyring")))

    def _save(self, keep: str) -> None:
        self.saved.emit(self.address.text().strip(), self.key.text().strip(), keep)

    def show_error(self, error: HelixError) -> None:
        """Nothing was saved; a key that no keyring takes can go elsewhere."""
        self._said.setText(said(str(error)))
        self._instead.setVisible(isinstance(error, NoKeyring))
