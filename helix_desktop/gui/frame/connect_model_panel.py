"""The panel that connects a model: a local server, a pasted and tested key, or the built-in demo.

This is the only place that asks for a key. The key stays in the field until it is tested, and is
then stored by the chosen keeper.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QComboBox, QFormLayout, QHBoxLayout, QLabel, QLineEdit, QWidget

from helix_desktop.engine.context_usage import WindowSizeSource
from helix_desktop.errors import HelixError, NoUsableKeyring
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui import model_setup_port
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.widgets import build_plain_label, build_push_button
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.model_setup_port import ModelChoice, ModelSetupPort, ProviderChoice
from helix_desktop.gui.rows_and_columns import build_column, build_row, clear_layout
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.theme import set_widget_look
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import format_count, format_number, tr

MODEL_BUTTONS_PER_SERVER = 6  # For a local server, at most this many models get a button each.
DEMO_MODEL = "demo/demo"
OTHER_PROVIDER = "other"
LONGEST_SERVER_NAME = 40
_NOT_OF_A_NAME = re.compile(r"[\W_]")  # What is neither a letter nor a digit.


@dataclass(frozen=True, slots=True)
class LocalServers:
    """The model servers found on this computer with their models, and whether one is connected
    already.
    """

    found_servers: Sequence[tuple[ProviderChoice, Sequence[ModelChoice]]]
    has_connected: bool


class ConnectModelPanel(QWidget):
    """`chosen` carries a ready model's name; `added` a provider whose model is chosen next."""

    chosen = Signal(str)
    added = Signal(str)

    def __init__(
        self, setup: ModelSetupPort, runner: BackgroundRunner, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._setup = setup
        self._runner = runner
        self._key_place = "keyring"
        self.setProperty("look", "plain")
        self._local_server_buttons = build_column(spacing=4)
        search_text = tr("Looking for model servers on this computer…")
        self._search_label = build_plain_label(search_text, "muted", self)
        address_row = self._build_address_row()
        self._local_status_label = build_plain_label("", "muted", self)
        self._local_status_label.hide()
        form = self._build_key_form()
        self._status_label = build_plain_label("", "muted", self)
        # Where the last step is reported: below the address or the key that it is about.
        self._shown_status_label = self._status_label
        self._key_places = KeyPlaceButtons(self)
        self._key_places.chosen.connect(self._set_key_place_and_test)
        self._clear_key_and_show_provider_fields()

        demo_label = tr("Use the built-in demo (a script, not a language model)")
        demo = build_push_button(demo_label, self, self._choose_demo, "link", wraps=True)
        local_heading = self._build_panel_heading(tr("On this computer"))
        address_heading = self._build_panel_heading(tr("At another port or on another computer"))
        key_heading = self._build_panel_heading(tr("With an API key"))
        demo_heading = self._build_panel_heading(tr("Just looking?"))
        build_column(
            local_heading,
            self._search_label,
            self._local_server_buttons,
            address_heading,
            address_row,
            self._local_status_label,
            key_heading,
            form,
            self._status_label,
            self._key_places,
            demo_heading,
            (demo, Qt.AlignmentFlag.AlignLeft),
            owner=self,
            margins=0,
            spacing=8,
        )

    def _choose_demo(self) -> None:
        self.chosen.emit(DEMO_MODEL)

    def search_local_servers(self) -> None:
        """Searches this computer for model servers. If there are none, only this panel says so."""
        self._search_label.setText(tr("Looking for model servers on this computer…"))
        self._search_label.show()
        self._runner.run_in_background(
            self._find_local_servers(),
            then=self._show_local_servers,
            failed=self._show_search_error,
            owner=self,
        )

    def _show_search_error(self, error: HelixError) -> None:
        self._search_label.setText(translate_sentences(str(error)))

    async def _find_local_servers(self) -> LocalServers:
        found_servers = await self._setup.find_local_providers()
        # Only the usual ports are searched, and a server may be connected at another.
        has_connected = await self._setup.is_local_server_connected()
        return LocalServers(found_servers, has_connected)

    def _build_panel_heading(self, text: str) -> QLabel:
        label = build_plain_label(text, "heading", self)
        label.setContentsMargins(0, 8, 0, 0)
        return label

    def _build_address_row(self) -> QHBoxLayout:
        """Builds the field for a server without a key, at another port or on another computer."""
        self._local_address = QLineEdit(self, placeholderText="http://localhost:8080/v1")
        self._local_address.setAccessibleName(tr("Address of a server without a key"))
        self._local_address.returnPressed.connect(self.test_local_address_and_add_provider)
        self._connect_local = build_push_button(
            tr("Connect to this address"), self, self.test_local_address_and_add_provider
        )
        return build_row((self._local_address, 1), self._connect_local, wraps=True)

    def test_local_address_and_add_provider(self) -> None:
        address = _complete_server_address(self._local_address.text().strip())
        if not address:
            self._local_address.setFocus()
            return
        self._shown_status_label = self._local_status_label
        self._local_status_label.show()
        if not self._setup.is_provider_address(address):
            self._report_wrong_address(self._local_address)
            return
        other_server = ProviderChoice(OTHER_PROVIDER, OTHER_PROVIDER, "")
        self._test_and_add_provider(_place_at_address(other_server, address), "")

    def _build_key_form(self) -> QFormLayout:
        """Builds the form in which the user chooses a service and enters its key. Only services
        whose address the user has to know have the row for it.
        """
        form = QFormLayout()
        form.setLabelAlignment(Qt.AlignmentFlag.AlignLeft)
        form.setRowWrapPolicy(QFormLayout.RowWrapPolicy.WrapLongRows)
        self._provider = QComboBox(self, minimumContentsLength=12)
        self._provider.setSizeAdjustPolicy(
            QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        )
        for provider in self._setup.list_well_known_providers_with_key():
            self._provider.addItem(provider.title, provider)
        other_server = ProviderChoice(OTHER_PROVIDER, OTHER_PROVIDER, "")
        self._provider.addItem(tr("Another server (OpenAI-compatible)"), other_server)
        self._provider.currentIndexChanged.connect(self._clear_key_and_show_provider_fields)

        self._address = QLineEdit(self, placeholderText="https://llm.example.org/v1")
        self._address.returnPressed.connect(self.test_key_and_add_provider)
        self._address.editingFinished.connect(self._contact_server_at_typed_address)

        self._key = QLineEdit(self, echoMode=QLineEdit.EchoMode.Password)
        self._key.returnPressed.connect(self.test_key_and_add_provider)
        self._test = build_push_button(
            tr("Connect"), self, self.test_key_and_add_provider, "primary"
        )
        key_row = build_row((self._key, 1), self._test, wraps=True)

        self._provider.setAccessibleName(tr("Service"))
        self._address.setAccessibleName(tr("Address"))
        self._key.setAccessibleName(tr("Key"))

        form.addRow(tr("Service"), self._provider)
        form.addRow(tr("Address"), self._address)
        form.addRow(tr("Key"), key_row)
        self._form = form
        return form

    def _clear_key_and_show_provider_fields(self) -> None:
        """Clears the key: one typed for a provider is never sent to another."""
        self._key.clear()
        self._key_places.hide()
        self._shown_status_label = self._status_label
        provider = self._chosen_provider()
        has_own_address = bool(provider.address_variable)
        is_other = provider.name == OTHER_PROVIDER
        self._form.setRowVisible(self._address, is_other or has_own_address)
        self._key.setPlaceholderText(_describe_wanted_key(provider))
        if has_own_address:
            self._address.setText(provider.address)
            status = tr(
                "This address is set by the environment variable {variable}.",
                variable=provider.address_variable,
            )
            self._show_connect_status(status)
        else:
            self._address.setText("")
            self._show_connect_status("")

    def _chosen_provider(self) -> ProviderChoice:
        provider = self._provider.currentData()
        if isinstance(provider, ProviderChoice):
            return provider
        return ProviderChoice(OTHER_PROVIDER, OTHER_PROVIDER, "")

    def _show_local_servers(self, servers: LocalServers) -> None:
        clear_layout(self._local_server_buttons)
        self._search_label.setVisible(not servers.found_servers)
        if servers.has_connected:
            self._search_label.setText(tr("No other model server was found on this computer."))
        else:
            self._search_label.setText(tr("No model server was found at its usual port on this computer. Models here cost nothing: install Ollama (ollama.com) and run “ollama pull qwen3:4b” in a terminal, or start llama.cpp with “llama-server -hf NAME”. They are then listed here."))  # fmt: skip
        for server, models in servers.found_servers:
            self._add_buttons_of_server(server, models)

    def _add_buttons_of_server(self, server: ProviderChoice, models: Sequence[ModelChoice]) -> None:
        for model in models[:MODEL_BUTTONS_PER_SERVER]:
            # llama.cpp names a model by the path of its file, which is too long for a button.
            shown_name = model.id.rpartition("/")[2]
            label = tr("{model} from {server}", model=shown_name, server=server.title)
            if model.sure is not WindowSizeSource.ASSUMED:
                window = tr("{window} tokens", window=format_token_count(model.window))
                label = f"{label} · {window}"
            self._add_local_model_button(label, server, model.name)
        if len(models) > MODEL_BUTTONS_PER_SERVER:
            count = format_number(len(models))
            label = tr("All {n} models of {server}…", n=count, server=server.title)
            # Without a model, the user chooses one after the server was added.
            self._add_local_model_button(label, server, "")

    def _add_local_model_button(self, label: str, server: ProviderChoice, model: str) -> None:
        add = partial(self._add_provider, server, "", model)
        # A single "&" would make the next letter a shortcut.
        button = build_push_button(label.replace("&", "&&"), self, add, wraps=True)
        self._local_server_buttons.addWidget(button, 0, Qt.AlignmentFlag.AlignLeft)

    def test_key_and_add_provider(self) -> None:
        """Tests the key. A key that works is stored, and the provider's best model is chosen."""
        self._address.setModified(False)
        self._shown_status_label = self._status_label
        if self._has_wrong_address():
            self._report_wrong_address(self._address)
            return
        provider = self._provider_from_form()
        key = self._key.text().strip()
        if provider.needs_key and not (key or provider.key):
            self._show_connect_status(tr("Paste your {service} key first.", service=provider.title))
            return
        self._test_and_add_provider(provider, key)

    def _test_and_add_provider(self, provider: ProviderChoice, key: str) -> None:
        self._show_connect_status(tr("Contacting {service}…", service=provider.title))
        # A button that is disabled would pass the focus on to the demo.
        if self.focusWidget() is self._test:
            self._key.setFocus()
        elif self.focusWidget() is self._connect_local:
            self._local_address.setFocus()
        self._test.setEnabled(False)
        self._connect_local.setEnabled(False)
        testing = self._setup.test_provider(provider, key)
        add_provider = partial(self._add_tested_provider, provider, key)
        self._runner.run_in_background(
            testing, then=add_provider, failed=self._show_connect_error, owner=self
        )

    def _add_tested_provider(
        self, provider: ProviderChoice, key: str, tested: model_setup_port.ProviderTestResult
    ) -> None:
        self._test.setEnabled(True)
        self._connect_local.setEnabled(True)
        if not tested.models:
            status = tr("{service} lists no models. Check the address.", service=provider.title)
            self._show_connect_status(status, look="danger")
            return
        status = _describe_working_connection(len(tested.models), keyed=bool(key))
        self._show_connect_status(status)
        self._add_provider(provider, key, tested.best)

    def _contact_server_at_typed_address(self) -> None:
        """Reports a wrong address before the user pastes a key."""
        if not self._address.isModified() or not self._address.text().strip():
            return
        self._address.setModified(False)
        self._shown_status_label = self._status_label
        if self._has_wrong_address():
            self._report_wrong_address(self._address)
            return
        provider = self._provider_from_form()
        self._show_connect_status(tr("Contacting {service}…", service=provider.title))
        checking = self._setup.check_provider_address(provider)
        self._runner.run_in_background(
            checking,
            then=lambda _done: self._show_connect_status(""),
            failed=self._show_connect_error,
            owner=self,
        )

    def _has_wrong_address(self) -> bool:
        """Whether an address was typed that no server can have."""
        address = _complete_server_address(self._address.text().strip())
        return bool(address) and not self._setup.is_provider_address(address)

    def _report_wrong_address(self, field: QLineEdit) -> None:
        """Says it in the words that were typed: the server's name is made of them."""
        sentence = tr("“{address}” is not the address of a server. Write it like this: {example}", address=make_safe_text(field.text().strip()), example=field.placeholderText())  # fmt: skip
        self._show_connect_status(sentence, look="danger")

    def _provider_from_form(self) -> ProviderChoice:
        provider = self._chosen_provider()
        address = _complete_server_address(self._address.text().strip())
        if provider.name != OTHER_PROVIDER and provider.address_variable:
            return replace(provider, address=address)
        if provider.name != OTHER_PROVIDER:
            return provider
        return _place_at_address(provider, address)

    def _add_provider(self, provider: ProviderChoice, key: str, model: str) -> None:
        adding = self._setup.add_provider_with_key(provider, key, self._key_place)
        report_added = partial(self._report_added_provider, provider, model)
        self._runner.run_in_background(
            adding, then=report_added, failed=self._show_connect_error, owner=self
        )

    def _report_added_provider(self, provider: ProviderChoice, model: str, _done: None) -> None:
        self._key.clear()
        self._key_place = "keyring"
        self._key_places.hide()
        if model:
            self.chosen.emit(model)
        else:
            self.added.emit(provider.title)

    def _show_connect_error(self, error: HelixError) -> None:
        self._test.setEnabled(True)
        self._connect_local.setEnabled(True)
        # Where to store a key without a keyring is a choice, no failure.
        is_choice = isinstance(error, NoUsableKeyring)
        self._key_places.setVisible(is_choice)
        sentences = translate_sentences(str(error))
        if is_choice:
            self._show_connect_status(sentences)
        else:
            self._show_connect_status(sentences, look="danger")

    def _set_key_place_and_test(self, key_place: str) -> None:
        self._key_place = key_place
        self.test_key_and_add_provider()

    def _show_connect_status(self, text: str, look: str = "muted") -> None:
        self._shown_status_label.setText(text)
        set_widget_look(self._shown_status_label, look)


class KeyPlaceButtons(QWidget):
    """Asks where to store a key when the system has no keyring; hidden until then."""

    chosen = Signal(str)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        use_for_session = partial(self.chosen.emit, "session")
        save_in_file = partial(self.chosen.emit, "file")
        session_button = build_push_button(
            tr("Use the key for this session only"), self, use_for_session, wraps=True
        )
        file_button = build_push_button(
            tr("Save the key in a file only I can read"), self, save_in_file, wraps=True
        )
        build_row(session_button, file_button, owner=self, margins=0, wraps=True)
        self.hide()


def _describe_wanted_key(provider: ProviderChoice) -> str:
    if provider.key:
        return tr("Leave empty to use the key in {variable}", variable=provider.variable)
    if provider.needs_key:
        return tr("Paste the key")
    return tr("Paste the key, if a key is needed")


def _place_at_address(provider: ProviderChoice, address: str) -> ProviderChoice:
    name = _name_server_by_address(address)
    return replace(provider, name=name, title=name, address=address, kind="openai-chat")


def _complete_server_address(address: str) -> str:
    """Adds the missing scheme: http for this computer and the local network, https for all else."""
    if not address or "://" in address:
        return address
    if address.startswith(("localhost", "127.", "192.168.", "10.", "[::1]")):
        return f"http://{address}"
    return f"https://{address}"


def _name_server_by_address(address: str) -> str:
    """Names an unknown server: "local-8123" on this computer, otherwise its host."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    is_this_computer = host in ("localhost", "127.0.0.1", "::1")
    if is_this_computer and parts.port:
        return f"local-{parts.port}"
    if is_this_computer:
        return "local"
    name = _NOT_OF_A_NAME.sub("-", host.casefold()).strip("-")
    return name[:LONGEST_SERVER_NAME] or OTHER_PROVIDER


def _describe_working_connection(models: int, *, keyed: bool) -> str:
    if keyed:
        return format_count(
            models, "The key works. {n} model available.", "The key works. {n} models available."
        )
    return format_count(
        models, "Connected. {n} model available.", "Connected. {n} models available."
    )
