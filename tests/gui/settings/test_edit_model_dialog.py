"""What is known of a model, and what the user corrects of it."""

from __future__ import annotations

from PySide6.QtTest import QSignalSpy
from PySide6.QtWidgets import QDoubleSpinBox, QLabel

from helix_desktop.engine.context_usage import WindowSizeSource
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.model_setup_port import ModelChoice
from helix_desktop.gui.settings.edit_model_dialog import EditModelDialog


def test_what_is_not_known_of_a_model_is_said_and_not_shown_as_nothing(window: MainWindow) -> None:
    model = ModelChoice("other/large", 128_000, note="unknown model", sure=WindowSizeSource.ASSUMED)
    dialog = EditModelDialog(model, window)
    assert any(
        label.text().startswith("The size of this model's context window is not known.")
        for label in dialog.findChildren(QLabel)
    )
    assert [field.text() for field in dialog.findChildren(QDoubleSpinBox)] == ["unknown"] * 4
    dialog.reject()


def test_a_reply_longer_than_the_window_is_refused(window: MainWindow) -> None:
    """It was saved without a word."""
    dialog = EditModelDialog(ModelChoice("other/large", 40_000), window)
    saved = QSignalSpy(dialog.corrected)
    dialog.values["max_output"] = 50_000
    dialog._save_values_and_close()
    assert dialog.trouble.text() == "The longest reply cannot be larger than the context window."
    dialog.values["max_output"] = 40_000
    dialog._save_values_and_close()
    assert [saved.at(at) for at in range(saved.count())] == [[{"max_output": 40_000}]]
