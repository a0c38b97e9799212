"""An MCP server, an editor and a wrapped agent outlive whoever has their workspace open.

python -m tests.faults.owner_ends [--rounds 50] [--seed 1] [--minutes 60] [--kinds ask,import,host,window]

In each round, somebody opens a workspace: an `ask` whose turn takes long, an import that watches, the
host that the resident keeps, or a window. The three come as its clients, and each is asked something.
Then the owner is killed at a random moment while they are asked again, until each has answered once
more. None of them may end or refuse. What was on its way and may have had an effect is told to try
again, and then is answered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from helix_desktop import running_instance
from helix_desktop.concurrency import OwnedTasks
from tests.faults.command_nursery import CommandNursery, NurseryProcess
from tests.faults.host_kill import OWNER_ENDED, create_conversation
from tests.faults.host_story_clients import EditorClient, GatewayAgent, Story, start_with_pipes
from tests.faults.store_report import report
from tests.peers.agent_provider import Asked, Block, Provider, Says
from tests.peers.ssh_machine import list_kept_hosts

KINDS = ("ask", "import", "host", "window")
ANSWER_SECONDS = 120.0
LONGEST_PAUSE_SECONDS = 0.5
STAYS = "run sleep 600"
MAY_HAVE_HAD_EFFECT = "this call may have had its effect"


class McpClient:
    """A client of the MCP server, on its standard input and output."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._process: NurseryProcess | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._numbers = 0

    async def start(self) -> None:
        argv = ["mcp", "--workspace", self._story.workspace]
        self._process, self._reader, self._writer = await start_with_pipes(self._story, argv)
        greeting = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "trial", "version": "1"},
        }
        await self._ask("initialize", greeting)
        self._send({"method": "notifications/initialized"})

    async def call_tool(self, words: str) -> None:
        arguments = {"name": "put_cached_content", "arguments": {"content": words}}
        try:
            result = await self._ask("tools/call", arguments)
        except RuntimeError as error:
            # The call was on its way when the owner was killed, and may have had its effect.
            if MAY_HAVE_HAD_EFFECT not in str(error):
                raise
            self._story.found["calls that were told that they may have had their effect"] += 1
            result = await self._ask("tools/call", arguments)
        if result.get("isError"):
            raise RuntimeError(str(result)[:300])

    async def _ask(self, method: str, params: Any) -> Any:
        assert self._reader is not None
        self._numbers += 1
        number = self._numbers
        self._send({"id": number, "method": method, "params": params})
        while True:
            line = await self._reader.readline()
            if not line:
                raise EOFError("the MCP server has ended")
            message = json.loads(line)
            if message.get("id") != number:
                continue
            if "error" in message:
                raise RuntimeError(str(message["error"])[:300])
            return message["result"]

    def _send(self, message: dict[str, Any]) -> None:
        assert self._writer is not None
        self._writer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._process is not None:
            self._process.kill()


class LastingEditor(EditorClient):
    """An editor that asks again, in the same process and session, when it is told to."""

    async def _prompt(self, reader: asyncio.StreamReader, session: str, words: str) -> None:
        while True:
            try:
                await super()._prompt(reader, session, words)
            except RuntimeError as error:
                # The prompt was on its way when the owner was killed, and may have had an effect.
                if OWNER_ENDED not in str(error):
                    raise
                self._story.found["prompts that were told to try again"] += 1
            else:
                return


async def wait_at_most(what: str, waiting: Coroutine[Any, Any, None]) -> None:
    """Says what was waited for too long, and how busy the computer was: it may be that alone."""
    try:
        await asyncio.wait_for(waiting, ANSWER_SECONDS)
    except TimeoutError as error:
        load = os.getloadavg()[0]
        raise TimeoutError(f"{ANSWER_SECONDS:.0f} s {what}, load {load:.0f}") from error


class OwnerProcess:
    """Whoever has the workspace open first."""

    def __init__(self, story: Story, kind: str) -> None:
        self._story = story
        self._kind = kind
        self._forked: NurseryProcess | None = None
        self._window: subprocess.Popen[bytes] | None = None

    async def start_and_wait(self) -> None:
        story = self._story
        argv = {
            "ask": ["ask", "-w", story.workspace, "--allow", "commands", STAYS],
            "import": ["conversation", "import", "-w", story.workspace, "--watch"],
            "host": ["host", "--keep", "--workspace", story.workspace],
        }
        if self._kind == "window":
            command = [sys.executable, "-m", "helix_desktop", *story.argv()]
            environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "HOME": str(story.home)}
            self._window = subprocess.Popen(command, env=environment)
        else:
            self._forked = story.nursery.start_silent_command(story.argv(*argv[self._kind]))
        await wait_at_most(f"until the {self._kind} answers", self._wait_until_it_answers())

    async def _wait_until_it_answers(self) -> None:
        story = self._story
        while True:
            wire = await running_instance.connect_to_owner(story.places.run, story.workspace)
            if wire is not None:
                await wire.close()
                return
            await asyncio.sleep(0.05)

    def kill(self) -> None:
        if self._forked is not None and self._forked.kill():
            self._story.found[f"{self._kind} killed"] += 1
        if self._window is not None:
            if self._window.poll() is None:
                self._story.found["window killed"] += 1
            self._window.kill()
            self._window.wait()


async def wait_for_answers(
    mcp: McpClient, editor: EditorClient, gateway: GatewayAgent, words: str
) -> None:
    """Asks all three, and waits until each has answered."""
    editor.say(f"editor {words}")
    gateway.say(f"gateway {words}")
    await wait_at_most(f"for the tool, {words}", mcp.call_tool(f"mcp {words}"))
    await wait_at_most(f"for editor and agent, {words}", wait_until_settled(editor, gateway))


async def wait_until_settled(editor: EditorClient, gateway: GatewayAgent) -> None:
    while not (editor.has_settled and gateway.has_settled):
        await asyncio.sleep(0.05)


async def tell_round(story: Story, kind: str, upstream: str) -> None:
    await create_conversation(story)
    owner = OwnerProcess(story, kind)
    mcp = McpClient(story)
    editor = LastingEditor(story)
    gateway = GatewayAgent(story, upstream)
    tasks = OwnedTasks("clients of an owner that ends")
    try:
        await owner.start_and_wait()
        await mcp.start()
        working = [
            tasks.spawn_task(client.work_until_over(), name=type(client).__name__)
            for client in (editor, gateway)
        ]
        await wait_for_answers(mcp, editor, gateway, "before")
        again = tasks.spawn_task(
            wait_for_answers(mcp, editor, gateway, "meanwhile"), name="ask again"
        )
        await asyncio.sleep(story.chance.random() * LONGEST_PAUSE_SECONDS)
        owner.kill()
        await again
        await wait_for_answers(mcp, editor, gateway, "after")
        for task in working:
            if task.done():
                task.result()
        # The editor's process and the gateway were never started again.
        if editor.starts != 1:
            story.found[f"LOST the editor's agent was started again: {editor.last_error}"] += 1
        if gateway.starts != 1:
            story.found[f"LOST the gateway was started {gateway.starts} times"] += 1
    finally:
        story.is_over = True
        owner.kill()
        mcp.close()
        await tasks.aclose(limit=5)
        await editor.close()
        await gateway.close()
        for pid in list_kept_hosts(story.home / "home"):
            with suppress(ProcessLookupError):
                os.kill(pid, 9)


async def tell_rounds(
    kinds: Sequence[str], rounds: int, seed: int, minutes: float, nursery: CommandNursery,
    found: Counter[str],
) -> None:  # fmt: skip
    deadline = time.monotonic() + minutes * 60
    chance = random.Random(seed)
    for _ in range(rounds):
        for kind in kinds:
            round_seed = chance.randrange(1 << 30)
            if time.monotonic() < deadline:
                await tell_one(kind, round_seed, nursery, found)


async def tell_one(kind: str, seed: int, nursery: CommandNursery, found: Counter[str]) -> None:
    home = Path(tempfile.mkdtemp(prefix="helix-owner-"))
    found_here: Counter[str] = Counter()
    replies = iter(range(1 << 30))

    def answer(_: Asked) -> Sequence[Block]:
        return [Says(f"reply {next(replies)}")]

    story = Story(home, random.Random(seed), found_here, nursery)
    start = time.monotonic()
    try:
        with Provider(answer) as provider:
            await tell_round(story, kind, provider.url)
        found_here[f"rounds with {kind}"] += 1
    except Exception as error:  # noqa: BLE001 - the other rounds are told all the same
        found_here[f"LOST {kind}: {error!r}"] += 1
    finally:
        shutil.rmtree(home, ignore_errors=True)
    losses = [what for what in found_here if what.startswith("LOST")]
    print(f"{kind}, seed {seed}: {time.monotonic() - start:.1f} s, {losses}", flush=True)
    for what in losses:
        found[f"{what} ({kind}, seed {seed})"] += found_here.pop(what)
    found.update(found_here)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--kinds", default=",".join(KINDS))
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    nursery = CommandNursery()

    def tell(found: Counter[str]) -> None:
        kinds = arguments.kinds.split(",")
        work = tell_rounds(
            kinds, arguments.rounds, arguments.seed, arguments.minutes, nursery, found
        )
        asyncio.run(work)

    try:
        return report("owner ends", arguments.seed, tell)
    finally:
        nursery.close()


if __name__ == "__main__":
    sys.exit(main())
