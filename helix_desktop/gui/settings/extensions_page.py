"""The installed extensions: which are allowed, why one is off, and the question before one is."""

from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

from PySide6.QtWidgets import QLayout

from helix_desktop.engine.hidden_characters import mark_text
from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.consent_dialog import ConsentDialog, ConsentQuestion
from helix_desktop.gui.common.widgets import build_plain_label, build_push_button
from helix_desktop.gui.rows_and_columns import build_column, build_row, clear_layout
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.settings.installation_port import InstalledExtensions, ShownExtension
from helix_desktop.gui.settings.settings_page import SettingsPage
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import tr


class ExtensionsPage(SettingsPage):
    def __init__(
        self, theme: Theme, extensions: InstalledExtensions, runner: BackgroundRunner
    ) -> None:
        super().__init__(tr("Extensions"))
        self._theme = theme
        self._extensions = extensions
        self._runner = runner
        self.add_sentence(
            tr(
                "Packages of other people that add to Helix Desktop. Each is off until you allow it, and again when its files change."
            )
        )
        self._rows = build_column(margins=(0, 8, 0, 0), spacing=8)
        self.add_page_layout(self._rows)
        self._status_label = self.add_sentence("", "small")
        self._error_label = self.add_sentence("", "danger")
        self._refresh_list()

    def _refresh_list(self) -> None:
        self._runner.run_in_background(
            self._extensions.list_extensions(),
            then=self._show_extensions,
            failed=self._show_error,
            owner=self,
        )

    def _show_extensions(self, extensions: Sequence[ShownExtension]) -> None:
        clear_layout(self._rows)
        for extension in extensions:
            self._rows.addLayout(self._build_row_of_extension(extension))
        if not extensions:
            none_installed = tr("No extensions are installed.")
            self._rows.addWidget(build_plain_label(none_installed, "faint", self.page_content))

    def _build_row_of_extension(self, extension: ShownExtension) -> QLayout:
        title = f"{extension.name} · {extension.package} {extension.version}"
        content = self.page_content
        if extension.state == "allowed":
            switch_off = partial(self._switch_off, extension.name)
            button = build_push_button(tr("Switch off"), content, switch_off)
            button.setAccessibleName(tr("Switch off {name}", name=extension.name))
        else:
            ask = partial(self._ask, extension)
            button = build_push_button(tr("Allow…"), content, ask)
            button.setAccessibleName(tr("Allow {name}…", name=extension.name))
        title_label = build_plain_label(mark_text(title), "", content)
        state = describe_extension_state(extension)
        state_label = build_plain_label(state, "muted", content)
        # The button stands below the words, so that large text has the whole width.
        button_row = build_row(button, 1)
        return build_column(title_label, state_label, button_row, margins=0, spacing=4)

    def _ask(self, extension: ShownExtension) -> None:
        question = _build_question_about_extension(extension)
        ConsentDialog(self._theme, question, self, partial(self._allow, extension)).open()

    def _allow(self, extension: ShownExtension) -> None:
        allowing = self._extensions.allow_extension(extension)
        self._run_change(allowing, tr("It runs once you start Helix Desktop again."))

    def _switch_off(self, name: str) -> None:
        switching = self._extensions.switch_extension_off(name)
        self._run_change(switching, tr("It runs until you quit Helix Desktop."))

    def _run_change(self, change: Coroutine[Any, Any, None], sentence: str) -> None:
        self._error_label.setText("")
        self._runner.run_in_background(
            change, then=partial(self._show_change, sentence), failed=self._show_error, owner=self
        )

    def _show_change(self, sentence: str, _: None) -> None:
        self._status_label.setText(sentence)
        self._refresh_list()

    def _show_error(self, error: HelixError) -> None:
        self._status_label.setText("")
        self._error_label.setText(translate_sentences(str(error)))


def describe_extension_state(extension: ShownExtension) -> str:
    match extension.state:
        case "allowed":
            return tr("Allowed")
        case "changed":
            return tr("Off, because it has changed since you allowed it")
        case "failed":
            reason = mark_text(translate_sentences(extension.why))
            return tr("Switched off: {reason}", reason=reason)
    if extension.why:
        reason = mark_text(translate_sentences(extension.why))
        return tr("Off: {reason}", reason=reason)
    return tr("Off")


def _build_question_about_extension(extension: ShownExtension) -> ConsentQuestion:
    sentence = tr(
        "The code of an extension can do everything that you can do on this computer: read, change and send any of your files. Allow only an extension whose author you trust."
    )
    name = tr("Extension: {name}", name=extension.name)
    package = tr(
        "Package: {package} {version}", package=extension.package, version=extension.version
    )
    code = tr("Code: {target}", target=extension.target)
    files = tr(
        "Files: {count}, SHA-256 {digest}",
        count=extension.file_count,
        digest=extension.files_sha256,
    )
    what_is_allowed = f"{name}\n{package}\n{code}\n{files}"
    return ConsentQuestion(tr("Allow extension"), sentence, what_is_allowed, tr("Allow"))
