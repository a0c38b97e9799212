"""Gives a conversation to another agent in that agent's format, folded if it is too
long or on request.

Only a fork is folded, so the conversation stays as it is. The agent can read every
original over MCP.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from helix_desktop.engine.facts import (
    ConversationChanged,
    FoldKind,
    ModelRole,
    ModelSet,
    Recorded,
)
from helix_desktop.engine.ports import TokenCounter
from helix_desktop.engine.session import Session
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import conversation_restoring as restoring
from helix_desktop.histories import subagent_restoring
from helix_desktop.histories.conversation_restoring import RestoredSession, RestoreRequest
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.histories.program_names import AGENTS_TO_CONTINUE_IN
from helix_desktop.histories.session_from_facts import list_active_compactions
from helix_desktop.mcp_server.client_configuration import (
    add_snippet_if_missing,
    build_client_snippet,
)
from helix_desktop.processes.starter import find_own_program, own_program_command
from helix_desktop.program_folders import find_program_folders
from helix_desktop.store.stored_workspace import StoredWorkspace

# Tokens of the window that are left free for what an agent adds to each request.
FRAME_TOKENS = 30_000
LARGEST_WINDOW = 1_000_000_000


@dataclass(eq=False)
class ConversationRelay:
    """For one workspace. `open_desk` opens its workbench, which is needed only for a fold."""

    workspace: StoredWorkspace
    tokens: TokenCounter
    open_desk: Callable[[], AbstractAsyncContextManager[Any]]

    async def prepare_session_for_agent(
        self, request: RestoreRequest, *, may_fold: bool = True, may_ask_model: bool = True
    ) -> RestoredSession:
        """`may_fold`: fold what is too long, else `fits` is false. `may_ask_model`:
        send it to a model, which may cost.
        """
        restored = await self._prepare_session_itself(
            request, may_fold=may_fold, may_ask_model=may_ask_model
        )
        if request.agent == subagent_restoring.AGENT:
            return await self._add_histories_of_subagents(restored, request.conversation)
        return restored

    async def _prepare_session_itself(
        self, request: RestoreRequest, *, may_fold: bool, may_ask_model: bool
    ) -> RestoredSession:
        window = request.window or restoring.FORMATS[request.agent].window
        if not FRAME_TOKENS < window <= LARGEST_WINDOW:
            raise InvalidInput(f"The context window cannot have {window:,} tokens.", remedy=f"The agent itself needs {FRAME_TOKENS:,} tokens. Choose a context window that is larger than this, and has at most {LARGEST_WINDOW:,} tokens.")  # fmt: skip
        room = window - FRAME_TOKENS
        restored = await self._restore_session(request)
        if not request.is_folded and await self._fits_in_context(restored.texts, room):
            return restored
        if not (request.is_folded or may_fold):
            return replace(restored, fits=False)
        async with self.open_desk() as desk:
            fork = await self._fork_and_fold(desk, request, room, may_ask_model=may_ask_model)
            of_fork = replace(request, conversation=fork, before_compaction=0, is_folded=True)
            folded = await self._restore_session(of_fork)
            is_folded = folded.compactions > 0 or folded.texts != restored.texts
            if is_folded:  # The agent can recall what the fork holds.
                change = ConversationChanged(archived=True)
            else:  # A short turn stays as it is, so nobody needs the fork.
                change = ConversationChanged(trashed=True)
            session = await desk.open_session(fork)
            await session.conversation.append_facts(change)
        fits = await self._fits_in_context(folded.texts, room)
        return replace(folded, fits=fits, is_folded=is_folded)

    async def _add_histories_of_subagents(
        self, restored: RestoredSession, conversation: str
    ) -> RestoredSession:
        """Return the session with the histories of the sub-agents that belong to a conversation."""
        rows = await self.workspace.journal.list_conversations()
        family = {conversation}
        for row in rows:
            if row.id == conversation and row.forked_from:
                family.add(row.forked_from)  # Up to the fork, both have the same sub-agents.
        conversations: list[Sequence[Recorded]] = []
        digests: list[Digest] = []
        for row in rows:
            if row.parent in family:
                facts = await self.workspace.journal.read_facts(row.id)
                conversations.append(facts)
                digests.extend(restoring.digests_needed_for_restoring(facts))
        if not conversations:
            return restored
        contents = await self.workspace.cache.read_contents(digests)
        return await asyncio.to_thread(
            subagent_restoring.add_subagents, restored, conversations, contents.get
        )

    async def _fits_in_context(self, texts: Sequence[str], room: int) -> bool:
        character_count = 0
        for text in texts:
            character_count += len(text)
        if 4 * character_count <= room:  # No text has more than four tokens for each character.
            return True
        token_count = await asyncio.to_thread(self._count_tokens_of_all, texts)
        return token_count <= room

    def _count_tokens_of_all(self, texts: Sequence[str]) -> int:
        token_count = 0
        for text in texts:
            token_count += self.tokens.count_tokens(text)
        return token_count

    async def _restore_session(self, request: RestoreRequest) -> RestoredSession:
        facts = await self.workspace.journal.read_facts(request.conversation)
        needed = restoring.digests_needed_for_restoring(facts)
        contents = await self.workspace.cache.read_contents(needed)
        return await asyncio.to_thread(
            restoring.build_restored_session, facts, contents.get, request
        )

    async def _fork_and_fold(
        self, desk: Any, request: RestoreRequest, room: int, *, may_ask_model: bool
    ) -> str:
        """Return a fork folded to at most `room` tokens if possible. Without a model,
        it lists what it omits.
        """
        facts = await self.workspace.journal.read_facts(request.conversation)
        last_seq = 0  # All of it.
        if request.before_compaction:
            compaction = list_active_compactions(facts)[request.before_compaction - 1]
            last_seq = compaction.seq - 1
        row = await self.workspace.journal.find_conversation(request.conversation)
        title_here = row.title or row.begins
        title = f"{title_here} → {AGENTS_TO_CONTINUE_IN[request.agent]}"
        session = await desk.fork_conversation(request.conversation, last_seq, title=title)
        if not may_ask_model:
            await desk.open_session(session.id, writer=lambda _: None)
        if request.is_folded and not await _fold_older_turns(session):
            used_tokens = session.context.next_request_meter().used
            room = min(room, used_tokens // 2)
        main_model = ModelSet(ModelRole.MAIN, "", room)
        if may_ask_model:
            main_model = _find_main_model(desk) or main_model
        window = min(room, main_model.window or room)
        await session.conversation.append_facts(replace(main_model, window=window))
        if not session.conversation.current_meter().request_fits:
            await session.folding.apply_due_folds()
            session.folding.cancel_fold_in_work()
        return str(session.id)

    def add_mcp_server(self, agent: str, folder: Path, places: HistoryPlaces) -> str:
        """Add the workspace's MCP server to the agent's settings, and return a sentence
        that says so.
        """
        command = mcp_server_command(self.workspace.id, self.workspace.folder.parents[1])
        form = restoring.FORMATS[agent]
        snippet = build_client_snippet(
            form.mcp_client,
            command,
            self.workspace.id,
            folder=folder,
            home=places.home,
            environ=places.variables,
        )
        entry = dict(snippet.entry)
        entry.update(form.mcp_fields)
        snippet = replace(snippet, entry=entry)
        server = snippet.path_in[1]
        if add_snippet_if_missing(snippet):
            return f"The MCP server {server} was added to {snippet.file}."
        return f"The MCP server {server} is already in {snippet.file}."


def _find_main_model(desk: Any) -> ModelSet | None:
    for model in desk.models.model_facts():
        if model.role is ModelRole.MAIN:
            return cast(ModelSet, model)
    return None


async def _fold_older_turns(session: Session) -> bool:
    """Return False if there is only one turn, which is not folded on request."""
    for kind in (FoldKind.HANDOVER, FoldKind.TRUNCATION):
        with suppress(HelixError):
            await session.fold_on_request(kind)
            return True
    return False


def mcp_server_command(workspace: str, data: Path) -> list[str]:
    """Return the command that starts the workspace's MCP server, by `helix-desktop` if
    that is on the PATH.
    """
    program = find_own_program("helix-desktop")
    if program:
        command = [program]
    else:
        command = list(own_program_command())
    if data != find_program_folders(environ={}).data:
        command += ["--home", str(data)]
    command += ["mcp", "--workspace", workspace]
    return command
