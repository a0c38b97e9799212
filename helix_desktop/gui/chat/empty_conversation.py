"""Shown for a conversation without messages: what the page is for, and what to try first."""

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from helix_desktop.gui.chat.composer import describe_what_rules_allow
from helix_desktop.gui.common.widgets import build_plain_label, build_push_button, set_surface_look
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import tr, translate_name

WIDTH = 460  # The width of the explanation, in pixels.


class EmptyConversationPanel(QWidget):
    """`suggested` fills the composer; `demo_prompt_chosen` is sent to the script unchanged."""

    suggested = Signal(str)
    demo_prompt_chosen = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        """Builds the greeting of a conversation that has no messages: a title, a
        sentence and things to begin with. Which of them are shown is up to
        `show_what_agent_may_do`.
        """
        super().__init__(parent)
        set_surface_look(self, "page")
        self._has_folder = True
        self._has_files = True
        self._is_scripted = False

        self._title = build_plain_label("", "large", self, wraps=False)
        self._words = build_plain_label(" ", "muted", self)
        self._words.setAlignment(Qt.AlignmentFlag.AlignCenter)
        # The demo model begins its tour at a word such as "demo". Every translation contains one.
        demo_prompt = tr("Show me what you can do")
        self.first = build_push_button(
            demo_prompt, self, lambda: self.demo_prompt_chosen.emit(demo_prompt), "primary"
        )
        self._others = [
            self._build_suggestion(tr("Explain this project")),
            self._build_suggestion(tr("Find unfinished work")),
            self._build_suggestion(tr("Run the tests")),
        ]

        column = QVBoxLayout(self)
        column.addStretch(2)
        centred = Qt.AlignmentFlag.AlignHCenter
        column.addWidget(self._title, 0, centred)
        column.addWidget(self._words, 0, centred)
        column.addSpacing(12)
        column.addWidget(self.first, 0, centred)
        for button in self._others:
            column.addWidget(button, 0, centred)
        column.addStretch(3)
        theme.keep_lengths_scaled(self, self._fit_words_to_width, WIDTH)
        self.show_what_agent_may_do(has_folder=True)

    def _build_suggestion(self, suggestion: str) -> QPushButton:
        return build_push_button(suggestion, self, partial(self.suggested.emit, suggestion))

    def _fit_words_to_width(self, width: int) -> None:
        self._words.setFixedWidth(width)
        self._words.setMinimumHeight(self._words.heightForWidth(width))

    def show_demo_or_usual_suggestions(self, *, scripted: bool) -> None:
        """Offers the demo if the built-in script is the model, because it cannot answer
        the usual suggestions.
        """
        self._is_scripted = scripted
        self.first.setVisible(scripted)
        for button in self._others:
            button.setVisible(self._has_folder and self._has_files and not scripted)

    def show_suggestions_about_project(self, *, has_files: bool) -> None:
        """Shows suggestions about the project, or hides them if its folder is empty."""
        self._has_files = has_files
        self.show_demo_or_usual_suggestions(scripted=self._is_scripted)

    def show_what_agent_may_do(
        self,
        *,
        has_folder: bool,
        mode: str = "ask",
        is_foreign_agent: bool = False,
        allowed_uses: Sequence[str] = (),
        model_of_new: str = "",
    ) -> None:
        """Explains the permission mode. In a workspace without a folder, suggestions
        about a project are hidden.

        `is_foreign_agent`: another maker's agent works here. It may do things without asking us, so
        the mode says nothing about them. `allowed_uses`: what rules allow although the mode asks.
        `model_of_new`: with which a conversation begins, because it was chosen last.
        """
        self._has_folder = has_folder
        if is_foreign_agent:
            words = tr("The agent runs with your permissions, as it would in a terminal.")
        elif has_folder:
            asks_first = tr(
                "The agent reads and edits files here and runs commands. You are asked before anything is changed."
            )
            words = translate_name("what an agent may do", mode, otherwise=asks_first)
            words = f"{words} {describe_what_rules_allow(allowed_uses)}".strip()
        else:
            words = tr(
                "This workspace has no folder. Ask anything, attach files, or choose a folder in the settings."
            )
        if model_of_new:
            # The whole name, with the provider, stands at the top right.
            _, _, name = model_of_new.rpartition("/")
            model_words = tr(
                "New conversations begin with the model chosen last: {model}.", model=name
            )
            words = f"{words}\n{model_words}"
        self._words.setText(words)
        self._fit_words_to_width(self._words.width())
        self.show_demo_or_usual_suggestions(scripted=self._is_scripted)

    def show_workspace_name(self, name: str) -> None:
        self._title.setText(tr("What should we work on in {name}?", name=name))
