"""Lends a provider's key to another computer, so that its agent goes on while this one is closed.

Keys stay on this computer otherwise: the agent over there asks its model through the window, and waits
where the window is gone. What is lent is shown below the workspace's name, as long as it is lent.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.running_states import WORKING_STATES
from helix_desktop.gui.frame.window_layout import WindowFrame
from helix_desktop.gui.open_workspaces import OpenWorkspaces
from helix_desktop.gui.question_dialogs import DialogChoice, ask_to_choose_one, ask_to_confirm
from helix_desktop.gui.shown_workspace import client_of_host
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import tr
from helix_desktop.gui.window_parts import WindowParts

if TYPE_CHECKING:
    from helix_desktop.workspace_host.client_workspace import ClientWorkspace


@dataclass(frozen=True, eq=False)
class ConversationElsewhere:
    """A conversation on another computer. `provider`: whose key its agent needs. `is_working`:
    whether the agent is at work now.
    """

    client: "ClientWorkspace"
    conversation: str
    provider: str
    is_working: bool

    @property
    def computer(self) -> str:
        return make_safe_text(self.client.line.computer)

    @property
    def has_key(self) -> bool:
        return bool(self.client.providers_with_lent_key(self.conversation))


class KeyLending(QObject):
    """Offers it for the shown conversation while its agent works, and takes the key back."""

    def __init__(self, parts: WindowParts, frame: WindowFrame, workspaces: OpenWorkspaces) -> None:
        super().__init__(frame)
        self._parts = parts
        self._sidebar = frame.sidebar
        self._workspaces = workspaces
        # Conversations for which a key is on its way.
        self._lending: set[str] = set()
        self._sidebar.key_link.clicked.connect(self._lend_or_take_back)
        parts.showing.workspace_changed.connect(self.show_key_of_conversation)
        parts.showing.conversation_changed.connect(self.show_key_of_conversation)
        workspaces.state_changed.connect(self.show_key_of_conversation)
        workspaces.settings_changed.connect(self.show_key_of_conversation)

    def _shown_conversation(self) -> ConversationElsewhere | None:
        """Returns the shown conversation if it is on another computer."""
        showing = self._parts.showing
        client = client_of_host(showing.workspace)
        if client is None or not client.line.computer or showing.conversation is None:
            return None
        provider, _, _ = showing.main_model.partition("/")
        is_working = showing.conversation.running in WORKING_STATES
        return ConversationElsewhere(client, showing.conversation_id, provider, is_working)

    def show_key_of_conversation(self) -> None:
        shown = self._shown_conversation()
        if shown is None:
            self._sidebar.show_lent_key("", "")
        elif shown.has_key:
            names = ", ".join(shown.client.providers_with_lent_key(shown.conversation))
            sentence = tr(
                "{computer} holds your key for {provider} until the agent is done.",
                computer=shown.computer,
                provider=make_safe_text(names),
            )
            self._sidebar.show_lent_key(sentence, tr("Take the key back"))
        elif shown.conversation in self._lending:
            self._sidebar.show_lent_key(tr("Lending the key…"), "")
        elif shown.is_working:
            self._sidebar.show_lent_key("", tr("Let it go on alone…"))
        else:
            self._sidebar.show_lent_key("", "")

    def _lend_or_take_back(self) -> None:
        shown = self._shown_conversation()
        if shown is None:
            return
        if shown.has_key:
            self._parts.runner.run_in_background(
                shown.client.take_back_lent_key(shown.conversation),
                failed=self._parts.notices.show_error_notice,
            )
        else:
            self._ask_to_lend(shown)

    def _ask_to_lend(self, shown: ConversationElsewhere) -> None:
        text = tr("{computer} gets your key for {provider}, for this conversation alone, and holds it in memory until the agent is done. You may close this computer meanwhile. Whoever controls {computer} can read the key there until then. You can take it back at any time.", computer=shown.computer, provider=make_safe_text(shown.provider))  # fmt: skip
        title = tr("Let the agent go on alone?")
        lend = partial(self._send_key_to_computer, shown)
        ask_to_confirm(self._parts.widget, title, text, tr("Lend the key"), lend)

    def _send_key_to_computer(
        self, shown: ConversationElsewhere, then: Callable[[], object] | None = None
    ) -> None:
        self._lending.add(shown.conversation)
        self.show_key_of_conversation()
        connections = self._workspaces.connections
        lending = connections.lend_key(shown.client.id, shown.conversation, shown.provider)
        self._parts.run_for_window(
            lending,
            then=lambda _: self._end_of_lending(shown, then),
            failed=partial(self._say_why_not_lent, shown),
        )

    def _end_of_lending(
        self, shown: ConversationElsewhere, then: Callable[[], object] | None = None
    ) -> None:
        """The key is there, or will not be. The host tells all windows which of both."""
        self._lending.discard(shown.conversation)
        self.show_key_of_conversation()
        if then is not None:
            then()

    def _say_why_not_lent(self, shown: ConversationElsewhere, error: HelixError) -> None:
        self._end_of_lending(shown)
        self._parts.notices.show_error_notice(error)

    # --- When the program is quit

    def ask_and_quit(self, quit_now: Callable[[], object]) -> None:
        """Quits. If agents on other computers ask their models through this window, it asks first
        whether they get a key, or wait until the user is back.
        """
        waiting = self._list_those_that_would_wait()
        if not waiting:
            quit_now()
            return
        computer_names = {elsewhere.computer for elsewhere in waiting}
        provider_names = {make_safe_text(elsewhere.provider) for elsewhere in waiting}
        computers = ", ".join(sorted(computer_names))
        providers = ", ".join(sorted(provider_names))
        text = tr("An agent on {computers} is at work and asks its model through this window. Without the window, it waits until you are back, unless you lend it your key for {providers}: for its conversation alone, in memory, and until it is done. Whoever controls {computers} can read the key there until then.", computers=computers, providers=providers)  # fmt: skip
        lend_and_quit = partial(self._lend_all, waiting, quit_now)
        choices = [
            DialogChoice(tr("Lend the key and quit"), lend_and_quit),
            DialogChoice(tr("Let it wait"), quit_now),
        ]
        ask_to_choose_one(self._parts.widget, tr("Quit"), text, choices)

    def _list_those_that_would_wait(self) -> Sequence[ConversationElsewhere]:
        waiting: dict[str, ConversationElsewhere] = {}
        for activity in self._workspaces.activity_by_workspace.values():
            client = client_of_host(activity.bench)
            if client is None or not client.line.computer:
                continue
            for conversation in activity.working_agents():
                # A key that is lent for a conversation is for its sub-agents, too.
                above = client.conversations_above(conversation)
                highest = conversation
                if above:
                    highest = above[-1]
                provider, _, _ = client.model_of_conversation(highest).partition("/")
                elsewhere = ConversationElsewhere(client, highest, provider, is_working=True)
                if not elsewhere.has_key:
                    waiting[highest] = elsewhere
        return list(waiting.values())

    def _lend_all(
        self, waiting: Sequence[ConversationElsewhere], then: Callable[[], object]
    ) -> None:
        """Lends one key after the other. If one cannot be lent, says why, and does not go on."""
        if not waiting:
            then()
            return
        self._send_key_to_computer(waiting[0], lambda: self._lend_all(waiting[1:], then))
