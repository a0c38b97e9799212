"""Choosing, correcting and connecting models, from the model button at the top right."""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import QObject, QPoint

from helix_desktop.gui.common.widgets import add_menu_choice, build_popup_menu
from helix_desktop.gui.frame.connect_model_panel import DEMO_MODEL
from helix_desktop.gui.frame.model_chooser import ModelChooser
from helix_desktop.gui.frame.welcome_page import ConnectModelDialog
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.model_setup_port import ModelChoice, ModelSetupPort
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import tr
from helix_desktop.gui.workbench_types import ForeignConversation, Session, Workbench

LONGEST_CHOICE = 60  # The texts of an agent's options are cut to this many characters.


class ModelActions(QObject):
    """`_after_model_chosen` runs once a model is chosen: it sends the first message."""

    def __init__(self, window: MainWindow, setup: ModelSetupPort) -> None:
        super().__init__(window)
        self._window = window
        self._setup = setup
        self._dialog: ConnectModelDialog | None = None
        self._after_model_chosen: Callable[[], object] | None = None
        self.chooser = ModelChooser(window.theme, window.state_file, window)
        show = self._show_and_refresh_models
        self.chooser.opened.connect(
            lambda: window.run_for_window(setup.list_known_models(), then=show)
        )
        self.chooser.closed_without_choice.connect(self._forget_waiting_action)
        self.chooser.chosen.connect(self.use_chosen_model)
        self.chooser.edit_wanted.connect(self._open_model_dialog)
        self.chooser.connect_wanted.connect(self.open_connect_dialog)
        window.top.model.choice_wanted.connect(self.open_model_chooser)
        window.window_actions.set_action_handler("model-price", self.edit_current_model)

    def open_model_chooser(self) -> None:
        window, bench, session = (
            self._window,
            self._window.current_workbench,
            self._window.current_session,
        )
        if bench is not None and session is not None and window.foreign_agent_name:
            work, show = (
                bench.acp.start_agent(session.conversation),
                partial(_show_agent_option_menu, window, session),
            )
            window.run_for_window(work, then=show)
        elif bench is not None:
            self.chooser.open_below(window.top.model, window.current_model)

    def choose_first_model(self, then: Callable[[], object]) -> None:
        self._after_model_chosen = then

        def choose_or_connect(models: Sequence[ModelChoice]) -> None:
            if any(model.name != DEMO_MODEL for model in models):
                self.open_model_chooser()
            else:
                self.open_connect_dialog()

        self._window.run_for_window(self._setup.list_known_models(), then=choose_or_connect)

    def _show_and_refresh_models(self, models: Sequence[ModelChoice]) -> None:
        self.chooser.show_known_models(models)
        self._window.run_for_window(
            self._setup.refresh_model_lists(), then=self.chooser.show_refreshed_models
        )

    def use_chosen_model(self, model: str) -> None:
        bench, window = self._window.current_workbench, self._window
        if bench is None or not model:
            return
        then, self._after_model_chosen = self._after_model_chosen, None

        def show_chosen_model(_done: None) -> None:
            window.show_policy_model_and_permissions()
            window.chat.composer.text.setFocus()
            if then is not None:
                then()

        window.run_for_window(self._save_chosen_model(bench, model), then=show_chosen_model)

    async def _save_chosen_model(self, bench: Workbench, model: str) -> None:
        """Changes the model of a conversation that has one of its own, or else of the workspace."""
        session = self._window.current_session
        if session is not None and bench.model_of_conversation(session.id) != bench.main_model_name:
            await bench.save_conversation_model(
                session.id, "" if model == bench.main_model_name else model
            )
        else:
            await bench.choose_model_for_role(model)

    def _forget_waiting_action(self) -> None:
        self._after_model_chosen = None

    def open_connect_dialog(self) -> None:
        if self._dialog is not None:
            self._dialog.raise_()
            return
        window, waits = self._window, self._after_model_chosen is not None
        dialog = self._dialog = ConnectModelDialog(
            self._setup, window.background_runner, window, message_waits=waits
        )
        dialog.chosen.connect(self.use_chosen_model)
        dialog.added.connect(self.open_model_chooser)
        dialog.rejected.connect(self._forget_waiting_action)
        dialog.finished.connect(lambda _result: self._forget_connect_dialog())
        dialog.open()

    def _forget_connect_dialog(self) -> None:
        self._dialog = None

    def edit_current_model(self) -> None:
        """Opens the dialog that corrects the model, above all to set an unknown price."""

        def open_if_known(models: Sequence[ModelChoice]) -> None:
            for model in [model for model in models if model.name == self._window.current_model]:
                self._open_model_dialog(model)

        self._window.run_for_window(self._setup.list_known_models(), then=open_if_known)

    def _open_model_dialog(self, model: ModelChoice) -> None:
        from helix_desktop.gui.settings.edit_model_dialog import EditModelDialog

        dialog = EditModelDialog(model, self._window)
        change, reset = self._setup.correct_model_values, self._setup.reset_model_values
        dialog.corrected.connect(
            lambda values: self._save_model_correction(model, change(model.name, values))
        )
        dialog.reset.clicked.connect(lambda: self._save_model_correction(model, reset(model.name)))
        dialog.open()

    def _save_model_correction(self, model: ModelChoice, work: Coroutine[Any, Any, None]) -> None:
        words = tr("{model}: the change applies from the next message.", model=model.id)

        def show_corrected_model(_done: None) -> None:
            self._window.show_policy_model_and_permissions()
            self._window.notices.show_notice(words)

        self._window.run_for_window(work, then=show_corrected_model)


def _show_agent_option_menu(
    window: MainWindow, session: Session, foreign: ForeignConversation
) -> None:
    """Shows a submenu for each option, unless another conversation is shown by then."""
    if window.current_session is not session:
        return

    def set_agent_option(identity: str, value: str) -> None:
        window.run_for_window(foreign.choose_agent_option(session.conversation, identity, value))

    menu = build_popup_menu(window.top.model)
    for choice in foreign.choices.values():
        below = menu.addMenu(
            f"{_agent_menu_label(choice.name)}: {_agent_menu_label(choice.values.get(choice.current, choice.current))}"
        )
        for value, name in choice.values.items():
            act = partial(set_agent_option, choice.id, value)
            add_menu_choice(
                below,
                make_safe_text(name or value)[:LONGEST_CHOICE],
                act,
                chosen=value == choice.current,
            )
    if not foreign.choices:
        menu.addAction(
            tr("{agent} has no options to choose from", agent=_agent_menu_label(foreign.name))
        ).setEnabled(False)
    menu.popup(window.top.model.mapToGlobal(QPoint(0, window.top.model.height() + 4)))


def _agent_menu_label(foreign: str) -> str:
    """Returns an agent's text on one line, without making any letter a shortcut."""
    return make_safe_text(foreign)[:LONGEST_CHOICE].replace("&", "&&")
