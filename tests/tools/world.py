"""What tools need around them: a folder, a cache in memory, and a user who answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import ToolCall
from helix_desktop.engine.ports import (
    CallContext,
    CallOutcome,
    PermissionAnswer,
    PermissionQuestion,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.store.in_memory_stores import MemoryCache, MemoryIndex, MemoryJournal
from helix_desktop.tools import workspace_tools as kits
from helix_desktop.tools.permission import PermissionMode
from helix_desktop.tools.sandbox import Sandbox, SandboxKind, find_sandbox
from helix_desktop.tools.toolbox import Toolbox, WorkspacePermissions
from helix_desktop.tools.workspace_tools import WorkspaceToolOptions, WorkspaceTools


class Words:
    """Counts a token for every four characters."""

    def count_tokens(self, text: str) -> int:
        return -(-len(text) // 4)


@dataclass
class Person:
    """Answers every question with `answer`, and remembers what was asked and shown."""

    answer: PermissionAnswer = PermissionAnswer(allowed=True)
    asked: list[PermissionQuestion] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    async def ask(self, question: PermissionQuestion) -> PermissionAnswer:
        self.asked.append(question)
        return self.answer


@dataclass
class World:
    """A workspace in `folder` and a toolbox on it."""

    folder: Path
    cache: MemoryCache
    person: Person
    kit: WorkspaceTools
    box: Toolbox
    numbers: int = 0

    async def run(self, tool: str, conversation: str = "c", **arguments: object) -> CallOutcome:
        return await self.raw(tool, json.dumps(arguments), conversation)

    async def raw(self, tool: str, arguments: str, conversation: str = "c") -> CallOutcome:
        self.numbers += 1
        call = ToolCall(f"call{self.numbers}", tool, arguments)
        return await self.box.run_tool_call(
            call, CallContext(conversation, self.person.ask, self.person.shown.append)
        )

    async def said(self, tool: str, conversation: str = "c", **arguments: object) -> str:
        return self.text(await self.run(tool, conversation, **arguments))

    def text(self, outcome: CallOutcome) -> str:
        return self.content(outcome.output.digest).decode("utf-8", "replace")

    def content(self, digest: Digest) -> bytes:
        return next(
            content for content, entry in self.cache.all_contents() if entry.stored.digest == digest
        )

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


_FOUND: list[SandboxKind] = []


async def found_before(
    folders: Sequence[Path], scratch: Path, closed: Sequence[Path] = (), caches: Path | None = None
) -> Sandbox:
    """`find_sandbox`, which need not try everything again for every test."""
    if not _FOUND:
        _FOUND.append((await find_sandbox(folders, scratch, closed)).kind)
    return Sandbox(_FOUND[0], tuple(folders), scratch, tuple(closed), caches=caches)


@asynccontextmanager
async def world(
    tmp_path: Path, *, mode: PermissionMode = PermissionMode.ALLOW_ALL, closed: Sequence[Path] = ()
) -> AsyncIterator[World]:
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    cache = MemoryCache()
    tasks = OwnedTasks("test")
    permissions = WorkspacePermissions(mode)
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(kits, "find_sandbox", found_before)
    kit = await WorkspaceTools.open_workspace_tools(
        [folder],
        (cache, MemoryIndex(MemoryJournal(), cache), Words()),
        permissions=permissions,
        spawn=tasks.spawn_task,
        options=WorkspaceToolOptions(closed_paths=tuple(closed)),
    )
    try:
        yield World(folder, cache, Person(), kit, kit.build_toolbox())
    finally:
        monkeypatch.undo()
        await kit.aclose()
        await tasks.aclose()
