"""Implements the protocol for an agent: one object for each editor and workspace."""

import asyncio
import base64
import binascii
import os
import re
import weakref
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from acp import schema
from acp.agent.router import build_agent_router
from acp.connection import Connection
from acp.router import Route
from acp.schema import DeleteSessionRequest

from helix_desktop import concurrency
from helix_desktop.acp_agent.agent_description import build_initialize_result
from helix_desktop.acp_agent.console_transport import ConsoleTransport, GuardedRouter
from helix_desktop.acp_agent.conversation_options import (
    build_config_options,
    build_modes_and_options,
    choose_option,
)
from helix_desktop.acp_agent.conversation_updates import ClientAbilities
from helix_desktop.acp_agent.editor_conversation import EditorConversation
from helix_desktop.console import Console
from helix_desktop.engine.conversation import new_conversation_id
from helix_desktop.engine.facts import Text, UserPart
from helix_desktop.engine.session_events import Event, FactAppended
from helix_desktop.errors import ActionRefused, InvalidInput, NotFound
from helix_desktop.json_values import list_at, object_at, value_at
from helix_desktop.workbench import Workbench

PAGE = 100  # One answer to session/list contains at most this many conversations.
MOST_OPEN = 200  # The maximum number of conversations that one editor may have open.
QUIT_SECONDS = 1.0
Result = dict[str, Any]


class EditorAgent:
    """Answers an editor. The SDK prescribes the names of methods and arguments
    (`acp.interfaces.Agent`).
    """

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._tasks = concurrency.OwnedTasks("editor")
        self._open: dict[str, EditorConversation] = {}
        # By conversation, as long as an object of that conversation is in use.
        self._beginnings: weakref.WeakValueDictionary[str, asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )
        self._abilities = ClientAbilities()

    async def serve_editor(self, console: Console) -> None:
        """Answers the editor's requests until it disconnects, and then stops its turns."""
        router = build_agent_router(cast(Any, self), use_unstable_protocol=True)
        router.add_route(Route("session/delete", self._delete_session, "request"))
        guarded = GuardedRouter(router, self._remember_abilities_and_check_folders)
        self._client = Connection(guarded, ConsoleTransport(console), listening=False)
        unsubscribe = self._bench.subscribe_to_events(self.pass_event_to_conversation)
        self._bench.mcp_servers.listeners.append(self._send_changed_commands)
        try:
            await self._client.main_loop()
        finally:
            unsubscribe()
            self._bench.mcp_servers.listeners.remove(self._send_changed_commands)
            await self.aclose()
            await self._client.close()

    async def aclose(self) -> None:
        for conversation in self._open.values():
            conversation.close()
        await self._tasks.aclose(limit=QUIT_SECONDS)

    def pass_event_to_conversation(self, event: Event) -> None:
        if isinstance(event, FactAppended):
            name = event.recorded.conversation
        else:
            name = event.conversation
        conversation = self._open.get(name)
        if conversation is not None:
            conversation.queue_event_for_editor(event)

    def _send_changed_commands(self) -> None:
        for conversation in self._open.values():
            self._tasks.spawn_task(
                conversation.send_commands_if_changed(), name="commands for an editor"
            )

    def _remember_abilities_and_check_folders(self, method: str, params: Any) -> None:
        """Checks folders and remembers the client's abilities, some of which the SDK
        does not know yet.
        """
        if method == "initialize":
            self._abilities = ClientAbilities.parse_initialize(object_at(params))
        folders = [value_at(params, "cwd")]
        folders += list_at(params, "additionalDirectories")
        for folder in folders:
            if isinstance(folder, str):
                self._check_folder_is_in_workspace(folder)

    async def initialize(self, **_: Any) -> Result:
        return build_initialize_result()

    # --- Starting, loading, forking, closing and listing conversations

    async def new_session(self, **_: Any) -> Result:
        conversation = self._open_editor_conversation(new_conversation_id())
        self._tasks.spawn_task(conversation.send_commands_and_usage(), name="state for an editor")
        answer: Result = {"sessionId": conversation.id}
        answer.update(build_modes_and_options(self._bench, conversation.id))
        return answer

    async def load_session(self, session_id: str, **_: Any) -> Result:
        await self._open_stored_conversation(session_id).send_history_to_editor()
        return build_modes_and_options(self._bench, session_id)

    async def resume_session(self, session_id: str, **_: Any) -> Result:
        conversation = self._open_stored_conversation(session_id)
        await conversation.open_session()
        self._tasks.spawn_task(conversation.send_commands_and_usage(), name="state for an editor")
        return build_modes_and_options(self._bench, session_id)

    async def fork_session(self, session_id: str, **_: Any) -> Result:
        self._open_stored_conversation(session_id)
        fork = await self._bench.fork_conversation(session_id)
        self._open_editor_conversation(fork.id)
        answer: Result = {"sessionId": fork.id}
        answer.update(build_modes_and_options(self._bench, fork.id))
        return answer

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> Result:
        """Lists the user's own conversations, one page at a time. A cursor is the number of the
        first one on its page.
        """
        rows = []
        for row in self._bench.list_conversations():
            is_of_others = row.parent or row.agent
            if not is_of_others and not row.trashed:
                rows.append(row)
        page_start = 0
        if cursor and cursor.isascii() and cursor.isdigit():
            page_start = int(cursor)
        page_end = page_start + PAGE

        folder = cwd or str(self._bench.main_folder)
        sessions: list[Result] = []
        for row in rows[page_start:page_end]:
            updated = datetime.fromtimestamp(row.updated, UTC)
            session = {
                "sessionId": row.id,
                "cwd": folder,
                "title": row.title,
                "updatedAt": updated.isoformat(),
            }
            sessions.append(session)
        answer: Result = {"sessions": sessions}
        if page_end < len(rows):
            answer["nextCursor"] = str(page_end)
        return answer

    async def close_session(self, session_id: str, **_: Any) -> None:
        self._find_or_open_conversation(session_id).close()
        del self._open[session_id]

    async def _delete_session(self, params: Any) -> Result:
        """Moves a conversation to the trash, where the window can restore it."""
        conversation = DeleteSessionRequest.model_validate(params).session_id
        self._find_or_open_conversation(conversation)
        await self.close_session(conversation)
        # A conversation without a message is not stored, so there is nothing to move.
        if self._bench.conversation_row(conversation) is not None:
            session = await self._bench.open_session(conversation)
            await session.set_trashed()
        return {}

    # --- Taking messages, stops and options from the editor

    async def prompt(self, session_id: str, prompt: Sequence[Any], **_: Any) -> Result:
        conversation = self._find_or_open_conversation(session_id)
        parts: list[UserPart] = []
        for block in prompt:
            parts += await _convert_prompt_block(self._bench, session_id, block)
        if not parts:
            raise InvalidInput("The message is empty.")
        return {"stopReason": await conversation.run_turn(tuple(parts))}

    async def cancel(self, session_id: str, **_: Any) -> None:
        self._find_or_open_conversation(session_id).cancel_turn()

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> None:
        await self.set_config_option("mode", session_id, mode_id)

    async def set_config_option(
        self, config_id: str, session_id: str, value: Any, **_: Any
    ) -> Result:
        conversation = self._find_or_open_conversation(session_id)
        is_begun = conversation.is_begun
        await choose_option(self._bench, session_id, config_id, str(value), is_begun=is_begun)
        # The mode is shared by all conversations of the workspace.
        for open_conversation in self._open.values():
            await open_conversation.send_options_if_mode_changed()
        return {"configOptions": build_config_options(self._bench, session_id)}

    def _open_editor_conversation(self, identity: str) -> EditorConversation:
        if identity in self._open:
            return self._open[identity]
        if len(self._open) >= MOST_OPEN:
            raise ActionRefused(
                f"More than {MOST_OPEN} sessions are open.", remedy="Close some sessions first."
            )
        beginning = self._beginnings.setdefault(identity, asyncio.Lock())
        conversation = EditorConversation(
            self._bench, identity, self._abilities, self._client, self._tasks.spawn_task, beginning
        )
        self._open[identity] = conversation
        return conversation

    def _open_stored_conversation(self, identity: str) -> EditorConversation:
        row = self._bench.conversation_row(identity)
        if row is None or row.trashed:
            raise NotFound(f"There is no conversation {identity[:80]} in {self._bench.name}.")
        return self._open_editor_conversation(identity)

    def _find_or_open_conversation(self, identity: str) -> EditorConversation:
        """Returns an open conversation, or opens one. An id that an earlier process
        gave out need not be stored yet.
        """
        row = self._bench.conversation_row(identity)
        is_in_trash = row is not None and row.trashed
        is_open = identity in self._open
        looks_like_id = re.fullmatch("[0-9a-f]{20}", identity) is not None
        if (is_open or looks_like_id) and not is_in_trash:
            return self._open_editor_conversation(identity)
        return self._open_stored_conversation(identity)

    def _check_folder_is_in_workspace(self, folder: str) -> None:
        """Refuses a folder outside the workspace, because the agent must not work there."""
        # Unlike `Path.resolve`, this raises no error for links that form a circle.
        resolved_folder = Path(os.path.realpath(folder))
        for allowed_folder in self._bench.allowed_folders:
            if resolved_folder.is_relative_to(allowed_folder.resolve()):
                return
        raise ActionRefused(
            f"{folder[:200]} is outside the folders of {self._bench.name}.",
            remedy="Add the folder to the workspace in Helix Desktop, or open another project.",
        )


async def _convert_prompt_block(
    bench: Workbench, conversation: str, block: Any
) -> Sequence[UserPart]:
    """Stores the block's content in the cache. A linked file is passed on by name."""
    match block:
        case schema.TextContentBlock():
            return [Text(block.text)]
        case schema.ResourceContentBlock():
            path = uri_as_path(block.uri)
            return [Text(f"[{block.name}]({path})")]
        case schema.ImageContentBlock():
            name = uri_as_path(block.uri or "image")
            image = _decode_base64(name, block.data)
            return await bench.attach_file(name, image, conversation)
        case schema.EmbeddedResourceContentBlock():
            return await _attach_embedded_file(bench, conversation, block.resource)
    raise InvalidInput(
        "This kind of content cannot be sent to the agent.", remedy="Send text, images or files."
    )


async def _attach_embedded_file(
    bench: Workbench,
    conversation: str,
    file: schema.TextResourceContents | schema.BlobResourceContents,
) -> Sequence[UserPart]:
    name = uri_as_path(file.uri)
    if isinstance(file, schema.TextResourceContents):
        text = file.text.encode("utf-8", "replace")
        return [await bench.attach_content(name, text, "text/plain")]
    content = _decode_base64(name, file.blob)
    return await bench.attach_file(name, content, conversation)


def _decode_base64(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput(f"{name} is not valid base64.") from error


def uri_as_path(uri: str) -> str:
    """The path of a file URI. Any other address is returned unchanged."""
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return uri
    path = PurePosixPath(unquote(parts.path))
    return str(path)
