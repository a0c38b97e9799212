"""How a model is connected: a server found on this machine, a key pasted and tested, or the built-in demonstration.

A key is asked for only here. It stands in the field until it is tested, then goes to where keys are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QComboBox, QFormLayout, QHBoxLayout, QLabel, QLineEdit, QVBoxLayout, QWidget

from helix_desktop.errors import HelixError, NoKeyring
from helix_desktop.gui.background import Doing
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.layouts import clear
from helix_desktop.gui.meter import short
from helix_desktop.gui.setup import Model, Provider, Setup, Sure, Tested
from helix_desktop.gui.shared.plain import plain_label, push_button
from helix_desktop.gui.theme import set_look
from helix_desktop.gui.words import count, tr

SHOWN = 6  # models of a local server that have a button of their own
DEMO = "demo/demo"
OTHER = "other"


class ConnectPanel(QWidget):
    """`chosen` carries the name of a model, ready for use; `added` a provider of whose models the user chooses one."""

    chosen = Signal(str)
    added = Signal(str)

    def __init__(self, setup: Setup, doing: Doing, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._setup = setup
        self._doing = doing
        self._keep = "keyring"
        self.setProperty("look", "plain")
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(8)
        self._found = QVBoxLayout()
        self._found.setSpacing(4)
        self._looking = plain_label(tr("Looking for model servers on this computer…"), "muted", self)
        self._heading(tr("On this computer"))
        self._column.addWidget(self._looking)
        self._column.addLayout(self._found)
        self._heading(tr("With an API key"))
        self._column.addLayout(self._form())
        self._said = plain_label("", "muted", self)
        self._column.addWidget(self._said)
        self._instead = KeyPlaces(self)
        self._instead.chosen.connect(self._again)
        self._column.addWidget(self._instead)
        self._heading(tr("Just looking?"))
        words = tr("Use the built-in demo (a script, not a language model)")
        demo = push_button(words, self, lambda: self.chosen.emit(DEMO), "link")
        self._column.addWidget(demo, 0, Qt.AlignmentFlag.AlignLeft)

    def look(self) -> None:
        """Look for servers on this machine; said here and nowhere else if there are none."""
        self._looking.setText(tr("Looking for model servers on this computer…"))
        self._looking.show()
        work = self._setup.local()
        self._doing.do(work, name="look for model servers", then=self._show_local, owner=self, failed=self._none_found)

    # --- made of

    def _heading(self, text: str) -> None:
        label = plain_label(text, "heading", self)
        label.setContentsMargins(0, 8, 0, 0)
        self._column.addWidget(label)

    def _form(self) -> QFormLayout:
        form = QFormLayout()
        form.setLabelAlignment(Qt.AlignmentFlag.AlignLeft)
        self._provider = QComboBox(self)
        for provider in self._setup.well_known():
            self._provider.addItem(provider.title, provider)
        self._provider.addItem(tr("Another server (OpenAI-compatible)"), Provider(OTHER, OTHER, ""))
        self._provider.currentIndexChanged.connect(lambda _at: self._another_provider())
        self._address = QLineEdit(self)
        self._address.setPlaceholderText("https://llm.example.org/v1")
        self._address.returnPressed.connect(self.test)
        self._key = QLineEdit(self)
        self._key.setEchoMode(QLineEdit.EchoMode.Password)
        self._key.returnPressed.connect(self.test)
        self._test = push_button(tr("Connect"), self, self.test, "primary")
        row = QHBoxLayout()
        row.addWidget(self._key, 1)
        row.addWidget(self._test)
        for name, widget in ((tr("Service"), self._provider), (tr("Address"), self._address), (tr("Key"), self._key)):
            widget.setAccessibleName(name)
        form.addRow(tr("Service"), self._provider)
        self._address_label = QLabel(tr("Address"), self)
        form.addRow(self._address_label, self._address)
        form.addRow(tr("Key"), row)
        self._provider_changed()
        return form

    def _another_provider(self) -> None:
        """What was said of the one before holds no longer, and its key is not sent to another."""
        self._key.clear()
        self._say("")
        self._instead.hide()
        self._provider_changed()

    def _provider_changed(self) -> None:
        other = self._chosen_provider().name == OTHER
        self._address.setVisible(other)
        self._address_label.setVisible(other)
        needed = self._chosen_provider().needs_key
        self._key.setPlaceholderText(tr("Paste the key") if needed else tr("Paste the key, if one is needed"))

    def _chosen_provider(self) -> Provider:
        found = self._provider.currentData()
        return found if isinstance(found, Provider) else Provider(OTHER, OTHER, "")

    # --- what happens

    def _show_local(self, found: Sequence[tuple[Provider, Sequence[Model]]]) -> None:
        clear(self._found)
        self._looking.setVisible(not found)
        self._looking.setText(tr("No local servers running. Start Ollama or LM Studio and they appear here."))
        for provider, models in found:
            for model in list(models)[:SHOWN]:
                words = tr("{model} from {server}", model=model.id, server=provider.title)
                if model.sure is not Sure.ASSUMED:
                    words = f"{words} · {tr('{window} tokens', window=short(model.window))}"
                self._local_button(words, provider, model.name)
            if len(models) > SHOWN:
                self._local_button(
                    tr("All {n} models of {server}…", n=len(models), server=provider.title), provider, ""
                )

    def _local_button(self, words: str, provider: Provider, model: str) -> None:
        button = push_button(words.replace("&", "&&"), self, lambda: self._add(provider, "", model))
        self._found.addWidget(button, 0, Qt.AlignmentFlag.AlignLeft)

    def _none_found(self, error: HelixError) -> None:
        self._looking.setText(said(str(error)))

    def test(self) -> None:
        """Try the key; a good one is kept and the provider's best model taken."""
        provider, key = self._given(), self._key.text().strip()
        if provider.needs_key and not key:
            self._say(tr("Paste your {service} key first.", service=provider.title))
            return
        self._say(tr("Contacting {service}…", service=provider.title))
        self._test.setEnabled(False)

        def good(tested: Tested) -> None:
            self._test.setEnabled(True)
            self._say(_works(len(tested.models), keyed=bool(key)))
            self._add(provider, key, tested.best)

        work = self._setup.test(provider, key)
        self._doing.do(work, name="test a key", then=good, owner=self, failed=self._failed)

    def _given(self) -> Provider:
        provider = self._chosen_provider()
        if provider.name != OTHER:
            return provider
        address = _address(self._address.text().strip())
        name = _name_of(address)
        return replace(provider, name=name, title=name, address=address, kind="openai-chat")

    def _add(self, provider: Provider, key: str, model: str) -> None:
        def added(_done: None) -> None:
            self._key.clear()
            self._keep = "keyring"
            self._instead.hide()
            if model:
                self.chosen.emit(model)
            else:
                self.added.emit(provider.title)

        work = self._setup.add(provider, key, self._keep)
        self._doing.do(work, name="set up a provider", then=added, owner=self, failed=self._failed)

    def _failed(self, error: HelixError) -> None:
        self._test.setEnabled(True)
        self._say(said(str(error)), look="danger")
        self._instead.setVisible(isinstance(error, NoKeyring))

    def _again(self, keep: str) -> None:
        self._keep = keep
        self.test()

    def _say(self, text: str, look: str = "muted") -> None:
        self._said.setText(text)
        set_look(self._said, look)


class KeyPlaces(QWidget):
    """Where a key can go when the system keeps none, as `Setup.add` names it. Hidden until then."""

    chosen = Signal(str)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(push_button(tr("Use it for this session only"), self, lambda: self.chosen.emit("session")))
        row.addWidget(push_button(tr("Save it in a file only I can read"), self, lambda: self.chosen.emit("file")))
        row.addStretch(1)
        self.hide()


def _address(given: str) -> str:
    """As it was meant: without a scheme it is one of this machine or house, or a service of the web."""
    if not given or "://" in given:
        return given
    near = given.startswith(("localhost", "127.", "192.168.", "10.", "[::1]"))
    return f"{'http' if near else 'https'}://{given}"


def _name_of(address: str) -> str:
    """What an unknown server is called: "local-8123" on this machine, else its host."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    if host in ("localhost", "127.0.0.1", "::1"):
        return f"local-{parts.port}" if parts.port else "local"
    return "".join(sign if sign.isalnum() else "-" for sign in host.casefold()).strip("-")[:40] or OTHER


def _works(models: int, *, keyed: bool) -> str:
    if keyed:
        return count(models, "The key works. {n} model available.", "The key works. {n} models available.")
    return count(models, "Connected. {n} model available.", "Connected. {n} models available.")
