"""How long an editor's prompt takes until its provider is asked, beside the same turn
in the process of the window.

python -m tests.benchmarks.editor [--quick]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from acp import text_block

from helix_desktop import program_folders
from helix_desktop.engine.facts import Text
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from tests.acp_agent.editor import Editor, started
from tests.benchmarks import report
from tests.benchmarks.row import Figure, Row
from tests.peers.chat_server import ChatServer, reply

LIMIT = 30.0  # milliseconds that an editor may add
FIRST = 3  # turns that warm up


async def _measure(count: int) -> list[Row]:
    with (
        tempfile.TemporaryDirectory(prefix="helix-editor-") as base,
        ChatServer([reply("done")] * 4 * (count + FIRST)) as server,
    ):
        folder = Path(base).resolve() / "project"
        home = Path(base) / "home"
        folder.mkdir()
        (folder / "README.md").write_text("# A project\n")
        where = program_folders.find_program_folders(home)
        desk = Workbenches(where, SecretStorage(where.key_file, environ={}))
        desk.configured.save_provider(ProviderConfig("peer", base_url=server.base_url))
        bench = await desk.create_workspace("project", folder)
        await bench.choose_model_for_role("peer/scripted")
        ours = await _turns_in_process(bench, server, count)
        await desk.aclose()
        theirs = await _turns_of_editor(home, folder, server, count)
    window = Figure.of(ours)
    editor = Figure.of(theirs)
    more = editor.median - window.median
    return [
        Row("from an editor's prompt to the provider's request", "ms", editor, {"in the window": window}, f"median < {LIMIT:g} ms more", more < LIMIT, note=f"{count} turns each"),
    ]  # fmt: skip


async def _turns_in_process(bench: Workbench, server: ChatServer, count: int) -> list[float]:
    session = await bench.start_conversation()
    taken = []
    for _ in range(FIRST + count):
        before = len(server.requests)
        began = time.monotonic()
        session.send_message((Text("Go on."),))
        await session.wait_until_idle()
        taken.append(1000 * (server.requests[before].time - began))
    return taken[FIRST:]


async def _turns_of_editor(home: Path, folder: Path, server: ChatServer, count: int) -> list[float]:
    taken = []
    async with started(Editor(), home, folder) as agent:
        new = await agent.new_session(cwd=str(folder), mcp_servers=[])
        for _ in range(FIRST + count):
            before = len(server.requests)
            began = time.monotonic()
            await agent.prompt(session_id=new.session_id, prompt=[text_block("Go on.")])
            taken.append(1000 * (server.requests[before].time - began))
    return taken[FIRST:]


def rows(*, quick: bool) -> list[Row]:
    return asyncio.run(_measure(20 if quick else 100))


def main() -> int:
    sys.stdout.write("\n".join(report.table(rows(quick="--quick" in sys.argv))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
