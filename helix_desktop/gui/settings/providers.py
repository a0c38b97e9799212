"""Providers: those that are set up, and connecting another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from helix_desktop.gui.background import Doing
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.frame.connect import ConnectPanel
from helix_desktop.gui.layouts import clear
from helix_desktop.gui.questions import ask_yes
from helix_desktop.gui.settings.page import Page
from helix_desktop.gui.settings.provider_dialog import ProviderDialog
from helix_desktop.gui.setup import Provider, Setup
from helix_desktop.gui.shared.elided import ElidedLabel
from helix_desktop.gui.shared.plain import plain_label, push_button
from helix_desktop.gui.words import count, tr


class ProvidersPage(Page):
    """`model_chosen`: a provider was connected, and this is the model to begin with."""

    model_chosen = Signal(str)

    def __init__(self, setup: Setup, doing: Doing) -> None:
        super().__init__(tr("Providers"))
        self._setup = setup
        self._doing = doing
        self.sentence(tr("Keys are stored in the system's keyring, and in a file only if you choose to."))
        self._rows = QVBoxLayout()
        self._rows.setSpacing(4)
        self.add_layout(self._rows)
        self.heading(tr("Add a provider"))
        self._panel = self.add(ConnectPanel(setup, doing, self.inside))
        self._panel.chosen.connect(self._chosen)
        self._panel.added.connect(lambda _provider: self.refresh())
        self._panel.look()
        self.refresh()

    def refresh(self) -> None:
        self._doing.do(self._setup.providers(), name="list the providers", then=self._show, owner=self)

    def _chosen(self, model: str) -> None:
        self.refresh()
        self.model_chosen.emit(model)

    def _show(self, providers: Sequence[Provider]) -> None:
        clear(self._rows)
        if not providers:
            label = QLabel(tr("No providers yet."), self.inside)
            label.setProperty("look", "muted")
            self._rows.addWidget(label)
        for provider in providers:
            self._rows.addWidget(self._row(provider))

    def _row(self, provider: Provider) -> QWidget:
        row = QWidget(self.inside)
        row.setProperty("look", "card")
        row.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        line = QHBoxLayout(row)
        line.setContentsMargins(12, 8, 8, 8)
        line.addWidget(plain_label(provider.title, parent=row, wraps=False))
        state = ElidedLabel(row)  # what can be done stays in sight
        state.setProperty("look", "small")
        state.say(self._state(provider))
        line.addWidget(state, 1)
        tested = plain_label("", "small", row, wraps=False)
        line.addWidget(tested)
        line.addWidget(self._button(tr("Test"), provider, lambda: self._test(provider, tested)))
        line.addWidget(self._button(tr("Edit…"), provider, lambda: self._edit(provider)))
        line.addWidget(self._button(tr("Remove"), provider, lambda: self._ask_remove(provider)))
        return row

    def _button(self, text: str, provider: Provider, act: Callable[[], object]) -> QPushButton:
        button = push_button(text, self.inside, act, "link")
        button.setAccessibleName(f"{text}: {provider.title}")
        return button

    def _state(self, provider: Provider) -> str:
        if not provider.needs_key and not provider.key:
            return f"{provider.address} · {tr('no key needed')}"
        return f"{provider.address} · " + (
            tr("key: {where}", where=said(provider.key)) if provider.key else tr("no key")
        )

    def _test(self, provider: Provider, beside: QLabel) -> None:
        beside.setText(tr("Contacting…"))
        self._doing.do(
            self._setup.test(provider, ""),
            name="test a provider",
            then=lambda tested: beside.setText(count(len(tested.models), "{n} model", "{n} models")),
            owner=beside,
            failed=lambda error: beside.setText(said(error.what)),
        )

    def _edit(self, provider: Provider) -> None:
        def saved(address: str, key: str, keep: str) -> None:
            work = self._setup.add(replace(provider, address=address), key, keep)
            self._doing.do(work, name="change a provider", then=done, owner=dialog, failed=dialog.show_error)

        def done(_done: None) -> None:
            dialog.accept()
            self.refresh()

        dialog = ProviderDialog(provider, self)
        dialog.saved.connect(saved)
        dialog.open()

    def _ask_remove(self, provider: Provider) -> None:
        text = tr("Remove {name} and its key? Conversations are not affected.", name=provider.title)
        ask_yes(self, tr("Remove provider"), text, tr("Remove"), lambda: self._remove(provider))

    def _remove(self, provider: Provider) -> None:
        work = self._setup.remove(provider.name)
        self._doing.do(work, name="remove a provider", then=lambda _done: self.refresh(), owner=self)
