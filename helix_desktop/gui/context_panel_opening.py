"""The panel above the meter: what the conversation's context holds, and the preset that shortens
it. It is built when it is first opened.
"""

from functools import cached_property
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.shown_workspace import ShownSession
from helix_desktop.gui.window_contents import WindowContents

if TYPE_CHECKING:
    from helix_desktop.gui.inspector.meter_panel import ContextPanel


class ContextPanelOpener(QObject):
    """`intent_wanted` is what was pressed among the panel's figures."""

    intent_wanted = Signal(object)

    def __init__(self, contents: WindowContents) -> None:
        super().__init__(contents.frame)
        self._parts = contents.parts
        self._frame = contents.frame
        self._pages = contents.pages
        self._sides = contents.sides
        self._sides.call_for_each_side(self._connect_context_button)
        self._sides.side_selected.connect(self.hide_panel)
        self._parts.actions.set_action_handler(
            "policy", self.open_policy_choices, when=self._parts.showing.has_workspace
        )
        self._parts.actions.set_action_handler(
            "show-request",
            self._show_request_of_step,
            when=self._parts.showing.sends_its_requests,
        )

    def _connect_context_button(self, side: ChatPage) -> None:
        self._sides.connect_side(side, side.composer.context_wanted, self.toggle_context_panel)

    @cached_property
    def panel(self) -> "ContextPanel":
        from helix_desktop.gui.inspector.meter_panel import ContextPanel

        panel = ContextPanel(self._parts.theme, self._frame)
        bench = self._parts.showing.workspace
        if bench is not None:
            panel.show_policy(bench.policy_name)
        actions = self._parts.actions
        panel.policy.chosen.connect(self._save_chosen_policy)
        panel.policy.more_wanted.connect(self._open_policy_settings)
        panel.figures.intent_requested.connect(self.intent_wanted)
        panel.compare_link.clicked.connect(actions["lab"].trigger)
        panel.side_link.clicked.connect(self._frame.toggle_side_panel)
        panel.fold_link.clicked.connect(actions["fold-handover"].trigger)
        panel.request_link.clicked.connect(actions["show-request"].trigger)
        return panel

    @property
    def visible_panel(self) -> "ContextPanel | None":
        # To read `panel` would build it. Once it is built, it is among the instance's variables.
        if "panel" not in vars(self) or not self.panel.isVisible():
            return None
        return self.panel

    def hide_panel(self) -> None:
        if self.visible_panel is not None:
            self.visible_panel.hide()

    def show_policy_if_built(self, name: str) -> None:
        if "panel" in vars(self):
            self.panel.show_policy(name)

    def update_if_visible(self, side: ChatPage, session: ShownSession) -> None:
        if self.visible_panel is not None and side is self._sides.current:
            self._show_context_of_side(self.visible_panel, side, session)

    def toggle_context_panel(self) -> None:
        self._frame.switch_to_page("chat")
        side = self._sides.current
        if side.measured_session is not None:
            self.panel.open_or_close_panel(side.composer.context_button)
            self._show_context_of_side(self.panel, side, side.measured_session)

    def _show_context_of_side(
        self, panel: "ContextPanel", side: ChatPage, session: ShownSession
    ) -> None:
        composer = side.composer
        next_message = session.context.estimate_next_message(
            composer.message_parts_with_tokens_to_send(), instead_of=composer.replaced_message
        )
        panel.show_context_of(
            session,
            next_message,
            composer.price.describe_provider_cache(),
            composer.replaced_message,
        )

    def open_policy_choices(self) -> None:
        """Opens the choices where they stand, or in the settings where there is no panel, because
        another agent keeps its own context.
        """
        if self._parts.showing.foreign_agent:
            self._open_policy_settings()
            return
        if self.panel.isHidden():
            self.toggle_context_panel()
        if self.panel.isVisible():
            self.panel.policy.open_choices()

    def _open_policy_settings(self) -> None:
        self._parts.requests.settings_wanted.emit("policy")

    def _save_chosen_policy(self, name: str) -> None:
        bench = self._parts.showing.bench
        if bench is None:
            self._parts.notices.show_done_elsewhere()
        else:
            saving = bench.choose_context_policy(name)
            self._parts.run_for_window(saving, then=self._announce_changed_policy)

    def _announce_changed_policy(self, _result: None) -> None:
        self._parts.requests.choices_changed.emit()

    def _show_request_of_step(self) -> None:
        # Only now: the page is made when it is first asked for, and not while the window starts.
        self._pages.inspector.show_request_of_step()
