"""Changing a provider that is set up: its address, and its key."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFormLayout, QLineEdit, QWidget

from helix_desktop.errors import HelixError, NoUsableKeyring
from helix_desktop.gui.engine_sentences import translate_sentences
from helix_desktop.gui.frame.connect_panel import KeyPlaceButtons
from helix_desktop.gui.layouts import build_column
from helix_desktop.gui.model_setup_port import ProviderChoice
from helix_desktop.gui.shared.plain_widgets import TransientDialog, build_confirm_buttons, build_plain_label
from helix_desktop.gui.translation import tr


class EditProviderDialog(TransientDialog):
    """`saved(address, key, keep)`: an empty key keeps the present one; `keep` says where the key is
    stored. The dialog stays open until the change is accepted.
    """

    saved = Signal(str, str, str)

    def __init__(self, provider: ProviderChoice, parent: QWidget) -> None:
        super().__init__(tr("Edit provider"), parent)
        self.resize(520, 200)
        self.address = QLineEdit(provider.address, self)
        self.key = QLineEdit(self)
        self.key.setEchoMode(QLineEdit.EchoMode.Password)
        self.key.setPlaceholderText(tr("Leave empty to keep the current key") if provider.key else tr("Paste the key"))
        form = QFormLayout()
        for words, field in ((tr("Address"), self.address), (tr("Key"), self.key)):
            field.setAccessibleName(words)
            form.addRow(words, field)
        title = build_plain_label(provider.title, "title", self, wraps=False)
        self._error_label = build_plain_label("", "danger", self)
        self._key_places = KeyPlaceButtons(self)
        self._key_places.chosen.connect(self._request_provider_save)
        build_column(
            title,
            form,
            self._error_label,
            self._key_places,
            1,
            build_confirm_buttons(self, tr("Save"), lambda: self._request_provider_save("keyring")),
            owner=self,
            margins=(20, 20, 20, 20),
        )

    def _request_provider_save(self, keep: str) -> None:
        self.saved.emit(self.address.text().strip(), self.key.text().strip(), keep)

    def show_provider_error(self, error: HelixError) -> None:
        """Says that nothing was saved. If there is no keyring, offers other places for the key."""
        self._error_label.setText(translate_sentences(str(error)))
        self._key_places.setVisible(isinstance(error, NoUsableKeyring))
