"""The replay lab: conversations of a workspace through policies they did not have, in a process that can be stopped.

A conversation is written out as messages of the common form, and `helix-desktop replay` does the rest: nothing is sent anywhere.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Recorded
from helix_desktop.errors import NotThere, StoreFailed, WrongUse
from helix_desktop.gui.engine_sentences import said as told
from helix_desktop.gui.lab.port import Course, Outcome, Played, Wanted
from helix_desktop.gui.ports import Workbench
from helix_desktop.gui.words import tr
from helix_desktop.histories import writing
from helix_desktop.processes.starter import ProcessLaunch, Whose, end_process, own_program, start_process

LARGEST = 8 << 20  # bytes of an output that are played


async def play(bench: Workbench, wanted: Wanted, report: Callable[[int, int], None]) -> Outcome:
    """Every policy over every conversation and file. Cancelled, the process ends. Nothing stays in the temporary files."""
    with tempfile.TemporaryDirectory(prefix="helix-replay-") as folder:
        files = [*(await _written_out(bench, wanted.conversations, Path(folder))), *wanted.files]
        page = Path(folder, "replay.html")
        told = {"--compare": ",".join(wanted.policies), "--window": str(wanted.window), "--html": str(page)}
        told["--recalls"] = (
            "searched"  # else what a summary stands for costs nothing, and presets that write many look cheaper
        )
        options = ["--json", "--points", *(word for pair in told.items() for word in pair)]
        found = await _run([*options, *map(str, files)], len(files) * len(wanted.policies), report)
        html = await asyncio.to_thread(page.read_text, "utf-8")
    played = [_played(name, result) for name, result in found["policies"].items()]
    return Outcome(played, wanted.window, html.replace(escape(f"{folder}{os.sep}"), ""))


async def _written_out(bench: Workbench, conversations: Sequence[str], folder: Path) -> Sequence[Path]:
    """A file for each, which bears its title: what is played is called by its file."""
    titles = {row.id: row.title for row in bench.conversations()}
    files = []
    for number, conversation in enumerate(conversations, 1):
        words = re.sub(r"[^\w\- ]+", " ", titles.get(conversation, ""))[:60].strip() or tr("New conversation")
        file = folder / f"{number} {words}.json"
        messages = await _messages(await bench.child(conversation), bench)
        await asyncio.to_thread(_write, file, messages)
        files.append(file)
    return files


def _write(file: Path, messages: Sequence[Mapping[str, Any]]) -> None:
    file.write_text(json.dumps(messages), "utf-8")


async def _run(options: Sequence[str], total: int, report: Callable[[int, int], None]) -> dict[str, Any]:
    process = await start_process(ProcessLaunch(Whose.PROGRAM, own_program("replay", *options)))
    said: list[str] = []

    async def read(stream: asyncio.StreamReader | None) -> bytes:
        return await stream.read() if stream is not None else b""

    async def hear(stream: asyncio.StreamReader | None) -> None:
        while stream is not None and (line := await stream.readline()):
            said.append(line.decode("utf-8", "replace").strip())
            report(min(len(said), total), total)

    try:
        output, _ = await asyncio.gather(read(process.stdout), hear(process.stderr))
        if await process.wait():
            raise StoreFailed(tr("The replay failed: {why}", why=told(" ".join(said[-3:])[:500])))
        return dict(await asyncio.to_thread(json.loads, output))
    except ValueError as error:
        raise WrongUse(tr("The replay returned no readable result.")) from error
    finally:
        await end_process(process)


async def _messages(facts: Sequence[Recorded], bench: Workbench) -> list[writing.Line]:
    contents: dict[Digest, bytes] = {}
    for digest in writing.named(facts):
        with suppress(NotThere, StoreFailed):  # what cannot be read any more is played as what is known of it
            contents[digest] = await bench.workspace.cache.read(digest, 0, LARGEST)
    return await asyncio.to_thread(lambda: list(writing.openai(facts, contents.get)))


def _played(name: str, found: Mapping[str, Any]) -> Played:
    total = found["total"]
    courses = [
        Course(
            Path(one["session"]).name.removesuffix(".json"),
            one["points"],
            [(step, kind) for step, kind in one["marks"]],
        )
        for one in found["sessions"]
    ]
    return Played(
        name,
        total["steps"],
        total["sent"],
        total["effective"],
        total["none"]["billed"],
        total["peak"],
        total["retention"],
        dict(total["folds"]),
        courses,
    )
