"""One workspace's tools put together: its folders, its sandbox, its running commands; a Toolbox for each conversation."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from helix_desktop.engine.collaborators import Restored
from helix_desktop.engine.facts import FilesChanged, Recorded
from helix_desktop.engine.ports import Cache, Index, Tokens
from helix_desktop.tools import fetch, files, hidden_files, recall, search, shell, todo
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.tools.confine import Roots
from helix_desktop.tools.git_identity import write_identity
from helix_desktop.tools.guard import Guard as FileGuard
from helix_desktop.tools.on_demand import Finder, OnDemand
from helix_desktop.tools.openings import Opened
from helix_desktop.tools.permission import Mode
from helix_desktop.tools.recall import Compact, History
from helix_desktop.tools.runner import ForeignTool, Guard, Permissions, Toolbox
from helix_desktop.tools.sandbox import Kind, Sandbox, find_sandbox
from helix_desktop.tools.shell import Limits, Shell
from helix_desktop.tools.subagent import Delegating, Place, StartChild
from helix_desktop.tools.tool import Around, Tool
from helix_desktop.tools.undo import restored
from helix_desktop.values import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """`closed`: the program's own folders. `names`: more variables of the environment that commands may see.
    `fetching`: whether fetch_url is offered.
    """

    closed: tuple[Path, ...] = ()
    sample: Path | None = None  # see Roots
    limits: Limits = Limits()
    names: tuple[str, ...] = ()
    fetching: bool = False
    caches: Path | None = None  # where builds keep what they downloaded and made, from one start to the next
    opened: Callable[[], Opened] = Opened  # of the user's home; asked for each command
    hidden: Callable[[], tuple[str, ...]] = lambda: hidden_files.DEFAULT  # patterns of files that no agent sees


@dataclass(slots=True)
class Kit:
    """What the conversations of a workspace share."""

    around: Around
    permissions: Permissions
    sandbox: Sandbox
    commands: Shell
    options: Options
    finder: Finder = field(default_factory=Finder)

    @classmethod
    async def open(
        cls,
        folders: Sequence[Path],
        stores: tuple[Cache, Index, Tokens],
        *,
        permissions: Permissions,
        spawn: Callable[..., asyncio.Task[Any]],
        options: Options = Options(),  # noqa: B008 -- frozen
        checkpoints: Checkpoints | None = None,
    ) -> Kit:
        """Find out what this system can do to keep commands inside `folders`, and get the tools ready."""
        all_of = Roots.of(folders, options.closed, options.sample)
        roots = replace(all_of, hides=lambda inside: hidden_files.is_hidden(inside, options.hidden()))
        scratch = Path(tempfile.mkdtemp(prefix="helix-"))
        try:
            sandbox = await find_sandbox(roots.folders, scratch, roots.closed, options.caches or scratch / "caches")
            await asyncio.to_thread(write_identity, sandbox.given / "git", roots.folders)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        permissions.sandboxed = sandbox.kind is not Kind.NONE
        commands = Shell(sandbox, os.environ, spawn, options.limits, FileGuard(all_of, options.hidden), options.names)
        commands.opened = options.opened
        commands.planning = lambda: permissions.mode is Mode.PLAN
        return cls(Around(roots, *stores, checkpoints=checkpoints), permissions, sandbox, commands, options)

    def toolbox(  # noqa: PLR0913 -- all of them keywords with defaults
        self,
        *,
        compact: Compact | None = None,
        history: History | None = None,
        start_child: StartChild | None = None,
        place: Place | None = None,
        more: Callable[[], Sequence[ForeignTool]] = tuple,
        only: Sequence[str] = (),
        on_demand: OnDemand | None = None,
        others: Sequence[Tool] = (),
        guard: Guard | None = None,
    ) -> Toolbox:
        """The tools of one conversation. `place`: where it stands among the agents it delegates to."""
        tools = [*files.TOOLS, *search.tools(self.sandbox), *shell.tools(self.commands), *todo.TOOLS]
        tools += recall.tools(compact, history)
        tools += fetch.TOOLS if self.options.fetching else ()
        tools += others
        if start_child is not None:
            tools += Delegating(start_child, place=place, names=lambda: box.names).tools()
        box = Toolbox(
            tools,
            self.around,
            permissions=self.permissions,
            more=more,
            only=frozenset(only),
            on_demand=on_demand,
            guard=guard,
        )
        return box

    async def restore(self, facts: Sequence[Recorded]) -> Restored:
        """Put files back as they were before these facts, a sentence for each."""
        return await restored(facts, self.around)

    async def settle(self, conversation: str) -> Sequence[FilesChanged]:
        """The turn is over: what steps changed that were stopped, or go on in the background."""
        checkpoints = self.around.checkpoints
        if checkpoints is None:
            return ()
        windows = checkpoints.of_conversation(conversation)
        return [fact for window in windows if (fact := await checkpoints.end(window, thorough=True)) is not None]

    async def aclose(self) -> None:
        """Stop the commands in the background and clear the scratch folder away."""
        await self.commands.aclose()
        if self.around.checkpoints is not None:
            await self.around.checkpoints.aclose()
        for folder in (self.sandbox.scratch, self.sandbox.given):
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
