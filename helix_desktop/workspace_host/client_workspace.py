"""A workspace that another process has open, here or on another computer, as a window shows it.

It has what the list of conversations and the chat need of a workbench, under the same names. It is
told by the host and keeps what it was told, so that a page can be painted without waiting.
"""

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.documents.document_kinds import PDF
from helix_desktop.documents.document_page import PagePicture
from helix_desktop.documents.document_reading import draw_pages
from helix_desktop.engine import facts, session_events
from helix_desktop.engine.facts import Recorded, UserPart
from helix_desktop.engine.hidden_characters import mark_on_one_line
from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.engine.ports import ContentReader
from helix_desktop.engine.session_events import ConversationActivity, Event
from helix_desktop.errors import ActionRefused, HelixError, NotFound, OwnerEnded
from helix_desktop.project.project_item import ProjectItem
from helix_desktop.tools.timed_allowance import SECONDS_OF_ALLOWANCE
from helix_desktop.workbench.file_preview import (
    PreviewedFile,
    PreviewKind,
    read_previewed_attachment,
)
from helix_desktop.workspace_host import host_interface
from helix_desktop.workspace_host.client_changes import ClientFileChanges
from helix_desktop.workspace_host.client_entries import ClientCatalogue, possible_time
from helix_desktop.workspace_host.client_session import (
    ClientSession,
    UnconfirmedMessage,
    split_parts,
)
from helix_desktop.workspace_host.host_interface import (
    ConversationFollower,
    FactsAdded,
    HostCommand,
    HostListRow,
    LiveState,
    WorkspaceDescription,
)
from helix_desktop.workspace_host.host_line import HostLine
from helix_desktop.workspace_host.remote_workspace_host import RemoteWorkspaceHost

Listener = Callable[[Event], None]
# Takes a conversation, what was to be sent there (empty for another command), and why it was not.
RefusalListener = Callable[[str, tuple[UserPart, ...], HelixError], None]
MOST_QUIET_SESSIONS = 8  # So many conversations that nobody shows are followed on.
MOST_PAGES = 10_000  # Of a document, as another computer counts them.
LONGEST_NAME = 80  # So many characters of a name that another computer gives are shown.
CLOSE_SECONDS = 1.0
SECONDS_BETWEEN_QUESTIONS_AFTER_HOUR = 5.0


class ClientWorkspace:
    """`known_as`: its id for the window, which is not the host's if the host is elsewhere. Its
    `line` is open already. Call `begin_with_list` before all others.
    """

    def __init__(self, line: HostLine, known_as: str) -> None:
        self.line = line
        self.catalogue = ClientCatalogue(line)
        self.contents: ContentReader = self.catalogue.cache
        self.id = known_as
        self.name = ""
        self.tasks = OwnedTasks("client of a workspace")
        self.slash_commands = ClientSlashCommands()
        self.conversations_above = self._list_conversations_above
        self._description = WorkspaceDescription()
        self._rows: dict[str, HostListRow] = {}
        self._sessions: OrderedDict[str, ClientSession] = OrderedDict()
        self._following: dict[str, asyncio.Task[None]] = {}
        self._listeners: list[Listener] = []
        self._settings_listeners: list[Callable[[], object]] = []
        self._refusal_listeners: list[RefusalListener] = []

    async def begin_with_list(self) -> None:
        """Waits until the list of conversations is known."""
        host = await self.line.wait_for_host()
        self.name = mark_on_one_line(host.workspace_name)[:LONGEST_NAME]
        follower = await host.follow_list()
        # Only now, as a setting that is changed from here on is told by the follower.
        await self.read_description()
        self._apply_rows(await follower.next_rows())
        self.tasks.spawn_task(self._follow_list(host, follower), name="follow the list")

    async def end_client(self) -> None:
        await self.tasks.aclose(limit=CLOSE_SECONDS)
        await self.line.close_line()

    # --- The workspace's properties

    @property
    def allowed_folders(self) -> Sequence[Path]:
        """Its folders. They are those of the host's computer, and no path here leads there."""
        return tuple(Path(folder) for folder in self._description.folders)

    @property
    def main_model_name(self) -> str:
        return self._description.main_model

    @property
    def policy_name(self) -> str:
        return self._description.policy

    @property
    def permission_mode(self) -> str:
        return self._description.permission_mode

    @property
    def everything_allowed_until(self) -> float:
        return possible_time(self._description.everything_allowed_until)

    def list_uses_allowed_in(self, conversations: Iterable[str]) -> Mapping[str, Sequence[str]]:
        uses_by_conversation = dict(self._description.allowed_by_rules)
        in_any_conversation = uses_by_conversation.get("", ())
        allowed_uses: dict[str, Sequence[str]] = {}
        for conversation in conversations:
            allowed_uses[conversation] = uses_by_conversation.get(conversation, in_any_conversation)
        return allowed_uses

    def describe_permission_modes(self) -> Mapping[str, str]:
        return dict(self._description.permission_modes)

    def providers_with_lent_key(self, conversation: str) -> Sequence[str]:
        """Returns the providers whose keys are lent to the host's computer for a conversation."""
        names: list[str] = []
        for lent_key in self._description.lent_keys:
            if lent_key.conversation == conversation:
                names += [mark_on_one_line(name)[:LONGEST_NAME] for name in lent_key.providers]
        return names

    async def take_back_lent_key(self, conversation: str) -> None:
        await self.line.run_at_host(host_interface.TakeKeyBack(conversation))
        await self.read_description()

    def model_of_conversation(self, conversation: str) -> str:
        session = self._sessions.get(conversation)
        if session is not None and session.conversation.state.own_model:
            return session.conversation.state.own_model
        return self.main_model_name

    def watch_settings(self, listener: Callable[[], object]) -> Callable[[], None]:
        self._settings_listeners.append(listener)
        return lambda: self._settings_listeners.remove(listener)

    async def read_description(self) -> None:
        """Asks the host how the workspace is set up now, and tells listeners if that has changed."""
        result = await self.line.run_at_host(host_interface.DescribeWorkspace())
        if result.description is None or result.description == self._description:
            return
        self._description = result.description
        self.slash_commands.offer_commands(result.description.slash_commands)
        for listener in tuple(self._settings_listeners):
            listener()

    async def choose_permission_mode(self, name: str) -> None:
        await self.line.run_at_host(host_interface.ChoosePermissionMode(name))
        await self.read_description()
        if self.everything_allowed_until:
            self.tasks.spawn_task(self._read_description_after_hour(), name="end of an allowance")

    async def _read_description_after_hour(self) -> None:
        """Shows the host's mode again after the hour in which everything is allowed. The host
        itself ends the hour.
        """
        while self.everything_allowed_until:
            seconds_left = self.everything_allowed_until - time.time()
            # The two computers' clocks may differ by years.
            seconds_left = min(seconds_left, SECONDS_OF_ALLOWANCE)
            await asyncio.sleep(max(seconds_left, SECONDS_BETWEEN_QUESTIONS_AFTER_HOUR))
            # Without the line, the description is read when there is one again.
            with contextlib.suppress(HelixError):
                await self.read_description()

    async def choose_model_for_role(self, name: str, role: str = "main") -> None:
        if role != "main":
            raise ActionRefused("Only the main model can be chosen from here.")
        await self.line.run_at_host(host_interface.ChooseLastingModel(name))
        await self.read_description()

    async def save_conversation_model(self, conversation: str, name: str) -> None:
        await self.line.run_at_host(host_interface.ChooseLastingModel(name, conversation))

    # --- The list of conversations

    def list_conversations(self) -> Sequence[ConversationListRow]:
        rows = [listed.row for listed in self._rows.values()]
        rows.sort(key=_row_changed_at, reverse=True)
        return rows

    def conversation_row(self, conversation: str) -> ConversationListRow | None:
        listed = self._rows.get(conversation)
        if listed is None:
            return None
        return listed.row

    def _list_conversations_above(self, conversation: str) -> Sequence[str]:
        """Returns the conversations whose sub-agent this is, the nearest first."""
        parents: list[str] = []
        row = self.conversation_row(conversation)
        # A host that lies might name a circle.
        while row is not None and row.parent and row.parent not in parents:
            parents.append(row.parent)
            row = self.conversation_row(row.parent)
        return tuple(parents)

    def running_state_of(self, conversation: str) -> ConversationActivity:
        listed = self._rows.get(conversation)
        if listed is None:
            return ConversationActivity.IDLE
        return listed.running

    def subscribe_to_events(self, listener: Listener) -> Callable[[], None]:
        """Calls `listener` with the events of all conversations that are followed, and with what
        the list tells of the others.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def _follow_list(
        self, host: RemoteWorkspaceHost, follower: host_interface.ListFollower
    ) -> None:
        current_host = host
        current_follower = follower
        while True:
            try:
                await self._follow_list_until_it_ends(current_follower)
            except HelixError:
                # Without its list a host is of no use, so its line is made anew.
                await current_host.close_host()
                self.line.note_end_of_host(current_host)
            current_host, current_follower = await self._follow_list_again()

    async def _follow_list_until_it_ends(self, follower: host_interface.ListFollower) -> None:
        """Applies what changes in the list, and reads the settings again when they have changed."""
        known_settings_changes = 0
        while True:
            self._apply_rows(await follower.next_rows())
            if follower.settings_changes != known_settings_changes:
                known_settings_changes = follower.settings_changes
                await self.read_description()

    async def _follow_list_again(
        self,
    ) -> tuple[RemoteWorkspaceHost, host_interface.ListFollower]:
        while True:
            host = await self.line.wait_for_host()
            try:
                follower = await host.follow_list()
                await self.read_description()
            except HelixError:
                await host.close_host()
                self.line.note_end_of_host(host)
            else:
                return host, follower

    def _apply_rows(self, rows: Sequence[HostListRow]) -> None:
        for listed in rows:
            if listed.is_deleted:
                self._rows.pop(listed.row.id, None)
                continue
            before = self._rows.get(listed.row.id)
            self._rows[listed.row.id] = listed
            if listed.row.id in self._sessions:
                continue  # Its session tells what it does.
            is_running_as_before = before is not None and before.running is listed.running
            if not is_running_as_before:
                self._notify_of_workspace_event(
                    session_events.ActivityChanged(listed.row.id, listed.running, listed.why)
                )
        for listed in rows:
            self._notify_of_workspace_event(session_events.MeterChanged(listed.row.id))

    def _notify_of_workspace_event(self, event: Event) -> None:
        for listener in tuple(self._listeners):
            listener(event)

    # --- Conversations

    async def open_session(self, conversation: str) -> ClientSession:
        """Returns the conversation as the host tells it, once all of its facts have come."""
        session = self._follow_session(conversation)
        host = await self.line.wait_for_host()
        is_told = await session.wait_until_told_by(host)
        if session.failure is not None:
            failure = session.failure
            self._stop_following_conversation(conversation)
            raise failure.with_traceback(None)
        if not is_told:
            raise OwnerEnded(
                "The connection to the workspace broke while the conversation was being opened.",
                remedy="Try again.",
            )
        self._stop_following_unused_sessions()
        return session

    async def read_newest_facts(self, conversation: str) -> Sequence[Recorded]:
        """Returns the newest messages of a long conversation, to be shown until `open_session` has
        all of it. Nothing is returned if there are none to wait for.
        """
        session = self._follow_session(conversation)
        host = await self.line.wait_for_host()
        await session.wait_for_newest_facts(host)
        return session.newest_facts

    def find_opening_session(self, conversation: str) -> ClientSession | None:
        """Returns a conversation of which not all may be here yet: what its agent does and asks is
        known, and can be answered and stopped.
        """
        return self._sessions.get(conversation)

    def send_before_open(
        self,
        conversation: str,
        parts: tuple[UserPart, ...],
        *,
        steer: bool = False,
        command_id: str = "",
    ) -> None:
        """Sends a message below the newest messages, while the others are on their way."""
        session = self._follow_session(conversation)
        session.send_message(parts, steer=steer, command_id=command_id)

    def _follow_session(self, conversation: str) -> ClientSession:
        session = self._sessions.get(conversation)
        if session is None:
            session = ClientSession(self, conversation)
            self._sessions[conversation] = session
            session.subscribe_to_events(self._notify_of_workspace_event)
            following = self.tasks.spawn_task(
                session.follow_until_closed(), name=f"follow {conversation}"
            )
            self._following[conversation] = following
        self._sessions.move_to_end(conversation)
        return session

    def _stop_following_unused_sessions(self) -> None:
        """A host tells at most 64 conversations at a time, and each has its facts in memory here."""
        unused = [name for name, session in self._sessions.items() if not session.is_in_use]
        newest = next(reversed(self._sessions))
        for name in unused[:-MOST_QUIET_SESSIONS]:
            if name != newest:
                self._stop_following_conversation(name)

    def _stop_following_conversation(self, conversation: str) -> None:
        self._sessions.pop(conversation, None)
        task = self._following.pop(conversation, None)
        if task is not None:
            task.cancel()

    async def start_users_conversation(self) -> ClientSession:
        started = await self.line.run_at_host(host_interface.StartConversation())
        return await self._open_new_session(started.conversation)

    async def fork_conversation(
        self, conversation: str, last_seq: int = 0, *, title: str = "", in_copy: bool = False
    ) -> ClientSession:
        if in_copy:
            raise ActionRefused(
                "A copy of the folders cannot be made from here yet.", remedy="Nothing was done."
            )
        fork = host_interface.ForkConversation(conversation, last_seq, title)
        forked = await self.line.run_at_host(fork)
        return await self._open_new_session(forked.conversation, title)

    async def _open_new_session(self, conversation: str, title: str = "") -> ClientSession:
        """Opens a conversation that was just created. The host tells its row a moment later, and a
        conversation without a row would be taken for a deleted one.
        """
        if conversation not in self._rows:
            row = ConversationListRow(conversation, title, time.time())
            self._rows[conversation] = HostListRow(row, ConversationActivity.IDLE)
        return await self.open_session(conversation)

    async def predict_next_request(self, conversation: str) -> None:
        """The host measures the next request itself, and tells it in the list."""

    async def read_conversation_facts(self, conversation: str) -> Sequence[Recorded]:
        """Returns a conversation's facts, without following it any further."""
        session = self._sessions.get(conversation)
        if session is not None:
            return tuple(session.conversation.state.facts)
        host = await self.line.wait_for_host()
        follower = await host.follow_conversation(conversation)
        try:
            return await _collect_facts_until_live(follower)
        finally:
            with contextlib.suppress(HelixError):
                await follower.close_follower()

    def file_changes_of(self, conversation: str) -> ClientFileChanges:
        return ClientFileChanges(
            self.line, self.contents, self.read_conversation_facts, conversation
        )

    async def list_changes_after(
        self, conversation: str, seq: int
    ) -> Sequence[host_interface.ChangedPath]:
        result = await self.line.run_at_host(host_interface.ListChangesAfter(conversation, seq))
        return result.changed

    async def undo_changes_after(self, conversation: str, seq: int) -> host_interface.CommandResult:
        return await self.line.run_at_host(host_interface.UndoFileChanges(conversation, seq))

    # --- Content

    async def attach_content(self, name: str, content: bytes, media_type: str) -> facts.Attachment:
        attachments = await self.attach_file(name, content)
        return attachments[0]

    async def attach_file(
        self, name: str, content: bytes, conversation: str = ""
    ) -> tuple[facts.Attachment, ...]:
        stored = await self.line.run_at_host(
            host_interface.StoreContent(name, content, conversation)
        )
        return stored.attachments

    async def count_sent_tokens(
        self,
        attachment: facts.Attachment,
        conversation: str = "",
        *,
        parts: Sequence[facts.UserPart] = (),
        instead_of: int = 0,
    ) -> int:
        """Asks the host, which knows what its model gets of it."""
        text, attachments = split_parts(parts)
        command = host_interface.CountSentTokens(
            conversation, attachment, text, attachments, instead_of
        )
        answer = await self.line.run_at_host(command)
        return answer.attachments[0].tokens

    async def complete_file_paths(self, prefix: str, limit: int = 20) -> Sequence[str]:
        found = await self.line.run_at_host(host_interface.CompletePaths(prefix, limit))
        return found.paths

    async def read_file_for_preview(self, conversation: str, written_path: str) -> PreviewedFile:
        """Reads a file of the host's folders. Its path leads nowhere here."""
        result = await self.line.run_at_host(host_interface.ReadFile(conversation, written_path))
        if result.file is None:
            raise NotFound("The file was not sent.", remedy="Try again.")
        return build_previewed_file(result.file)

    async def read_attachment_for_preview(self, attachment: facts.Attachment) -> PreviewedFile:
        """Reads an attachment's content from the host, and a document in it here."""
        return await read_previewed_attachment(self.contents, attachment)

    async def draw_document_pages(
        self, file: PreviewedFile, page_numbers: Sequence[int], edge: int
    ) -> list[PagePicture]:
        """Draws pages here, in the limited process that draws all documents."""
        return await draw_pages(file.shown_path, file.content, PDF, page_numbers, edge)

    # --- What could not be done

    def watch_refusals(self, listener: RefusalListener) -> Callable[[], None]:
        self._refusal_listeners.append(listener)
        return lambda: self._refusal_listeners.remove(listener)

    def report_refused_message(
        self, conversation: str, parts: tuple[UserPart, ...], error: HelixError
    ) -> None:
        for listener in tuple(self._refusal_listeners):
            listener(conversation, parts, error)

    def unconfirmed_messages_of(self, conversation: str) -> Sequence[UnconfirmedMessage]:
        """Returns the messages that the host has not confirmed yet, oldest first."""
        session = self._sessions.get(conversation)
        if session is None:
            return ()
        return session.queue.list_unconfirmed()

    def start_command(self, conversation: str, command: HostCommand) -> None:
        self.tasks.spawn_task(
            self._run_and_report(conversation, command), name="command to the host"
        )

    async def _run_and_report(self, conversation: str, command: HostCommand) -> None:
        try:
            await self.line.run_at_host(command)
        except HelixError as error:
            self.report_refused_message(conversation, (), error)


class ClientSlashCommands:
    """The host's slash commands by name. The host puts in their text when a message is sent."""

    def __init__(self) -> None:
        self._items: tuple[ProjectItem, ...] = ()

    def offer_commands(self, offered: Sequence[host_interface.OfferedCommand]) -> None:
        items: list[ProjectItem] = []
        for command in offered:
            path = Path(command.name)
            item = ProjectItem("command", command.name, path, "", "")
            items.append(replace(item, about=command.about, trusted=True))
        self._items = tuple(items)

    def list_slash_commands(self, conversation: str = "") -> Sequence[ProjectItem]:
        return self._items

    async def expand_command_message(
        self, session: ClientSession, parts: tuple[UserPart, ...]
    ) -> tuple[UserPart, ...]:
        return parts


async def _collect_facts_until_live(follower: ConversationFollower) -> list[Recorded]:
    """Returns the facts that are told before the live state, which comes behind all of them."""
    recorded: list[Recorded] = []
    while True:
        for event in await follower.next_events():
            if isinstance(event, FactsAdded):
                recorded += event.facts
            elif isinstance(event, LiveState):
                return recorded


def build_previewed_file(sent: host_interface.FileForPreview) -> PreviewedFile:
    """Returns a file that a host has sent. A kind that this version does not know is not shown."""
    kind = PreviewKind.OTHER
    if sent.kind in list(PreviewKind):
        kind = PreviewKind(sent.kind)
    full_path = Path(sent.full_path)
    page_count = min(max(sent.page_count, 0), MOST_PAGES)
    return PreviewedFile(sent.shown_path, full_path, kind, sent.content, sent.text, page_count)


def _row_changed_at(row: ConversationListRow) -> float:
    return row.updated
