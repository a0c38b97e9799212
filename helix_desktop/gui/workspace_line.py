"""Shows how a workspace that another process has open is reached, and what could not be done there.

A message that the host has not confirmed is kept in the window's state file, so that it is not lost
with the window.
"""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer

from helix_desktop.engine.facts import UserPart
from helix_desktop.engine.session_events import Event, MessagesQueued
from helix_desktop.errors import HelixError
from helix_desktop.gui.chat.message_drafts import DraftPlace, decode_draft_id, encode_draft_message
from helix_desktop.gui.conversation_sides import ConversationSides
from helix_desktop.gui.frame.window_layout import WindowFrame
from helix_desktop.gui.open_workspaces import OpenWorkspaces
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.shown_workspace import client_of_host
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import tr
from helix_desktop.gui.window_parts import WindowParts

if TYPE_CHECKING:
    from helix_desktop.workspace_host.client_workspace import ClientWorkspace
    from helix_desktop.workspace_host.host_line import LineState

SECOND_MS = 1_000
LONGEST_REASON = 300  # So many characters are shown of what another computer says.


class WorkspaceLine(QObject):
    """Follows the line of the shown workspace, and the refusals of all that are reached by one."""

    def __init__(
        self,
        parts: WindowParts,
        frame: WindowFrame,
        workspaces: OpenWorkspaces,
        sides: ConversationSides,
    ) -> None:
        super().__init__(frame)
        self._parts = parts
        self._sidebar = frame.sidebar
        self._workspaces = workspaces
        self._sides = sides
        # By workspace: how to stop hearing of it.
        self._stops_by_workspace: dict[str, list[Callable[[], None]]] = {}
        # The ids of the unconfirmed messages that the state file has since the start.
        self._unconfirmed_ids: dict[DraftPlace, set[str]] = {}
        self._countdown = QTimer(self, interval=SECOND_MS)
        self._countdown.timeout.connect(self._show_line)
        self._sidebar.try_line.clicked.connect(self._try_now)
        parts.showing.workspace_changed.connect(self._follow_shown_workspace)

    @property
    def _client(self) -> "ClientWorkspace | None":
        return client_of_host(self._parts.showing.workspace)

    def _follow_shown_workspace(self) -> None:
        client = self._client
        if client is not None and client.id not in self._stops_by_workspace:
            self._stops_by_workspace[client.id] = [
                client.line.watch_line(partial(self._hear_of_line, client)),
                client.watch_refusals(partial(self._give_back, client)),
                client.subscribe_to_events(partial(self._save_unconfirmed, client)),
            ]
        self._show_line()

    def _hear_of_line(self, client: "ClientWorkspace", state: "LineState") -> None:
        if state.stage == "unhosted":
            self._open_here(client)
        elif client is self._client:
            self._show_line()

    def _open_here(self, client: "ClientWorkspace") -> None:
        """The process that had the workspace open has ended, so that it can be opened here."""
        for stop in self._stops_by_workspace.pop(client.id, []):
            stop()
        self._workspaces.open_again(client.id)

    # --- The line of the shown workspace

    def _show_line(self) -> None:
        client = self._client
        if client is None:
            self._countdown.stop()
            self._sidebar.show_line_to_host("", "", is_broken=False)
            return
        state = client.line.state
        is_broken = state.stage == "waiting"
        seconds = 0
        if is_broken:
            seconds = max(0, math.ceil(state.next_try - time.monotonic()))
            self._countdown.start()
        else:
            self._countdown.stop()
        description = describe_line(client.line.computer, state, seconds)
        reason = make_safe_text(translate_sentences(state.why))[:LONGEST_REASON]
        self._sidebar.show_line_to_host(description, reason, is_broken=is_broken)

    def _try_now(self) -> None:
        if self._client is not None:
            self._client.line.try_now()

    def reread_description(self) -> None:
        """Asks the host how the workspace is set up, as others may have changed that."""
        client = self._client
        if client is not None and client.line.state.stage == "connected":
            reading = client.read_description()
            # If the line breaks just now, that is shown already.
            self._parts.runner.run_in_background(reading, failed=lambda _error: None)

    # --- What could not be done

    def _give_back(
        self,
        client: "ClientWorkspace",
        conversation: str,
        parts: tuple[UserPart, ...],
        error: HelixError,
    ) -> None:
        """Says what was refused. A message is put back into its message box."""
        if parts:
            place = (client.id, conversation)
            self._sides.add_to_message_and_tell_if_current(place, parts)
        self._parts.notices.show_error_notice(error)

    def _save_unconfirmed(self, client: "ClientWorkspace", event: Event) -> None:
        """Keeps messages that the host does not have yet. At the next start they are a draft."""
        if not isinstance(event, MessagesQueued):
            return
        unconfirmed = client.unconfirmed_messages_of(event.conversation)
        place = (client.id, event.conversation)
        ids_before = self._unconfirmed_ids.pop(place, set[str]())
        ids_now = {unsent.command_id for unsent in unconfirmed}
        if not ids_before and not ids_now:
            return
        self._unconfirmed_ids[place] = ids_now
        state_file = self._parts.state_file
        # The user is asked about these, or takes them back from the host: it may have let them go.
        kept_ids = self._sides.unsent_messages.ids_of_this_start(place)
        replaced_ids = (ids_before | ids_now) - kept_ids
        # The others are of an earlier start and no draft yet.
        waiting: list[object] = []
        for message in state_file.get_remembered("waiting", *place, default=list[object]()):
            if decode_draft_id(message) not in replaced_ids:
                waiting.append(message)
        for unsent in unconfirmed:
            if unsent.command_id not in kept_ids:
                waiting.append(encode_draft_message(unsent.message.parts, unsent.command_id))
        state_file.remember_value("waiting", *place, value=waiting)
        if unconfirmed:
            state_file.start_waiting_write()


def describe_line(computer: str, state: "LineState", seconds: int) -> str:
    """Says how the workspace is reached, or nothing where nobody needs it.

    `computer`: empty for another process of this computer, such as the first of two windows. As
    long as it answers, the few things that can only be done there say so in their own places.
    """
    if state.stage == "connected":
        if not computer:
            return ""
        return tr("Connected to {computer}", computer=make_safe_text(computer))
    if state.stage != "waiting":
        return tr("Connecting again…")
    if computer:
        place = make_safe_text(computer)
        broken = tr("The line to {computer} broke. The agent goes on there.", computer=place)
    else:
        broken = tr("Another window or program has this workspace open, and does not answer.")
    next_try = tr("Trying again in {seconds} s.", seconds=seconds)
    return f"{broken} {next_try}"
