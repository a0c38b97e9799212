"""Make the old files of the version at hand: run once for each version of a stored
shape, and kept from then on.

python -m tests.old.make v1
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from helix_desktop.engine.facts import (
    Attachment,
    ConversationChanged,
    ConversationStarted,
    Decided,
    DetailsKept,
    DocumentEdited,
    Excluded,
    FileChanged,
    Folded,
    FoldKind,
    ModelReplied,
    ModelRole,
    ModelSet,
    PartRef,
    Pinned,
    PolicySet,
    Purpose,
    Reasoning,
    RulesSet,
    Span,
    Spent,
    Stop,
    SystemSet,
    Text,
    TodoSet,
    ToolCall,
    ToolReturned,
    ToolsOffered,
    ToolSpec,
    TurnEnd,
    TurnEnded,
    Unfolded,
    Usage,
    UserSaid,
)
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.store import workspace_settings
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.stored_workspace import StoredWorkspace

CONTENTS = [b"", b"a small zebra\nof two lines\n", bytes(range(256)) * 20, b"many words " * 200_000]
HERE = Path(__file__).parent


async def fill(workspace: StoredWorkspace) -> None:
    """Something of every shape that is stored."""
    stored = [
        await workspace.cache.store_content(
            content, EntryOrigin("shell" if n < 3 else "", f"command {n}")
        )
        for n, content in enumerate(CONTENTS)
    ]
    gone = await workspace.cache.store_content(b"collected long ago", EntryOrigin("shell", "gone"))
    forgotten = await workspace.cache.store_content(
        b"forgotten long ago", EntryOrigin("shell", "secret")
    )
    await workspace.cache.pin_entry(stored[1].digest)
    call = ToolCall("1", "shell", '{"command": "ls"}', 5, "the errors")
    await workspace.journal.append_to_journal(
        "first",
        [
            ConversationStarted("Title"),
            SystemSet("system", 1),
            RulesSet("AGENTS.md", "be kind", 2),
            ToolsOffered((ToolSpec("shell", "runs", "{}"),), 3),
            PolicySet("layered", (("handover_at", 0.85), ("cache", True))),
            ModelSet(ModelRole.MAIN, "m", 128_000, price_input=1.5),
            UserSaid((Text("naïve 日本語", 4), Attachment("file", stored[2], 9)), steering=True),
            ModelReplied(
                (Reasoning("why", 1, "opaque", "p"), Text("so", 1), call),
                "m",
                Stop.CALLS,
                Usage(10, 5, 0, 3),
                7,
            ),
            Decided("1", allowed=True, by="user", scope="always"),
            ToolReturned(
                "1",
                stored[1],
                7,
                head="a small zebra",
                changes=(FileChanged("a", None, stored[0].digest),),
            ),
            Folded(
                "f1", FoldKind.MARKER, PartRef(10), "[CACHED]", 1, 7, entries=(stored[1].digest,)
            ),
            Folded(
                "f2",
                FoldKind.HANDOVER,
                Span(7, 10),
                "document",
                9,
                99,
                details=DetailsKept(5, 3, 1, 1),
                number=1,
            ),
            DocumentEdited("f2", "edited", 3),
            Unfolded("f1"),
            Pinned(Span(7, 7)),
            Excluded(PartRef(8, 1)),
            TodoSet((("a thing", "doing"),)),
            Spent(Purpose.HANDOVER, "fast", Usage(1, 0, 0, 1, cost=0.25)),
            TurnEnded(TurnEnd.DONE),
            ConversationChanged(title="New title", pinned=True),
        ],
    )
    await workspace.journal.fork_conversation("first", 8, "second")
    await workspace.forget_content(entries=[forgotten.digest])
    await workspace.cache.remove_unused_down_to(0)
    if gone.digest == Digest.of_content(b""):
        raise ValueError
    workspace.change_settings(
        {
            "models.main": "m",
            "policy.preset": "layered",
            "mcp": {"a": {"command": "b"}},
            "permissions.mode": "ask",
        }
    )


async def make(version: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspaces = AllWorkspaces(Path(folder))
        known = workspaces.create_stored_workspace("Old")
        workspace = await workspaces.open_stored_workspace(known.id)
        await fill(workspace)
        await workspace.index.wait_until_indexed()
        await workspace.back_up_now()
        await workspace.export_to_file(HERE / version / "workspace.helix")
        await workspace.aclose()
        workspace_settings.change_workspace_settings(
            known.folder / workspace_settings.NAME, {"colour": "#123456"}
        )
        shutil.rmtree(known.folder / "damaged", ignore_errors=True)
        with tarfile.open(HERE / version / "workspace.tar.xz", "w:xz") as archive:
            archive.add(known.folder, "old")


if __name__ == "__main__":
    (HERE / sys.argv[1]).mkdir(exist_ok=True)
    asyncio.run(make(sys.argv[1]))
