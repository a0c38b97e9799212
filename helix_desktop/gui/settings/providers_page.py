"""Lists the configured providers, and changes and adds providers."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFormLayout, QLabel, QLineEdit, QPushButton, QWidget

from helix_desktop.errors import HelixError, NoUsableKeyring
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.elided_label import ElidedLabel
from helix_desktop.gui.frame.connect_model_panel import ConnectModelPanel, KeyPlaceButtons
from helix_desktop.gui.model_setup_port import ModelSetupPort, ProviderChoice, ProviderTestResult
from helix_desktop.gui.question_dialogs import ask_to_confirm
from helix_desktop.gui.rows_and_columns import build_column, build_row, clear_layout
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.settings.settings_page import SettingsPage
from helix_desktop.gui.theme import set_widget_look
from helix_desktop.gui.translation import format_count, tr


class EditProviderDialog(widgets.TransientDialog):
    """`saved` carries the address, the key and where to store it ("keyring", "file" or "session").
    An empty key keeps the present one. The dialog stays open until it is accepted.
    """

    saved = Signal(str, str, str)

    def __init__(self, provider: ProviderChoice, parent: QWidget) -> None:
        super().__init__(tr("Edit provider"), parent, 520, 200)
        self.address = QLineEdit(provider.address, self)
        self.key = QLineEdit(self, echoMode=QLineEdit.EchoMode.Password)
        if provider.key:
            self.key.setPlaceholderText(tr("Leave empty to keep the current key"))
        else:
            self.key.setPlaceholderText(tr("Paste the key"))
        self.address.setAccessibleName(tr("Address"))
        self.key.setAccessibleName(tr("Key"))
        form = QFormLayout()
        form.addRow(tr("Address"), self.address)
        form.addRow(tr("Key"), self.key)
        title = widgets.build_plain_label(provider.title, "title", self, wraps=False)
        self._error_label = widgets.build_plain_label("", "danger", self)
        self._key_places = KeyPlaceButtons(self)
        self._key_places.chosen.connect(self._request_provider_save)
        save = partial(self._request_provider_save, "keyring")
        buttons = widgets.build_confirm_buttons(self, tr("Save"), save)
        build_column(
            title, form, self._error_label, self._key_places, 1, buttons, owner=self, margins=20
        )

    def _request_provider_save(self, key_place: str) -> None:
        address = self.address.text().strip()
        key = self.key.text().strip()
        self.saved.emit(address, key, key_place)

    def show_provider_error(self, error: HelixError) -> None:
        is_choice = isinstance(error, NoUsableKeyring)  # Where to store the key, no failure.
        self._error_label.setText(translate_sentences(str(error)))
        if is_choice:
            set_widget_look(self._error_label, "muted")
        else:
            set_widget_look(self._error_label, "danger")
        self._key_places.setVisible(is_choice)
        # With less height, the fields would be squeezed.
        needed_height = self.heightForWidth(self.width())
        self.resize(self.width(), max(self.height(), needed_height))


class ProvidersPage(SettingsPage):
    """`model_chosen`: a provider was added, and carries the model to start with."""

    model_chosen = Signal(str)

    def __init__(self, setup: ModelSetupPort, runner: BackgroundRunner) -> None:
        super().__init__(tr("Providers"))
        self._setup = setup
        self._runner = runner
        self.add_sentence(
            tr("Model keys are stored in the system's keyring, or in a file if you allow this.")
        )
        self._rows = build_column(spacing=4)
        self.add_page_layout(self._rows)
        self.add_heading(tr("Add a provider"))
        self._panel = self.add_page_widget(ConnectModelPanel(setup, runner, self.page_content))
        self._panel.chosen.connect(self.refresh_providers)
        self._panel.added.connect(self.refresh_providers)
        self._panel.chosen.connect(self.model_chosen)
        self._panel.search_local_servers()
        self.refresh_providers()

    def refresh_providers(self) -> None:
        self._runner.run_in_background(
            self._setup.list_configured_providers(), then=self._show_providers, owner=self
        )

    def _show_providers(self, providers: Sequence[ProviderChoice]) -> None:
        clear_layout(self._rows)
        if not providers:
            label = widgets.build_plain_label(
                tr("No providers yet."), "muted", self.page_content, wraps=False
            )
            self._rows.addWidget(label)
        for provider in providers:
            self._rows.addWidget(self._build_provider_row(provider))

    def _build_provider_row(self, provider: ProviderChoice) -> QWidget:
        """Builds a provider's card: its name, its address and where its key is, the result of a
        test, and the buttons to test, edit and remove it.
        """
        row = widgets.build_surface(self.page_content, "card")
        state = ElidedLabel(row)
        state.setProperty("look", "small")
        state.set_elided_text(self._describe_provider_key(provider))
        test_result = widgets.build_plain_label("", "small", row, wraps=False)
        title = widgets.build_plain_label(provider.title, parent=row, wraps=False)
        run_test = partial(self._test_and_show_result, provider, test_result)
        open_editor = partial(self._open_provider_editor, provider)
        ask_to_remove = partial(self._confirm_and_remove, provider)
        test = self._build_provider_button(tr("Test"), provider, run_test)
        edit = self._build_provider_button(tr("Edit…"), provider, open_editor)
        remove = self._build_provider_button(tr("Remove"), provider, ask_to_remove)
        buttons = widgets.build_surface(row, "plain")
        build_row(test, edit, remove, owner=buttons, margins=0, wraps=True)
        margins = (12, 8, 8, 8)
        build_row(title, (state, 1), test_result, buttons, owner=row, margins=margins, wraps=True)
        return row

    def _build_provider_button(
        self, text: str, provider: ProviderChoice, act: Callable[[], object]
    ) -> QPushButton:
        return widgets.build_push_button(
            text, self.page_content, act, "link", name=f"{text}: {provider.title}"
        )

    def _describe_provider_key(self, provider: ProviderChoice) -> str:
        if provider.key:
            key = tr("key: {where}", where=translate_sentences(provider.key))
        elif provider.needs_key:
            key = tr("no key")
        else:
            key = tr("no key needed")
        return f"{provider.address} · {key}"

    def _test_and_show_result(self, provider: ProviderChoice, result_label: QLabel) -> None:
        result_label.setText(tr("Contacting…"))
        self._runner.run_in_background(
            self._setup.test_provider(provider, ""),
            then=partial(_show_model_count, result_label),
            failed=partial(_show_test_failure, result_label),
            owner=result_label,
        )

    def _open_provider_editor(self, provider: ProviderChoice) -> None:
        dialog = EditProviderDialog(provider, self)
        dialog.saved.connect(partial(self._save_edited_provider, dialog, provider))
        dialog.open()

    def _save_edited_provider(
        self,
        dialog: EditProviderDialog,
        provider: ProviderChoice,
        address: str,
        key: str,
        key_place: str,
    ) -> None:
        changed = replace(provider, address=address)
        self._runner.run_in_background(
            self._setup.add_provider_with_key(changed, key, key_place),
            then=partial(self._close_editor, dialog),
            failed=dialog.show_provider_error,
            owner=dialog,
        )

    def _close_editor(self, dialog: EditProviderDialog, _done: None) -> None:
        dialog.accept()
        self.refresh_providers()

    def _confirm_and_remove(self, provider: ProviderChoice) -> None:
        text = tr(
            "Remove {name} and its key? Conversations stay, but those with one of its models need another model.",
            name=provider.title,
        )
        remove = partial(self._remove_provider, provider)
        ask_to_confirm(self, tr("Remove provider"), text, tr("Remove"), remove)

    def _remove_provider(self, provider: ProviderChoice) -> None:
        self._runner.run_in_background(
            self._setup.remove_provider_and_key(provider.name),
            then=lambda _done: self.refresh_providers(),
            owner=self,
        )


def _show_model_count(label: QLabel, tested: ProviderTestResult) -> None:
    label.setText(format_count(len(tested.models), "{n} model", "{n} models"))


def _show_test_failure(label: QLabel, error: HelixError) -> None:
    label.setText(translate_sentences(error.what))
