"""Secrets of every kind in every place, escaped to every depth, then forgotten: no file
may hold them.

    python -m tests.faults.forgetting [--secrets 40] [--seed 1]

What is looked for afterwards is made here, with json, urllib and the codecs; nothing of
the program's own search is used. Where something is left, the program has to have said
where, or the trial fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
import urllib.parse
from collections import Counter
from pathlib import Path

from helix_desktop.engine.facts import (
    ConversationStarted,
    Folded,
    FoldKind,
    ModelReplied,
    PartRef,
    Stop,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.stored_workspace import StoredWorkspace
from tests.store.journal_damage import find_journal_damage

ALPHABETS = ("abcXYZ0189-_", 'ab"\\/ {}', "пароль密码ü", "a\n\t'$&<>%+", "😀é\u0301x~")
CODECS = ("utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32")
DEPTHS = range(5)


def secret(chance: random.Random) -> str:
    alphabet = chance.choice(ALPHABETS)
    middle = "".join(chance.choices(alphabet, k=chance.randrange(6, 24)))
    return f"{chance.randrange(10**9):09}{middle}{chance.choice(alphabet).strip() or 'x'}"


def escaped(text: str, depth: int, *, ascii_: bool) -> str:
    for _ in range(depth):
        text = json.dumps(text, ensure_ascii=ascii_)[1:-1]
    return text


def forms(text: str) -> list[str]:
    """As it is written at every depth, with and without letters beyond ASCII."""
    found = [text]
    at = {text}
    for _ in DEPTHS:
        at = {
            json.dumps(each, ensure_ascii=ascii_)[1:-1] for each in at for ascii_ in (True, False)
        }
        found += at
    return [*dict.fromkeys(found), urllib.parse.quote(text), urllib.parse.quote_plus(text)]


def holding(folder: Path, text: str) -> list[str]:
    """Files with any form of it, in any encoding."""
    needles = {
        form.encode(codec)
        for form in forms(text)
        for codec in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le")
    }
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if any(needle in path.read_bytes() for needle in needles)]


async def fill(workspace: StoredWorkspace, secrets: list[str], chance: random.Random) -> None:
    """A conversation for each secret, with it wherever a secret can get to."""
    for number, one in enumerate(secrets):
        facts: list[object] = [ConversationStarted(f"Title {one}")]
        for depth in DEPTHS:
            form = escaped(one, depth, ascii_=chance.random() < 0.5)
            described = await workspace.cache.store_content(
                f"clean {number} {depth}".encode(), EntryOrigin("shell", f"run {form}")
            )
            held = await workspace.cache.store_content(
                f"k={form};".encode(chance.choice(CODECS)), EntryOrigin("shell", "x")
            )
            facts += [
                UserSaid((Text(f"my key is {form}, keep it"),)),
                ModelReplied(
                    (ToolCall(str(depth), "shell", json.dumps({"command": form})),), "m", Stop.CALLS
                ),
                ToolReturned(str(depth), held, 3, head=f"k={form}"),
                ToolReturned(str(depth), described, 3, head="clean"),
                Folded(f"f{depth}", FoldKind.EXCERPT, PartRef(2), f"it says {form}", 1, 9),
            ]
        piece = one.encode()
        split = b"\0" * ((1 << 20) - chance.randrange(1, len(piece))) + piece + b"\0" * 100
        await workspace.cache.store_content(split, EntryOrigin("shell", "large"))
        await workspace.journal.append_to_journal(f"c{number}", facts)  # type: ignore[arg-type]
        await workspace.journal.store_meter(f"c{number}", one)
        if number % 10 == 5:
            await workspace.back_up_now()
    await workspace.index.wait_until_indexed()
    await workspace.back_up_now()


async def trials(number: int, seed: int, found: Counter[str], folder: Path) -> None:
    chance = random.Random(seed)
    secrets = [secret(chance) for _ in range(number)]
    workspaces = AllWorkspaces(folder)
    workspace = await workspaces.open_stored_workspace(
        workspaces.create_stored_workspace("Trial", folder).id
    )
    try:
        await fill(workspace, secrets, chance)
        damaged = workspace.folder / "damaged"
        damaged.mkdir(exist_ok=True)
        (damaged / "copy").write_text("\n".join(secrets))
        for one in secrets:
            found["held before"] += len(holding(workspace.folder, one))
            purged = await workspace.forget_content(text=one)
            found["secrets"] += 1
            found["entries"] += len(purged.entries)
            found["facts"] += purged.facts
            for name in holding(workspace.folder, one):
                found[f"LOST {one!r} is left in {name}"] += not any(
                    name in told for told in purged.elsewhere
                )
            found["told"] += len(purged.elsewhere)
        damage = (await workspace.cache.verify_cache()).damaged or await find_journal_damage(
            workspace
        )
        found["LOST something is damaged"] += bool(damage)
    finally:
        await workspace.aclose()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--secrets", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    found: Counter[str] = Counter()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(trials(arguments.secrets, arguments.seed, found, Path(folder)))
    lost = [key for key, count in found.items() if key.startswith("LOST") and count]
    for key in lost[:10]:
        print(key)
    print(
        f"forgetting: {found['secrets']} secrets, {found['held before']} files held them, {found['entries']:,} entries, "
        f"{found['facts']:,} facts; {len(lost)} failures; {time.monotonic() - start:.0f} s, seed {arguments.seed}"
    )
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
