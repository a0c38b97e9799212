"""The settings page for the models of a workspace: one for each role, and how long the main model
thinks.
"""

from collections.abc import Sequence
from functools import partial

from PySide6.QtWidgets import QWidget

from helix_desktop.gui.common.setting_fields import (
    FieldDeclaration,
    Value,
    build_field_row,
    build_labelled_row,
)
from helix_desktop.gui.common.widgets import build_push_button
from helix_desktop.gui.frame.model_chooser import (
    ModelChooser,
    format_model_price,
    format_model_window,
)
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.model_setup_port import ModelChoice
from helix_desktop.gui.rows_and_columns import build_row
from helix_desktop.gui.settings.settings_page import WorkspaceSettingsPage
from helix_desktop.gui.translation import read_shown_names, tr, translate_name
from helix_desktop.gui.workbench_types import Workbench

EFFORTS = ("", "low", "medium", "high")  # The values that the setting `ModelSet.effort` accepts.


class ModelsPage(WorkspaceSettingsPage):
    """Each role has a button that opens the same chooser as the window's."""

    def __init__(self, window: MainWindow, bench: Workbench, models: Sequence[ModelChoice]) -> None:
        super().__init__(tr("Models"), bench, window.background_runner)
        self._window = window
        self._models = {model.name: model for model in models}
        self._chooser: ModelChooser | None = None
        self._rebuild_models_page()

    def show_known_models(self, models: Sequence[ModelChoice]) -> None:
        self._models = {model.name: model for model in models}
        self._rebuild_models_page()

    def _rebuild_models_page(self) -> None:
        self.clear_page()
        self.add_sentence(
            tr("If you don't choose a fast or long-context model, the main model is used instead.")
        )
        settings = self._bench.workspace.settings
        for role, sentence in read_shown_names()["what a model is used for"].items():
            title = translate_name("model of a role", role)
            current_model = settings.models.get(role, "")
            row = self._build_role_row(role, title, tr(sentence), current_model)
            self.add_page_widget(row)
        self.add_page_widget(self._build_thinking_row(settings.effort))
        if not self._models:
            self.add_sentence(tr("No models are known yet. Add a provider first."))

    def _build_role_row(self, role: str, title: str, sentence: str, current: str) -> QWidget:
        side = QWidget(self.page_content)
        button = build_push_button(
            self._role_button_text(role, current),
            side,
            lambda: self._open_role_chooser(role, button, current),
            wraps=True,
        )
        button.setObjectName(role)
        button.setAccessibleName(title)
        row = build_row(button, owner=side, margins=0, wraps=True)
        if current and role != "main":
            clear_model = partial(self._save_role_model, role, "")
            clear_button = build_push_button(tr("Clear"), side, clear_model, "link")
            clear_button.setAccessibleName(tr("Use the main model as the {role}", role=title))
            row.addWidget(clear_button)
        return build_labelled_row(title, sentence, side, self.page_content)

    def _role_button_text(self, role: str, name: str) -> str:
        if not name and role == "main":
            return tr("Choose a model…")
        if not name:
            return tr("The main model")
        parts = [name]
        model = self._models.get(name)
        if model is not None:
            parts += [format_model_window(model), format_model_price(model)]
        text = " · ".join(filter(None, parts))
        return text.replace("&", "&&")  # A button would underline the letter after a single &.

    def _open_role_chooser(self, role: str, anchor: QWidget, current: str) -> None:
        """Opens a new chooser each time, which saves the model for this role."""
        if self._chooser is not None:
            self._chooser.deleteLater()
        chooser = ModelChooser(self._window.theme, self._window.state_file, self.window())
        self._chooser = chooser
        chooser.hide_connect_and_edit()
        chooser.chosen.connect(lambda name: self._save_role_model(role, name))
        chooser.open_below(anchor, current)
        chooser.show_known_models(list(self._models.values()), refreshing=False)

    def _save_role_model(self, role: str, name: str) -> None:
        work = self._bench.choose_model_for_role(name, role)
        self._runner.run_in_background(
            work, then=lambda _done: self._rebuild_models_page(), owner=self
        )

    def _build_thinking_row(self, current: str) -> QWidget:
        sentence = tr("How long the main model thinks before it answers. Longer thinking helps with hard problems, but takes more time and costs more.")  # fmt: skip
        labels = [tr("Default"), tr("Short"), tr("Medium"), tr("Long")]
        field = FieldDeclaration("effort", tr("Thinking"), sentence, current, EFFORTS, labels)
        return build_field_row(field, self._save_effort, self.page_content)

    def _save_effort(self, effort: Value) -> None:
        # Without a value, the setting is removed from the file.
        self.change_setting("effort", effort or None)
