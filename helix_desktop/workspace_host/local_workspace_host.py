"""The host in its own process: commands are calls of the workbench, events are those of sessions."""

import asyncio
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from helix_desktop.engine import session_events
from helix_desktop.engine.facts import Text, UserPart
from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.engine.messages import Reply, RetryDelay
from helix_desktop.engine.session import Session
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import ActionRefused, InvalidInput, NotFound, StoreFailed
from helix_desktop.providers.lent_providers import ProviderLender
from helix_desktop.workbench.open_workbench import Workbench
from helix_desktop.workspace_host import host_interface, message_checks
from helix_desktop.workspace_host.change_commands import ChangeCommands
from helix_desktop.workspace_host.entry_commands import EntryCommands
from helix_desktop.workspace_host.host_interface import (
    LONGEST_RANGE,
    CommandResult,
    CommandRunner,
    ConversationEvent,
    ConversationFollower,
    FactsAdded,
    HistoryReplaced,
    HostCommand,
    HostListRow,
    LiveState,
    NewestFacts,
    ReplyDelayed,
    new_command_id,
    question_fingerprint,
)
from helix_desktop.workspace_host.window_commands import WindowCommands

MOST_WAITING_EVENTS = 10_000  # A client that is further behind is told facts alone, and catches up.
MOST_FACTS_AT_ONCE = 500
MOST_REMEMBERED_COMMANDS = 1_000
WAITS_NO_MORE = "This message does not wait any more."
LIST_PAUSE_SECONDS = 0.02  # Changes of the list within this time are told together.
_AT_REST = (
    session_events.ConversationActivity.IDLE,
    session_events.ConversationActivity.FAILED,
)
_CHANGES_OF_LIVE_STATE = (
    session_events.ActivityChanged | session_events.QuestionAsked | session_events.QuestionAnswered
)


class CommandMemory:
    """What all clients of a workbench share: which commands were done, and whose turn it is to send."""

    def __init__(self) -> None:
        self.tasks_by_id: OrderedDict[str, asyncio.Task[CommandResult]] = OrderedDict()
        self.sending_locks: dict[str, asyncio.Lock] = {}

    def remember_command(self, command_id: str, task: asyncio.Task[CommandResult]) -> None:
        self.tasks_by_id[command_id] = task
        if len(self.tasks_by_id) > MOST_REMEMBERED_COMMANDS:
            self.tasks_by_id.popitem(last=False)


_memories: "weakref.WeakKeyDictionary[Workbench, CommandMemory]" = weakref.WeakKeyDictionary()


class LocalWorkspaceHost:
    """A `WorkspaceHost` that calls the workbench of this process."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._memory = _memories.setdefault(bench, CommandMemory())
        self._runners: Mapping[type[HostCommand], CommandRunner] = {
            host_interface.StartConversation: self._carry_out_start,
            host_interface.CheckMessage: self._carry_out_check,
            host_interface.TakeBackMessage: self._carry_out_take_back,
            host_interface.StopTurn: self._carry_out_stop,
            host_interface.ResumeTurn: self._carry_out_resume,
            host_interface.AnswerQuestion: self._carry_out_answer,
            host_interface.FoldConversation: self._carry_out_fold,
            host_interface.UndoFold: self._carry_out_undo_fold,
            host_interface.RepeatFold: self._carry_out_repeat_fold,
            host_interface.EditFold: self._carry_out_fold_edit,
            host_interface.RewindConversation: self._carry_out_rewind,
            host_interface.AnswerAgain: self._carry_out_answer_again,
            host_interface.ForkConversation: self._carry_out_fork,
            host_interface.UndoFileChanges: self._carry_out_undo_of_files,
            host_interface.ChangeConversation: self._carry_out_change,
            host_interface.StoreContent: self._carry_out_store,
            host_interface.ChooseModel: self._carry_out_choice_of_model,
            host_interface.TakeKeyBack: self._carry_out_end_of_lending,
            **WindowCommands(bench).runners,
            **EntryCommands(bench.workspace).runners,
            **ChangeCommands(bench).runners,
        }

    @property
    def workspace(self) -> str:
        return self._bench.id

    @property
    def workspace_name(self) -> str:
        return self._bench.name

    async def run_host_command(self, command: HostCommand, command_id: str = "") -> CommandResult:
        """A command whose id has been seen is not done again: its result is returned."""
        key = command_id or new_command_id()
        task = self._memory.tasks_by_id.get(key)
        if task is None:
            # In a task of its own: a client that goes away must not stop it halfway.
            task = self._bench.tasks.spawn_task(
                self._carry_out_command(command, key), name="command of a client"
            )
            self._memory.remember_command(key, task)
        return await asyncio.shield(task)

    async def follow_conversation(
        self, conversation: str, after: int = 0, *, newest_first: bool = False
    ) -> ConversationFollower:
        if newest_first:
            newest = await self._bench.read_newest_facts(conversation, also_if_open=True)
            if newest:
                return NewestFirstFollower(self, conversation, NewestFacts(tuple(newest)))
        session = await self._bench.open_session(conversation)
        return LocalConversationFollower(self._bench, session, after)

    async def follow_after_newest_facts(self, conversation: str) -> ConversationFollower:
        session = await self._bench.open_session(conversation)
        return LocalConversationFollower(self._bench, session, 0, tells_state_early=True)

    async def follow_list(self) -> "LocalListFollower":
        return LocalListFollower(self._bench)

    async def read_content_range(self, digest: Digest, start: int, length: int) -> bytes:
        if start < 0 or not 0 <= length <= LONGEST_RANGE:
            raise InvalidInput(f"A range of content has 0 to {LONGEST_RANGE:,} bytes.")
        return await self._bench.workspace.cache.read_range(digest, start, length)

    def accept_lender(self, lender: ProviderLender) -> Callable[[], None]:
        """Has models be asked through the computer of a client, where this one has no key. Returns
        what to call when the client leaves.
        """
        return self._bench.models.lent_providers.add_lender(lender)

    async def close_host(self) -> None:
        """The workbench is not closed: others use it, too."""

    # --- Commands

    async def _carry_out_command(self, command: HostCommand, command_id: str) -> CommandResult:
        if isinstance(command, host_interface.SendMessage):
            return await self._send_message(command, command_id)
        run = self._runners[type(command)]
        return await run(command)

    async def _carry_out_start(self, command: host_interface.StartConversation) -> CommandResult:
        session = await self._bench.start_users_conversation()
        if command.title:
            await session.set_title(command.title)
        return CommandResult(conversation=session.id)

    async def _send_message(
        self, command: host_interface.SendMessage, command_id: str
    ) -> CommandResult:
        """Returns when no kill can lose the message any more: it is recorded, or kept as waiting."""
        session = await self._bench.open_session(command.conversation)
        said: tuple[UserPart, ...] = command.attachments
        if command.text.strip():
            said = (Text(command.text), *said)
        if not said:
            raise InvalidInput("The message is empty.")
        queue_files = self._bench.queue_files
        # A slash command may run and ask first. The next message must not overtake it.
        lock = self._memory.sending_locks.setdefault(command.conversation, asyncio.Lock())
        async with lock:
            if queue_files.had_message_of_command(session, command_id):
                # An earlier process, which was killed, has kept it. Its sender wants it answered.
                parts = _parts_left_by_command(session, command_id)
                session.send_waiting_messages()
            else:
                parts = await self._bench.slash_commands.expand_command_message(session, said)
                session.send_message(parts, steer=command.steer, command_id=command_id)
        try:
            await asyncio.to_thread(queue_files.sync_to_disk, session.id)
        except StoreFailed:
            _take_back_message_of_command(session, command_id)
            raise
        if command.text.startswith("/") and parts and isinstance(parts[0], Text):
            return CommandResult(sent_text=parts[0].text)
        return CommandResult()

    async def _carry_out_check(self, command: host_interface.CheckMessage) -> CommandResult:
        session = None
        if command.conversation:
            session = await self._bench.open_session(command.conversation)
            if not session.conversation.state.acp_agent and not command.model:
                message_checks.use_recorded_model(self._bench, session)
        is_model_needed = not command.conversation
        message_checks.check_chosen_model(self._bench, command.model, is_needed=is_model_needed)
        await message_checks.check_slash_command(self._bench, command.text, session)
        return CommandResult()

    async def _carry_out_take_back(self, command: host_interface.TakeBackMessage) -> CommandResult:
        session = await self._bench.open_session(command.conversation)
        if command.sent_by:
            if _take_back_message_of_command(session, command.sent_by):
                return CommandResult()
            raise NotFound(WAITS_NO_MORE)
        for index in range(len(session.queue) - 1, -1, -1):
            first_part = session.queue[index].parts[0]
            if isinstance(first_part, Text) and first_part.text == command.text:
                session.queue.take_back_queued(index)
                return CommandResult()
        raise NotFound(WAITS_NO_MORE)

    async def _carry_out_stop(self, command: host_interface.StopTurn) -> CommandResult:
        session = await self._bench.open_session(command.conversation)
        session.stop_turn()
        return CommandResult()

    async def _carry_out_resume(self, command: host_interface.ResumeTurn) -> CommandResult:
        session = await self._bench.open_session(command.conversation)
        session.resume_turn()
        return CommandResult()

    async def _carry_out_answer(self, command: host_interface.AnswerQuestion) -> CommandResult:
        session = await self._bench.open_session(command.conversation)
        question = session.questions.get(command.number)
        # After a restart, another question may have the same number.
        if question is None or question_fingerprint(question) != command.fingerprint:
            raise ActionRefused(
                "This question is no longer open. It was answered elsewhere, or its turn has ended.",
                remedy="Nothing was done with this answer.",
            )
        session.answer_question(command.number, command.answer)
        return CommandResult()

    async def _carry_out_fold(self, command: host_interface.FoldConversation) -> CommandResult:
        session = await self._bench.open_session(command.conversation)
        await session.fold_on_request(command.kind, wish=command.wish)
        return CommandResult()

    async def _carry_out_undo_fold(self, command: host_interface.UndoFold) -> CommandResult:
        session = await self._bench.open_session(command.conversation)
        await session.folding.unfold(command.fold)
        return CommandResult()

    async def _carry_out_repeat_fold(self, command: host_interface.RepeatFold) -> CommandResult:
        session = await self._bench.open_session(command.conversation)
        await session.folding.refold(command.fold)
        return CommandResult()

    async def _carry_out_fold_edit(self, command: host_interface.EditFold) -> CommandResult:
        session = await self._bench.open_session(command.conversation)
        await session.context.edit_fold_text(command.fold, command.text)
        return CommandResult()

    async def _carry_out_rewind(self, command: host_interface.RewindConversation) -> CommandResult:
        session = await self._bench.open_session(command.conversation)
        await session.rewind_to(command.seq)
        return CommandResult()

    async def _carry_out_answer_again(self, command: host_interface.AnswerAgain) -> CommandResult:
        session = await self._bench.open_session(command.conversation)
        await session.ask_again(command.seq)
        return CommandResult()

    async def _carry_out_fork(self, command: host_interface.ForkConversation) -> CommandResult:
        session = await self._bench.fork_conversation(
            command.conversation, command.last_seq, title=command.title
        )
        return CommandResult(conversation=session.id)

    async def _carry_out_undo_of_files(
        self, command: host_interface.UndoFileChanges
    ) -> CommandResult:
        conversation = command.conversation
        await self._bench.open_session(conversation)
        changes = self._bench.file_changes_of(conversation)
        files = await changes.changes_after_fact(conversation, command.seq)
        undone = await changes.undo_file_changes(files, conversation=conversation)
        left_alone = [path for path, _ in undone.paths_left_alone]
        return CommandResult(paths=undone.restored, left_alone=tuple(left_alone))

    async def _carry_out_change(self, command: host_interface.ChangeConversation) -> CommandResult:
        session = await self._bench.open_session(command.conversation)
        if command.title is not None:
            await session.set_title(command.title)
        if command.is_archived is not None:
            await session.set_archived(archived=command.is_archived)
        if command.is_trashed is not None:
            await session.set_trashed(trashed=command.is_trashed)
        if command.is_pinned is not None:
            await session.set_pinned(pinned=command.is_pinned)
        return CommandResult()

    async def _carry_out_store(self, command: host_interface.StoreContent) -> CommandResult:
        attached = await self._bench.attach_file(
            command.name, command.content, command.conversation
        )
        return CommandResult(attachments=attached)

    async def _carry_out_end_of_lending(self, command: host_interface.TakeKeyBack) -> CommandResult:
        if not self._bench.models.lent_providers.take_back_key(command.conversation):
            raise NotFound("No key is lent for this conversation.")
        return CommandResult()

    async def _carry_out_choice_of_model(
        self, command: host_interface.ChooseModel
    ) -> CommandResult:
        if command.becomes_usual and not self._bench.main_model_name:
            await self._bench.choose_model_for_role(command.model)
        self._bench.set_model_until_closed(command.conversation, command.model)
        return CommandResult()


def _take_back_message_of_command(session: Session, command_id: str) -> bool:
    """Takes a message back if its turn has not begun. Returns whether it did."""
    for index, message in enumerate(session.queue):
        if message.command_id == command_id:
            session.queue.take_back_queued(index)
            return True
    return False


def _parts_left_by_command(session: Session, command_id: str) -> tuple[UserPart, ...]:
    """Returns the waiting message of a command. It is empty if the message was recorded since."""
    for message in session.queue:
        if message.command_id == command_id:
            return tuple(message.parts)
    return ()


class LocalConversationFollower:
    """Tells a client the facts of a conversation from a number on, and events as they come.

    Facts are told from the session's own list, so none is lost however slow the client is. Events
    wait in a queue. If it gets too long it is dropped, and the client catches up: it is told the
    facts that it lacks, and then what is not stored.

    `tells_state_early`: a client that shows the newest messages is told what is not stored before
    the other facts, too.
    """

    def __init__(
        self, bench: Workbench, session: Session, after: int, *, tells_state_early: bool = False
    ) -> None:
        self._bench = bench
        self._session = session
        self._last_told = min(max(after, 0), len(session.all_facts))
        self._last_waiting = 0
        self._events: list[ConversationEvent] = []
        self._has_news = asyncio.Event()
        self._must_catch_up = True
        self._is_replaced = False
        self._tells_state_early = tells_state_early
        self._has_early_news = tells_state_early
        self._unsubscribe = session.subscribe_to_events(self._receive_event)

    async def next_events(self) -> tuple[ConversationEvent, ...]:
        while True:
            if self._is_replaced:
                return (self._begin_again(),)
            if self._must_catch_up and self._has_early_news:
                self._has_early_news = False
                return (self._describe_live_state(is_early=True),)
            if self._must_catch_up:
                return (self._catch_up(),)
            if self._events:
                return self._pop_events()
            self._has_news.clear()
            await self._has_news.wait()

    async def close_follower(self) -> None:
        self._unsubscribe()

    def _begin_again(self) -> HistoryReplaced:
        self._is_replaced = False
        self._last_told = 0
        self._catch_up_later()
        return HistoryReplaced()

    def _catch_up(self) -> FactsAdded | LiveState:
        start = self._last_told
        untold = tuple(self._session.all_facts[start : start + MOST_FACTS_AT_ONCE])
        if untold:
            self._last_told = untold[-1].seq
            return FactsAdded(untold)
        # Nothing is awaited from here to the end, so no event falls between the two.
        self._must_catch_up = False
        self._tells_state_early = False
        self._has_early_news = False
        self._last_waiting = self._last_told
        return self._describe_live_state()

    def _describe_live_state(self, *, is_early: bool = False) -> LiveState:
        session = self._session
        questions: list[session_events.QuestionAsked] = []
        for number, question in session.questions.items():
            questions.append(session_events.QuestionAsked(session.id, number, question))
        messages = [waiting.parts for waiting in session.queue]
        steering_count = sum(waiting.steer for waiting in session.queue)
        command_ids = [waiting.command_id for waiting in session.queue]
        queued = session_events.MessagesQueued(
            session.id,
            tuple(messages),
            steering_count=steering_count,
            command_ids=tuple(command_ids),
        )
        running = session.running
        if session.turns.task is not None and running in _AT_REST:
            # Hooks run before a message is recorded. Until then, the session tells no activity.
            running = session_events.ConversationActivity.THINKING
        reply_text = self._bench.text_of_reply_in_progress(session.id)
        retry: ReplyDelayed | None = None
        next_try = session.turns.next_try
        if next_try is not None:
            retry = ReplyDelayed(session.id, next_try.why, next_try.seconds)
        return LiveState(
            running,
            session.why,
            tuple(questions),
            queued,
            reply_text,
            is_early,
            session.folding.progress,
            retry,
        )

    def _pop_events(self) -> tuple[ConversationEvent, ...]:
        events = tuple(self._events)
        self._events.clear()
        self._last_told = self._last_waiting
        return events

    def _receive_event(self, event: session_events.Event) -> None:
        self._has_news.set()
        if isinstance(event, session_events.ConversationReplaced):
            self._is_replaced = True
            return
        if self._must_catch_up:
            if self._tells_state_early and isinstance(event, _CHANGES_OF_LIVE_STATE):
                self._has_early_news = True
            return
        if isinstance(event, session_events.FactAppended):
            self._receive_fact(event)
            return
        told = _event_for_clients(event)
        if told is not None:
            self._add_event(told)

    def _receive_fact(self, event: session_events.FactAppended) -> None:
        seq = event.recorded.seq
        if seq <= self._last_waiting:
            return  # It was in the session's list already when this client caught up.
        if seq > self._last_waiting + 1:
            self._catch_up_later()
            return
        self._last_waiting = seq
        self._add_event(FactsAdded((event.recorded,)))

    def _add_event(self, event: ConversationEvent) -> None:
        if len(self._events) >= MOST_WAITING_EVENTS:
            self._catch_up_later()
            return
        self._events.append(event)

    def _catch_up_later(self) -> None:
        self._events.clear()
        self._must_catch_up = True


class NewestFirstFollower:
    """Tells the newest facts and what is not stored, and then all facts."""

    def __init__(self, host: LocalWorkspaceHost, conversation: str, newest: NewestFacts) -> None:
        self._host = host
        self._conversation = conversation
        self._untold: tuple[ConversationEvent, ...] = (newest,)
        self._follower: ConversationFollower | None = None

    async def next_events(self) -> tuple[ConversationEvent, ...]:
        if self._untold:
            newest = self._untold
            self._untold = ()
            return newest
        if self._follower is None:
            self._follower = await self._host.follow_after_newest_facts(self._conversation)
        return await self._follower.next_events()

    async def close_follower(self) -> None:
        if self._follower is not None:
            await self._follower.close_follower()


def _event_for_clients(event: Any) -> ConversationEvent | None:
    """What clients are told of an event that is no fact. None: they need not know of it."""
    if isinstance(event, session_events.QuestionDenied):
        return None  # QuestionAnswered follows.
    if not isinstance(event, session_events.ReplyStreamed):
        told: ConversationEvent = event
        return told
    if isinstance(event.delta, Reply):
        return None  # The fact follows.
    if isinstance(event.delta, RetryDelay):
        return ReplyDelayed(event.conversation, event.delta.why, event.delta.seconds)
    return event


class LocalListFollower:
    """Tells a client the rows of the list that have changed, and that settings have."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._changed = {row.id for row in bench.list_conversations()}
        self._told: set[str] = set()  # The conversations that the client has in its list.
        self._has_news = asyncio.Event()
        self._is_first = True
        self.settings_changes = 0
        self._told_settings_changes = 0
        self._unsubscribe = bench.subscribe_to_events(self._receive_event)
        self._unwatch_settings = bench.watch_settings(self._note_changed_settings)
        # Which keys are lent is described with the settings.
        self._lending_listeners = bench.models.lent_providers.listeners
        self._lending_listeners.append(self._note_changed_settings)

    async def next_rows(self) -> tuple[HostListRow, ...]:
        while not self._has_something_to_tell():
            self._has_news.clear()
            await self._has_news.wait()
            await asyncio.sleep(LIST_PAUSE_SECONDS)
        self._is_first = False
        self._told_settings_changes = self.settings_changes
        changed = self._changed
        self._changed = set()
        rows: list[HostListRow] = []
        for conversation in changed:
            row = self._bench.conversation_row(conversation)
            if row is None:
                rows += self._rows_that_say_deleted(conversation)
                continue
            self._told.add(conversation)
            session = self._bench.sessions.find_open_session(conversation)
            if session is None:
                rows.append(HostListRow(row, session_events.ConversationActivity.IDLE))
            else:
                rows.append(HostListRow(row, session.running, session.why))
        return tuple(rows)

    def _rows_that_say_deleted(self, conversation: str) -> list[HostListRow]:
        """A conversation that the client was never told of may be one that is being created."""
        if conversation not in self._told:
            return []
        self._told.discard(conversation)
        row = ConversationListRow(conversation, "", 0.0, trashed=True)
        at_rest = session_events.ConversationActivity.IDLE
        return [HostListRow(row, at_rest, is_deleted=True)]

    def _has_something_to_tell(self) -> bool:
        has_new_settings = self.settings_changes != self._told_settings_changes
        return self._is_first or bool(self._changed) or has_new_settings

    async def close_follower(self) -> None:
        self._unsubscribe()
        self._unwatch_settings()
        self._lending_listeners.remove(self._note_changed_settings)

    def _note_changed_settings(self) -> None:
        self.settings_changes += 1
        self._has_news.set()

    def _receive_event(self, event: session_events.Event) -> None:
        match event:
            case session_events.FactAppended():
                conversation = event.recorded.conversation
            case (
                session_events.ActivityChanged()
                | session_events.ConversationReplaced()
                | session_events.MeterChanged()
            ):
                conversation = event.conversation
            case _:
                return
        self._changed.add(conversation)
        self._has_news.set()
