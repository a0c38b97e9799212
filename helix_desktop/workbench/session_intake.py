"""The one way in for sessions of other agents: finds or makes the one conversation of a session,
and appends what is new.

The gateway and ACP see a session while it happens, the recorder and imports read it from
the agent's own files. `SessionIntake.take_in_session` is given what a file has; the
gateway asks `find_imported_session` before it starts a conversation. What two of them saw
is stored in one conversation. Only where a file has messages that would have to stand in
the middle of what was seen live, it keeps a conversation of its own, which is archived.
"""

import time as clock
from collections.abc import Sequence
from dataclasses import field

from helix_desktop.engine import facts
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import history_facts
from helix_desktop.histories.conversation_restoring import COPY_WORDS
from helix_desktop.histories.program_names import NAMES, SAME_REPLY_SECONDS
from helix_desktop.histories.seen_twice import (
    TimedReply,
    is_seen_live,
    is_session_seen_live,
    names_of_session,
)
from helix_desktop.store.conversation_rows import StoredConversation, conversation_id_of_session
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.workbench.session_import import (
    EarlierImports,
    Hold,
    ImportedConversation,
    IsReplyUnderWay,
    SessionToImport,
    SessionWriter,
)

NEWEST = 64  # So many of the newest or oldest facts of a connected agent name its session.
REPLY_SECONDS = 600.0  # After this many seconds, a reply without an end counts as broken off.


class RepliesUnderWay:
    """The conversations in which a connected agent has asked something and has no answer yet."""

    def __init__(self) -> None:
        self._asked: dict[str, float] = {}

    def remember_asked_reply(self, conversation: str) -> None:
        self._asked[conversation] = clock.monotonic()

    def forget_asked_reply(self, conversation: str) -> None:
        self._asked.pop(conversation, None)

    def is_reply_under_way(self, conversation: str) -> bool:
        asked_at = self._asked.get(conversation)
        return asked_at is not None and clock.monotonic() - asked_at < REPLY_SECONDS


@dataclass(frozen=True, slots=True)
class SessionIntakeResult:
    """What came of a session. `conversation`: the one it is in, or empty if it was left out.
    `unchanged_conversation`: the same, if nothing was new. `new_from`: the number of the first new
    message.
    """

    imported: ImportedConversation | None = None
    conversation: str = ""
    unchanged_conversation: str = ""
    new_from: int = 0
    complaints: tuple[str, ...] = ()


@dataclass(slots=True)
class SessionIntake:
    """Takes sessions into one workspace. `run`: the import's name. `is_by_hand`: what was deleted
    comes back. `deleted`: when conversations were deleted, by id. `rows`: of all conversations,
    the last changed first.
    """

    workspace: StoredWorkspace
    run: str
    hold: Hold
    is_reply_under_way: IsReplyUnderWay
    is_by_hand: bool
    earlier: EarlierImports = field(default_factory=EarlierImports)
    deleted: dict[str, float] = field(default_factory=dict)
    rows: Sequence[StoredConversation] = ()
    _ids: frozenset[str] | None = None
    _seen_live: dict[str, "SessionSeenLive"] = field(default_factory=dict)

    async def take_in_session(self, read_session: SessionToImport) -> SessionIntakeResult:
        """Find the session's conversation, and write there what is new."""
        session = await self._without_deleted_part(read_session)
        if session is None:
            return SessionIntakeResult()
        recording = session.recording
        roles = {message.role for message in recording.messages}
        # The recorder takes a session when its first reply is there, but nobody writes this one.
        is_reply_cut_off = self.is_by_hand and session.is_cut_off
        if "assistant" not in roles and not is_reply_cut_off:
            sentence = f"{recording.name} was left out because it contains no reply."
            return SessionIntakeResult(complaints=(sentence,))
        for message in recording.messages:
            if message.child:
                self.earlier.calls[recording.kind, message.child] = message.answers
        # It keeps the unique name that an earlier import has given it.
        session_apart = session.with_unique_session_name()
        if session_apart.recording.identity_of_session in self.earlier.last:
            session = session_apart
        await self._find_conversation_seen_live(session)
        conversation = self.earlier.conversation_of_recording(session.recording)
        if self.is_reply_under_way(conversation):
            # A foreign agent works there. What it says comes over ACP or through the gateway.
            return SessionIntakeResult(unchanged_conversation=conversation)
        return await self._write_session(session, conversation)

    async def _write_session(
        self, session: SessionToImport, conversation: str
    ) -> SessionIntakeResult:
        """Write the session, and remember where it is for the sessions that belong to
        it.
        """
        writer = SessionWriter(
            self.workspace,
            self.hold,
            self.earlier,
            self.run,
            session,
            conversation,
            self.is_reply_under_way,
        )
        try:
            await writer.write_session()
            await writer.put_below_parent()
        except HelixError as error:
            return SessionIntakeResult(complaints=(f"{session.recording.name}: {error}",))
        if writer.recorded is not None:
            self.earlier.last[writer.session.recording.identity_of_session] = writer.recorded
        complaints: tuple[str, ...] = ()
        if writer.damage:
            complaints = (writer.damage,)
        unchanged_conversation = writer.conversation
        if writer.imported is not None:
            unchanged_conversation = ""
            await self._archive_if_here_already(writer.session, writer.imported)
        return SessionIntakeResult(
            imported=writer.imported,
            conversation=writer.conversation,
            unchanged_conversation=unchanged_conversation,
            new_from=writer.new_from,
            complaints=complaints,
        )

    async def _without_deleted_part(self, session: SessionToImport) -> SessionToImport | None:
        """Return what is new since the user deleted it, or what it belongs to, for
        good. By hand, all comes back.
        """
        recording = session.recording
        unique_name = session.with_unique_session_name().recording.session
        names = (recording.session, unique_name, recording.parent, recording.forked_from)
        deleted_time = 0.0
        for name in names:
            if name:
                identity = conversation_id_of_session(recording.kind, name)
                deleted_time = max(deleted_time, self.deleted.get(identity, 0.0))
        if not deleted_time or self.is_by_hand:
            return session
        conversation = self.earlier.conversation_of_recording(recording)
        known_facts = await self.workspace.journal.read_facts(conversation)
        # With older facts, the user has brought it back by hand since.
        for recorded in known_facts:
            if recorded.time <= deleted_time:
                return session
        return session.newer_part(deleted_time)

    # --- The conversation that saw a session live

    async def _find_conversation_seen_live(self, session: SessionToImport) -> None:
        """Remember the conversation that saw this session live, if it was never imported."""
        recording = session.recording
        identity = recording.identity_of_session
        if identity in self.earlier.last or not recording.session:
            return
        if conversation_id_of_session(*identity) in self._ids_of_rows():
            return
        seen_live = await self._find_same_session_seen_live(session)
        if seen_live is None:
            return
        if seen_live.conversation not in self._conversations_of_others(identity):
            self.earlier.seen_live[identity] = seen_live.conversation

    def _ids_of_rows(self) -> frozenset[str]:
        if self._ids is None:
            self._ids = frozenset(row.id for row in self.rows)
        return self._ids

    def _conversations_of_others(self, identity: tuple[str, str]) -> set[str]:
        """Return the conversations that are those of another session already."""
        conversations: set[str] = set()
        for identity_of_other, last_import in self.earlier.last.items():
            if identity_of_other != identity:
                conversations.add(last_import.conversation)
        for identity_of_other, conversation in self.earlier.seen_live.items():
            if identity_of_other != identity:
                conversations.add(conversation)
        return conversations

    async def _find_same_session_seen_live(
        self, session: SessionToImport
    ) -> "SessionSeenLive | None":
        """Return the conversation that saw this session live, or None."""
        times = [draft.time for draft in session.drafts if draft.time]
        earliest = min(times, default=0.0) - SAME_REPLY_SECONDS
        latest = max(times, default=0.0) + SAME_REPLY_SECONDS
        facts_of_session: list[facts.Fact] = [history_facts.build_started_fact(session.recording)]
        for draft in session.drafts:
            facts_of_session.append(draft.fact)
        names = names_of_session(facts_of_session)
        candidates: list[SessionSeenLive] = []
        for row in self.rows:
            if earliest <= row.created <= latest:
                candidate = await self._read_session_seen_live(row)
                if names & candidate.names:
                    candidates.append(candidate)
        # The requests of an agent over ACP may stand below its conversation, under the same name.
        for candidate in candidates:
            if not candidate.parent:
                return candidate
        if candidates:
            return candidates[0]
        return None

    async def _read_session_seen_live(self, row: StoredConversation) -> "SessionSeenLive":
        """Return the oldest and newest facts of a conversation that an agent is connected to or
        works in over ACP, and the names that they have for its session.
        """
        if row.id not in self._seen_live:
            journal = self.workspace.journal
            newest = await journal.read_facts(row.id, after=max(0, row.last_seq - NEWEST))
            oldest = await journal.read_facts(row.id, limit=NEWEST)
            outer_facts = list(oldest) + list(newest)
            session = SessionSeenLive(row.id, row.parent, outer_facts=[], names=frozenset())
            if is_seen_live(outer_facts):
                names = frozenset(names_of_session([recorded.fact for recorded in outer_facts]))
                session = SessionSeenLive(row.id, row.parent, outer_facts, names)
            self._seen_live[row.id] = session
        return self._seen_live[row.id]

    # --- Conversations that are here twice: of earlier versions, and copies given to an agent

    async def _archive_if_here_already(
        self, session: SessionToImport, imported: ImportedConversation
    ) -> None:
        """Archive what was also seen live, through the gateway or over ACP, and copies for an
        agent, until they go on elsewhere.
        """
        replies = _newest_replies(session)
        seen_live = await self._find_same_session_seen_live(session)
        if seen_live is not None:
            if seen_live.conversation != imported.id:
                is_copy = is_session_seen_live(replies, seen_live.outer_facts)
                await self._archive_or_list(imported.id, is_copy=is_copy)
            return
        title = history_facts.title_of_recording(session.recording)
        words_of_copy = COPY_WORDS.search(title)
        if words_of_copy is None:
            return
        is_copy = False
        for row in self.rows:
            is_titled_alike = row.title.startswith(title[: words_of_copy.start()])
            if row.id != imported.id and not row.trashed and is_titled_alike:
                facts_of_original = await self.workspace.journal.read_facts(row.id)
                is_copy = is_copy or is_session_seen_live(replies, facts_of_original)
        await self._archive_or_list(imported.id, is_copy=is_copy)

    async def _archive_or_list(self, conversation: str, *, is_copy: bool) -> None:
        """Archive a copy unless somebody has taken it out of the archive. List what is
        no copy any more.
        """
        journal = self.workspace.journal
        was_archived = (await journal.find_conversation(conversation)).archived
        if is_copy is was_archived:
            return
        if is_copy:
            for recorded in await journal.read_facts(conversation):
                fact = recorded.fact
                if isinstance(fact, facts.ConversationChanged) and fact.archived is not None:
                    return
        change = facts.ConversationChanged(archived=is_copy)
        await journal.append_imported_facts(conversation, [(0.0, change)])


@dataclass(frozen=True, slots=True)
class SessionSeenLive:
    """A conversation with its oldest and newest facts, and the names for its session. It has
    neither if no agent was connected to it.
    """

    conversation: str
    parent: str
    outer_facts: Sequence[facts.Recorded]
    names: frozenset[str]


def _newest_replies(session: SessionToImport) -> list[TimedReply]:
    replies: list[TimedReply] = []
    for draft in session.drafts[-NEWEST:]:
        if isinstance(draft.fact, facts.ModelReplied):
            replies.append(TimedReply(draft.time, draft.fact))
    return replies


def id_of_imported_session(agent: str, session: str) -> str:
    """Return the id that the conversation of a connected agent's session has if it was imported.
    `agent`: its title, such as "Claude Code". Empty if the agent does not name its session, or
    if its histories are not read.
    """
    kinds = [kind for kind, title in NAMES.items() if title == agent]
    if not kinds or not session:
        return ""
    name = session
    if "/" in session:
        # Claude Code sends "session/id" for a sub-agent, whose history is named "agent-id".
        _, _, subagent_id = session.rpartition("/")
        name = f"agent-{subagent_id}"
    return conversation_id_of_session(kinds[0], name)
