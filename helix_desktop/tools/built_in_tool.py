"""Defines a built-in tool: its declaration, and a coroutine given its arguments and resources."""

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from helix_desktop.engine.facts import FileChanged, Stored, ToolCall
from helix_desktop.engine.ports import (
    CallContext,
    ContentCache,
    EntryOrigin,
    SearchIndex,
    TokenCounter,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.tools.permission import ActionEffect, ToolAction
from helix_desktop.tools.workspace_roots import RootPath, WorkspaceRoots

Schema = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ToolArguments:
    """A call's arguments, checked against the schema."""

    values: Mapping[str, object]

    def text_argument(self, name: str, default: str = "") -> str:
        value = self.values.get(name, default)
        if isinstance(value, str):
            return value
        return default

    def number_argument(self, name: str, default: int) -> int:
        value = self.values.get(name, default)
        if isinstance(value, int | float):
            return int(value)
        return default

    def flag_argument(self, name: str) -> bool:
        return self.values.get(name) is True

    def list_argument(self, name: str) -> Sequence[object]:
        value = self.values.get(name)
        if isinstance(value, list):
            return value
        return ()


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """A tool's result: `output`, which goes into the cache, or `stored`, which is already there."""

    output: str | bytes | AsyncIterable[bytes] = ""
    stored: Stored | None = None
    source: str = ""
    media_type: str = "text/plain"
    ok: bool = True
    exit_code: int | None = None
    images: tuple[Stored, ...] = ()
    changes: tuple[FileChanged, ...] = ()
    child: str = ""
    todo: tuple[tuple[str, str], ...] | None = None
    repeat_of: str = ""
    stopped: bool = False


# Returns if the action is allowed, and otherwise raises ActionRefused with the reason.
PermitAction = Callable[[ToolAction], Awaitable[None]]
ReadEditorFile = Callable[[Path], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class AnsweredRead:
    """An answered read of a file that had this modification time, size and inode."""

    stamp: tuple[int, int, int]
    result: ToolOutput
    call: str


@dataclass(slots=True)
class FilesSeen:
    """What one conversation knows of files, by path: the content it last read or wrote,
    the content last known to be on disk (a command may have changed it), the last
    reads, and the outputs with its text.
    """

    digests_seen_by_agent: dict[str, Digest] = field(default_factory=dict)
    digests_known_on_disk: dict[str, Digest] = field(default_factory=dict)
    answered_reads: dict[tuple[str, int, int], AnsweredRead] = field(default_factory=dict)
    outputs_with_text: dict[str, set[Digest]] = field(default_factory=dict)

    def set_content_seen(self, path: Path, content: Digest | None) -> None:
        """Note that the agent has read or written a whole file, or has deleted it (None)."""
        path_text = str(path)
        if content is None:
            self.digests_seen_by_agent.pop(path_text, None)
            self.digests_known_on_disk.pop(path_text, None)
        else:
            self.digests_seen_by_agent[path_text] = content
            self.digests_known_on_disk[path_text] = content


@dataclass(frozen=True, slots=True)
class WorkspaceResources:
    """What all tools of a workspace share. By conversation: `files_seen`, which
    outlives the session, and `editor_files`, which reads a file's text, saved or not,
    from the editor that has the conversation open.
    """

    roots: WorkspaceRoots
    cache: ContentCache
    index: SearchIndex
    tokens: TokenCounter
    files_seen: dict[str, FilesSeen] = field(default_factory=dict)
    checkpoints: Checkpoints | None = None
    editor_files: dict[str, ReadEditorFile] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolResources:
    """What a tool gets for one call: what the workspace shares, and how to ask for permission."""

    call: ToolCall
    context: CallContext
    permit: PermitAction
    workspace_resources: WorkspaceResources
    files_seen: FilesSeen
    # Tells whether the rules allow this path to be read.
    is_readable: Callable[[str], bool] = lambda _: True

    @property
    def roots(self) -> WorkspaceRoots:
        return self.workspace_resources.roots

    @property
    def cache(self) -> ContentCache:
        return self.workspace_resources.cache

    @property
    def index(self) -> SearchIndex:
        return self.workspace_resources.index

    @property
    def tokens(self) -> TokenCounter:
        return self.workspace_resources.tokens

    async def permit_reading(
        self, path_text: str, tool: str, question: str, *, searched_for: str = ""
    ) -> RootPath:
        """Return where a path leads, once the rules or the user permit to read what is there.

        Raises ActionRefused if they do not. The user is asked this question, with the path in
        place of `{}`, and is shown what is searched for there, if anything is.
        """
        root_path = await asyncio.to_thread(self.roots.resolve_real_path, path_text)
        displayed_path = self.roots.display_path(root_path)
        action = ToolAction(
            tool,
            ActionEffect.READ,
            title=question.format(displayed_path),
            preview=searched_for or displayed_path,
            path=displayed_path,
            named_path=root_path.named,
        )
        await self.permit(action)
        return root_path

    async def store_result(
        self, content: bytes | AsyncIterable[bytes], source: str, media_type: str = "text/plain"
    ) -> Stored:
        return await self.cache.store_content(
            content, EntryOrigin(self.call.name, source, media_type)
        )


RunTool = Callable[[ToolArguments, ToolResources], Awaitable[ToolOutput]]


@dataclass(frozen=True, slots=True)
class ToolDeclaration:
    """What the model is told of a tool, and how the runner treats its calls.

    `schema` is the JSON schema of the arguments, to which the runner adds `keep`. It is in
    every request, so it is short: `argument_schema` refuses unknown properties although no
    schema says so. `runs_alone`: it changes what other calls in the reply see, so it runs in
    their order. `is_rare`: the model finds it by searching, because its definition is not
    sent. `is_brief`: its output is never long, so it has no `keep`.
    """

    name: str
    description: str
    schema: Schema
    runs_alone: bool = False
    is_rare: bool = False
    is_brief: bool = False


@dataclass(frozen=True, slots=True)
class BuiltInTool:
    declaration: ToolDeclaration
    run_tool: RunTool
