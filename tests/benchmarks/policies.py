"""The four policies of the program beside what public systems do, on recorded sessions under several price tables.

    python -m tests.benchmarks.policies --traces DIR [--window N] [--least TOKENS] [--json]

Every policy of the program runs through the real engine; the others are re-stated in `peer_policies`. Shares are of
sending everything every time. Sessions shorter than `--least` tokens are left out: nothing has to be saved there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from helix_desktop import tokens
from helix_desktop.commands.replay import play_one
from helix_desktop.engine import policy
from helix_desktop.engine.economics import Prices
from helix_desktop.histories import reading
from helix_desktop.histories.recording import Recording
from helix_desktop.replay.billing import recorded_pieces
from helix_desktop.replay.counting import Counting
from helix_desktop.replay.figures import Figures, total
from helix_desktop.replay.player import Terms
from tests.benchmarks.peer_policies import PEERS, play

TABLES: Mapping[str, Prices] = {
    "cache read 0.1, write 1.25": Prices(0.1, 1.25, 5.0),
    "cache read 0.02, write 1": Prices(0.02, 1.0, 5.0),
    "cache read 0.5, write 1": Prices(0.5, 1.0, 5.0),
    "cache read 0.1, write 1": Prices(0.1, 1.0, 5.0),
}
FOLDERS = ("pi-mono", "dgm-claude", "who-and-when")
OURS = ("layered", "helix", "observational", "none")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True, help="a folder of recorded sessions")
    parser.add_argument("--window", type=int, default=128_000)
    parser.add_argument("--least", type=int, default=40_000, help="tokens a session must have")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    counting = Counting(tokens.Counter())
    recordings = sessions(arguments.traces, arguments.least, counting.count)
    tables = {name: table(recordings, arguments.window, prices, counting) for name, prices in TABLES.items()}
    if arguments.json:
        print(json.dumps({name: {row: made.as_json() for row, made in rows.items()} for name, rows in tables.items()}))
        return 0
    print(f"{len(recordings)} sessions, window {arguments.window:,}")
    for name, rows in tables.items():
        print(f"\n{name}")
        print("\n".join(lines(rows)))
    return 0 if all(map(never_dearer, tables.values())) else 1


def sessions(folder: Path, least: int, count: Callable[[str], int]) -> list[Recording]:
    """The sessions of the folder that are long enough; of the folders of the traces, where these are there."""
    folders = [folder / name for name in FOLDERS if (folder / name).is_dir()] or [folder]
    found = reading.read_all(folders).recordings
    return [one for one in found if length(one, count) >= least]


def length(recording: Recording, count: Callable[[str], int]) -> int:
    """All tokens of a session."""
    return sum(tokens for message in recording.messages for _, tokens in recorded_pieces(message, count))


def table(recordings: Sequence[Recording], window: int, prices: Prices, counting: Counting) -> dict[str, Figures]:
    """The total of every policy, by name."""
    rows: dict[str, Figures] = {}
    for name in OURS:
        terms = Terms(policy.preset(name), window, prices)
        rows[name] = total([play_one(recording, terms, counting) for recording in recordings])
        print(f"{name} done", file=sys.stderr)
    for name, peer in PEERS.items():
        rows[name] = total([play(each, peer(), window, prices, counting.count) for each in recordings])
    return rows


def lines(rows: Mapping[str, Figures]) -> list[str]:
    """The table of the traces' page."""
    whole = rows["no management"]
    made = [
        f"{'policy':48}  {'sent':>6}  {'billed':>6}  kept   handovers  peak  median  over  illegal  lost  failed recalls"
    ]
    for name, one in rows.items():
        made.append(
            f"{name:48}  {one.sent / whole.sent:6.3f}  {one.billed / whole.billed:6.3f}  {one.retention:5.3f}  "
            f"{one.folds.get('handover', 0) + one.folds.get('observations', 0):9}  {one.peak_share:4.2f}  {one.median_use:6.2f}  "
            f"{one.overflowed:4}  {one.illegal_requests:7}  {one.details.get('lost', 0):4}  {one.recalls_failed:14}"
        )
    return made


def never_dearer(rows: Mapping[str, Figures]) -> bool:
    """Whether `layered` is billed no more than any other policy."""
    return all(rows["layered"].billed <= rows[name].billed for name in PEERS)


if __name__ == "__main__":
    sys.exit(main())
