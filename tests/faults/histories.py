"""Histories that are cut, mutated and mixed: no reader raises anything else than it
documents, all before the damage is there, and what can be read becomes legal facts.

python -m tests.faults.histories [--files N] [--seed S] [--from FOLDER]      the
folder's files beside the small ones of the tests
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from helix_desktop.engine import request_building
from helix_desktop.engine.facts import Recorded
from helix_desktop.engine.view import build_state
from helix_desktop.errors import HelixError
from helix_desktop.histories import history_facts, history_reading
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession
from tests import request_legality
from tests.histories import written

TOKENS = (
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b"null",
    b"0",
    b"-1e999",
    b"true",
    b'"\\ud800"',
    b"\xff\xfe",
    b"\n",
    b'""',
    b"[[[[[[",
    b"\0",
)


class Words:
    def count_tokens(self, text: str) -> int:
        return len(text.split())


def trials(files: int, seed: int, found: Counter[str], more: Sequence[Path] = ()) -> None:
    """So many damaged files."""
    chance = random.Random(seed)
    base = Path(tempfile.mkdtemp(prefix="helix-histories-"))
    try:
        whole = [make(base / "whole" / kind) for kind, make in written.KINDS.items()] + list(more)
        for number in range(files):
            path = chance.choice(whole)
            damaged = base / "damaged" / f"{number}" / path.name
            damaged.parent.mkdir(parents=True)
            how, keeps = _damage(path, damaged, chance)
            _read(path, damaged, (how, keeps), found)
            shutil.rmtree(damaged.parent)
    finally:
        shutil.rmtree(base)


def _damage(path: Path, damaged: Path, chance: random.Random) -> tuple[str, int]:
    """How it is damaged, and before which byte it is as it was."""
    content = path.read_bytes()
    if chance.random() < 0.4:
        at = chance.randrange(len(content) + 1)
        damaged.write_bytes(content[:at])
        return "cut", at
    changed = bytearray(content)
    first = len(content)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(changed) + 1)
        first = min(first, at)
        length = chance.choice((0, 1, 1, 3, 40))
        changed[at : at + length] = chance.choice(
            (*TOKENS, bytes(chance.randrange(256) for _ in range(4)))
        )
    damaged.write_bytes(bytes(changed))
    return "changed", first


def _read(path: Path, damaged: Path, damage: tuple[str, int], found: Counter[str]) -> None:
    how, keeps = damage
    found["files"] += 1
    try:
        recordings = history_reading.read_history_file(damaged).recordings
    except HelixError:
        found[f"{how}, refused in a sentence"] += 1
        recordings = ()
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        found[f"LOST: {type(error).__name__} while reading {path.name}: {error}"[:200]] += 1
        return
    found[f"{how}, read"] += bool(recordings)
    for recording in recordings:
        _facts(recording, path, found)
    if path.suffix == ".jsonl":
        _before(path, keeps, recordings, found)


def _facts(recording: RecordedSession, path: Path, found: Counter[str]) -> None:
    try:
        drafts = history_facts.draft_facts(recording, Words(), lambda _: "")
        state = build_state(
            Recorded("c", at, draft.time, draft.fact) for at, draft in enumerate(drafts, 1)
        )
        request = request_building.build_request(state.get_view(), {})
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        found[f"LOST: {type(error).__name__} while making facts of {path.name}: {error}"[:200]] += 1
        return
    found["requests"] += 1
    wrong = [*request_building.find_violations(request), *request_legality.find_complaints(request)]
    if wrong:
        found[f"LOST: {path.name}: {wrong[0]}"[:160]] += 1


def _before(
    path: Path, keeps: int, recordings: Sequence[RecordedSession], found: Counter[str]
) -> None:
    """All messages of the whole lines before the damage are there."""
    lines = path.read_bytes()[:keeps].split(b"\n")[:-1]
    if len(lines) < 2:
        return
    kept = path.with_name(f"kept-{path.name}")
    kept.write_bytes(b"\n".join(lines) + b"\n")
    try:
        expected = history_reading.read_history_file(kept).recordings[:1]
    except HelixError:
        return
    finally:
        kept.unlink()
    there = [_said(message) for recording in recordings for message in recording.messages]
    for recording in expected:
        missing = [
            one for message in recording.messages[:-1] if (one := _said(message)) not in there
        ]
        if missing:
            found[f"LOST: {path.name}: {missing[0]}"[:160]] += 1
            return
    found["whole before the damage"] += 1


def _said(message: RecordedMessage) -> str:
    return f"{message.role} {message.text[:200]}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from", dest="folder", type=Path)
    arguments = parser.parse_args()
    found: Counter[str] = Counter()
    begun = time.monotonic()
    more = (
        [
            file
            for file in history_reading.list_history_files(arguments.folder)
            if file.stat().st_size < 200_000
        ]
        if arguments.folder
        else []
    )
    copies = Path(tempfile.mkdtemp(prefix="helix-copies-"))
    try:
        mine = [
            Path(shutil.copy(file, copies / f"{number}-{file.name}"))
            for number, file in enumerate(more)
        ]
        trials(arguments.files, arguments.seed, found, mine)
    finally:
        shutil.rmtree(copies)
    lost = [what for what in found if what.startswith("LOST")]
    for what, count in sorted(found.items()):
        print(f"{count:>7,}  {what}")
    seconds = time.monotonic() - begun
    seed = arguments.seed
    print(
        f"histories: {found['files']:,} files, {found['requests']:,} requests; {len(lost)} failures; {seconds:.0f} s, seed {seed}"
    )
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())
