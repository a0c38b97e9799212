"""Choosing, correcting and connecting models, from the model button at the top right."""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from helix_desktop.gui.common.widgets import add_menu_choice, build_popup_menu, open_menu_below
from helix_desktop.gui.conversation_sides import ConversationSides
from helix_desktop.gui.frame.connect_model_panel import DEMO_MODEL
from helix_desktop.gui.frame.model_chooser import ModelChooser
from helix_desktop.gui.frame.top_bar import TopBar
from helix_desktop.gui.frame.welcome_page import ConnectModelDialog
from helix_desktop.gui.model_setup_port import ModelChoice, ModelSetupPort
from helix_desktop.gui.shown_workspace import ShownWorkspace
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import tr
from helix_desktop.gui.window_parts import WindowParts
from helix_desktop.gui.workbench_types import ForeignConversation, Session

if TYPE_CHECKING:
    from helix_desktop.gui.settings.edit_model_dialog import EditModelDialog

LONGEST_CHOICE = 60  # The texts of an agent's options are cut to this many characters.


class ModelActions(QObject):
    """`_after_model_chosen` runs once a model is chosen: it sends the first message."""

    def __init__(
        self, parts: WindowParts, top: TopBar, sides: ConversationSides, setup: ModelSetupPort
    ) -> None:
        super().__init__(parts.widget)
        self._parts = parts
        self._showing = parts.showing
        self._model_button = top.model
        self._sides = sides
        self._setup = setup
        self._dialog: ConnectModelDialog | None = None
        self._after_model_chosen: Callable[[], object] | None = None
        self.chooser = ModelChooser(parts.theme, parts.state_file, parts.widget)
        self.chooser.opened.connect(self._fill_chooser)
        self.chooser.closed_without_choice.connect(self._forget_waiting_action)
        self.chooser.chosen.connect(self.use_chosen_model)
        self.chooser.edit_wanted.connect(self._edit_model_and_go_on_choosing)
        self.chooser.connect_wanted.connect(self.open_connect_dialog)
        top.model.choice_wanted.connect(self.open_model_chooser)
        parts.actions.set_action_handler("model-price", self.edit_current_model)

    def _fill_chooser(self) -> None:
        self._parts.run_for_window(
            self._setup.list_known_models(), then=self._show_and_refresh_models
        )

    def open_model_chooser(self, query: str = "") -> None:
        """Lets the user choose a model, of those that match the query."""
        if not self._showing.has_workspace():
            return
        if not self._showing.foreign_agent:
            does_message_wait = self._after_model_chosen is not None
            self.chooser.open_below(
                self._model_button,
                self._showing.main_model,
                query,
                used_tokens=self._tokens_of_shown_conversation(),
                message_waits=does_message_wait,
            )
            return
        bench = self._showing.bench
        session = self._showing.session
        if bench is None or session is None:
            self._parts.notices.show_notice(
                tr("The options of this agent can be chosen only where its workspace is open.")
            )
            return
        show = partial(self._show_agent_option_menu, session)
        self._parts.run_for_window(bench.acp.start_agent(session.conversation), then=show)

    def _tokens_of_shown_conversation(self) -> int:
        conversation = self._showing.conversation
        if conversation is None:
            return 0
        return conversation.context.next_request_meter().used

    def choose_first_model(self, then: Callable[[], object]) -> None:
        self._after_model_chosen = then
        self._parts.run_for_window(self._setup.list_known_models(), then=self._choose_or_connect)

    def _choose_or_connect(self, models: Sequence[ModelChoice]) -> None:
        has_real_model = any(model.name != DEMO_MODEL for model in models)
        if has_real_model:
            self.open_model_chooser()
        else:
            self.open_connect_dialog()

    def _show_and_refresh_models(self, models: Sequence[ModelChoice]) -> None:
        self.chooser.show_known_models(models)
        self._parts.run_for_window(
            self._setup.refresh_model_lists(), then=self.chooser.show_refreshed_models
        )

    def use_chosen_model(self, model: str) -> None:
        bench = self._showing.workspace
        if bench is None or not model:
            return
        # The dialogs that close now forget the action, which is run once the choice is saved.
        waiting_action = self._after_model_chosen
        self._after_model_chosen = None
        show = partial(self._show_chosen_model, waiting_action)
        self._parts.run_for_window(self._save_chosen_model(bench, model), then=show)

    def _show_chosen_model(self, waiting_action: Callable[[], object] | None, _done: None) -> None:
        self._parts.requests.choices_changed.emit()
        self._sides.current.composer.text.setFocus()
        if waiting_action is not None:
            waiting_action()

    async def _save_chosen_model(self, bench: ShownWorkspace, model: str) -> None:
        """Changes the model of the shown conversation, and of those that begin from now on."""
        await bench.choose_model_for_role(model)
        session = self._showing.conversation
        if session is not None:
            await bench.save_conversation_model(session.id, model)

    def _forget_waiting_action(self) -> None:
        self._after_model_chosen = None

    def open_connect_dialog(self) -> None:
        if self._dialog is not None:
            self._dialog.raise_()
            return
        does_message_wait = self._after_model_chosen is not None
        dialog = ConnectModelDialog(
            self._setup, self._parts.runner, self._parts.widget, message_waits=does_message_wait
        )
        self._dialog = dialog
        dialog.chosen.connect(self.use_chosen_model)
        # Only the models of the new provider: Enter takes one of these, not one that was there.
        dialog.added.connect(self.open_model_chooser)
        dialog.rejected.connect(self._forget_waiting_action)
        dialog.finished.connect(self._forget_connect_dialog)
        dialog.open()

    def _forget_connect_dialog(self, _result: int) -> None:
        self._dialog = None

    def edit_current_model(self) -> None:
        """Opens the dialog that corrects the model, above all to set an unknown price."""
        self._parts.run_for_window(
            self._setup.list_known_models(), then=self._open_dialog_of_shown_model
        )

    def _open_dialog_of_shown_model(self, models: Sequence[ModelChoice]) -> None:
        for model in models:
            if model.name == self._showing.main_model:
                self._open_model_dialog(model, "input")

    def _edit_model_and_go_on_choosing(self, model: ModelChoice) -> None:
        """Corrects a model of the list, and then shows the list again: a message may wait for the
        choice.
        """
        dialog = self._open_model_dialog(model)
        dialog.finished.connect(lambda _result: self._show_chooser_again(model))

    def _show_chooser_again(self, model: ModelChoice) -> None:
        self.open_model_chooser()
        self.chooser.highlight_model(model.name)

    def _open_model_dialog(self, model: ModelChoice, first_field: str = "") -> "EditModelDialog":
        """Opens the dialog that corrects a model, at the field that the user has asked for."""
        from helix_desktop.gui.settings.edit_model_dialog import EditModelDialog

        dialog = EditModelDialog(model, self._parts.widget)
        dialog.corrected.connect(partial(self._correct_model, model))
        dialog.reset.clicked.connect(lambda: self._reset_model(model))
        wanted_field = dialog.findChild(QWidget, first_field)
        if first_field and wanted_field is not None:
            wanted_field.setFocus()
        dialog.open()
        return dialog

    def _correct_model(self, model: ModelChoice, values: Any) -> None:
        self._save_and_tell(model, self._setup.correct_model_values(model.name, values))

    def _reset_model(self, model: ModelChoice) -> None:
        self._save_and_tell(model, self._setup.reset_model_values(model.name))

    def _save_and_tell(self, model: ModelChoice, saving: Coroutine[Any, Any, None]) -> None:
        self._parts.run_for_window(saving, then=partial(self._notice_corrected_model, model))

    def _notice_corrected_model(self, model: ModelChoice, _done: None) -> None:
        self._parts.requests.choices_changed.emit()
        if self.chooser.isVisible():
            self._fill_chooser()
        self._parts.notices.show_notice(
            tr("{model}: the change applies from the next message.", model=model.id)
        )

    def _show_agent_option_menu(self, session: Session, foreign: ForeignConversation) -> None:
        """Shows a submenu for each option, unless another conversation is shown by then."""
        if self._showing.conversation is not session:
            return

        menu = build_popup_menu(self._model_button)
        for option in foreign.choices.values():
            current_name = option.values.get(option.current, option.current)
            submenu_title = f"{_agent_menu_label(option.name)}: {_agent_menu_label(current_name)}"
            submenu = menu.addMenu(submenu_title)
            for value, name in option.values.items():
                label = make_safe_text(name or value)[:LONGEST_CHOICE]
                choose = partial(self._choose_agent_option, session, foreign, option.id, value)
                add_menu_choice(submenu, label, choose, chosen=value == option.current)
        if not foreign.choices:
            name = _agent_menu_label(foreign.name)
            nothing = menu.addAction(tr("{agent} has no options to choose from", agent=name))
            nothing.setEnabled(False)
        open_menu_below(menu, self._model_button, gap=4)

    def _choose_agent_option(
        self, session: Session, foreign: ForeignConversation, option_id: str, value: str
    ) -> None:
        choosing = foreign.choose_agent_option(session.conversation, option_id, value)
        self._parts.run_for_window(choosing)


def _agent_menu_label(foreign: str) -> str:
    """Returns an agent's text on one line, without making any letter a shortcut."""
    return make_safe_text(foreign)[:LONGEST_CHOICE].replace("&", "&&")
