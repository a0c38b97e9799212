"""The four policies of the program beside what public systems do, on recorded sessions
under several price tables.

    python -m tests.benchmarks.policies --traces DIR [--window N] [--least TOKENS] [--json] [--sessions]

Every policy of the program runs through the real engine; the others are re-stated in
`peer_policies`. Shares are of sending everything every time, and the bill is with the
head and with recalls, for which an agent must search. Sessions shorter than `--least`
tokens are left out: nothing must be saved there. `--sessions`: `layered` on every
session of the folder, beside the cheapest other policy that retains as much, and both
halves: constants are chosen on the first and judged on the second. `halves` says how
they are drawn. The intervals are of 2,000 draws of as many sessions with putting back
(90 %), always the same.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from helix_desktop import token_counting
from helix_desktop.commands.replay_command import replay_recording
from helix_desktop.engine import context_policy
from helix_desktop.engine.fold_economics import RelativePrices
from helix_desktop.histories import history_reading
from helix_desktop.histories.recorded_session import RecordedSession
from helix_desktop.replay.prompt_cache_billing import pieces_of_recorded_message
from helix_desktop.replay.replay_figures import ReplayFigures, sum_figures
from helix_desktop.replay.session_player import RememberingCounter, ReplayTerms
from helix_desktop.replay.simulated_recalls import RecallMode
from tests.benchmarks.adapted import HEADS_OF, NAMED
from tests.benchmarks.figures import last
from tests.benchmarks.peer_policies import PEERS, play
from tests.benchmarks.public_names import read_public_names
from tests.benchmarks.row import Row

TABLES: Mapping[str, RelativePrices] = {
    "cache read 0.1, write 1.25": RelativePrices(0.1, 1.25, 5.0),
    "cache read 0.02, write 1": RelativePrices(0.02, 1.0, 5.0),
    "cache read 0.5, write 1": RelativePrices(0.5, 1.0, 5.0),
    "cache read 0.1, write 1": RelativePrices(0.1, 1.0, 5.0),
}
FOLDERS = ("pi-mono", "dgm-claude", "who-and-when")
OURS = ("layered", "helix", "observational", "none")
HEADED = (
    "outputs masked after 10 steps",
    "summary at 80%, 15,000 tokens kept",
    "summary at 90%",
    "excerpts, observations at 30%",
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path, required=True, help="a folder of recorded sessions")
    parser.add_argument("--window", type=int, default=128_000)
    parser.add_argument("--least", type=int, default=40_000, help="tokens a session must have")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--sessions", action="store_true")
    arguments = parser.parse_args(argv)
    counting = RememberingCounter(token_counting.TiktokenCounter())
    if arguments.sessions:
        print("\n".join(beside(every_session(arguments.traces), arguments.window, counting)))
        return 0
    recordings = sessions(arguments.traces, arguments.least, counting.count_tokens)
    tables = {
        name: table(recordings, arguments.window, prices, counting)
        for name, prices in TABLES.items()
    }
    usual, prices = next(iter(TABLES.items()))
    terms = ReplayTerms(
        context_policy.preset_policy("layered"),
        arguments.window,
        prices,
        recalls=RecallMode.NAMED,
        public_names=read_public_names(),
    )
    tables[usual][NAMED] = sum_figures(
        [replay_recording(recording, terms, counting) for recording in recordings]
    )
    if arguments.json:
        tables |= {
            f"{HEADS_OF}{label}": headed(recordings, arguments.window, head, counting)
            for label, head in heads().items()
        }
        print(
            json.dumps(
                {
                    name: {row: made.as_json() for row, made in rows.items()}
                    for name, rows in tables.items()
                }
            )
        )
        return 0
    print(f"{len(recordings)} sessions, window {arguments.window:,}")
    for name, rows in tables.items():
        print(f"\n{name}")
        print("\n".join(lines(rows)))
    return 0 if all(map(never_dearer, tables.values())) else 1


def sessions(folder: Path, least: int, count: Callable[[str], int]) -> list[RecordedSession]:
    """The sessions of the folder that are long enough; of the folders of the traces,
    where these are there.
    """
    folders = [folder / name for name in FOLDERS if (folder / name).is_dir()] or [folder]
    found = history_reading.read_history_files(folders).recordings
    return [one for one in found if length(one, count) >= least]


def length(recording: RecordedSession, count: Callable[[str], int]) -> int:
    """All tokens of a session."""
    return sum(
        tokens
        for message in recording.messages
        for _, tokens in pieces_of_recorded_message(message, count)
    )


def table(
    recordings: Sequence[RecordedSession],
    window: int,
    prices: RelativePrices,
    counting: RememberingCounter,
) -> dict[str, ReplayFigures]:
    """The total of every policy, by name. Other prices than the usual are not corrected by
    what a recording says of its own.
    """
    is_usual = prices == next(iter(TABLES.values()))
    rows: dict[str, ReplayFigures] = {}
    for name in OURS:
        terms = ReplayTerms(
            context_policy.preset_policy(name),
            window,
            prices,
            recalls=RecallMode.SEARCHED,
            public_names=read_public_names(),
            is_cache_recorded=is_usual,
        )
        rows[name] = sum_figures(
            [replay_recording(recording, terms, counting) for recording in recordings]
        )
        print(f"{name} done", file=sys.stderr)
    for name, peer in PEERS.items():
        rows[name] = sum_figures(
            [
                play(
                    each,
                    peer(),
                    window,
                    prices,
                    counting.count_tokens,
                    is_cache_recorded=is_usual,
                )
                for each in recordings
            ]
        )
    return rows


def heads() -> dict[str, int]:
    """The tokens that other agents send in front of every request, as the benchmark
    `heads` measured them last.
    """
    rows = [Row.from_json(row) for run in last() if run["name"] == "heads" for row in run["rows"]]
    return {name: int(figure.median) for row in rows for name, figure in row.peers.items()}


def headed(
    recordings: Sequence[RecordedSession], window: int, head: int, counting: RememberingCounter
) -> dict[str, ReplayFigures]:
    """`layered` and what agents do with a full context, with the head of one of them,
    at the usual prices.
    """
    prices = next(iter(TABLES.values()))
    terms = ReplayTerms(
        context_policy.preset_policy("layered"),
        window,
        prices,
        head=head,
        recalls=RecallMode.SEARCHED,
        public_names=read_public_names(),
    )
    rows = {
        "layered": sum_figures([replay_recording(each, terms, counting) for each in recordings])
    }
    for name in HEADED:
        rows[name] = sum_figures(
            [
                play(each, PEERS[name](), window, prices, counting.count_tokens, head)
                for each in recordings
            ]
        )
    return rows


def lines(rows: Mapping[str, ReplayFigures]) -> list[str]:
    """The table of the traces' page."""
    whole = rows["no management"]
    made = [
        f"{'policy':48}  {'sent':>6}  {'bill':>6}  kept   handovers  peak  median  over  illegal  lost  failed recalls"
    ]
    for name, one in rows.items():
        made.append(
            f"{name:48}  {one.sent / whole.sent:6.3f}  {one.billed_with_recalls / whole.billed_with_recalls:6.3f}  {one.share_of_names_outside_markers:5.3f}  "
            f"{one.folds.get('handover', 0) + one.folds.get('observations', 0):9}  {one.peak_window_share:4.2f}  {one.median_window_share:6.2f}  "
            f"{one.overflowed:4}  {one.illegal_requests:7}  {one.details.get('lost', 0):4}  {one.recalls_failed:14}"
        )
    return made


def every_session(folder: Path) -> list[RecordedSession]:
    """All sessions of the traces, each once: `native` has some of them in another form."""
    folders = [
        each for each in sorted(folder.iterdir()) if each.is_dir() and each.name != "native"
    ] or [folder]
    return list(history_reading.read_history_files(folders).recordings)


def halves(figures: Sequence[ReplayFigures], seed: int = 18) -> dict[str, int]:
    """0 for the half constants are chosen on, 1 for the half they are judged on, by name.

    Those that fit the window and those that overflow it apart, from the longest to the
    shortest: of each pair a number drawn from the seed says which goes where.
    """
    numbers = random.Random(seed)
    found: dict[str, int] = {}
    for fits in (True, False):
        group = sorted(
            (one for one in figures if one.fits_window == fits),
            key=lambda one: (-one.plain_peak, one.name),
        )
        for at in range(0, len(group), 2):
            first = numbers.randrange(2)
            found |= {one.name: (first + place) % 2 for place, one in enumerate(group[at : at + 2])}
    return found


def beside(
    recordings: Sequence[RecordedSession], window: int, counting: RememberingCounter
) -> list[str]:
    """Each session under `layered`, the cheapest peer that retains as much, and both
    halves with their intervals.
    """
    prices = TABLES["cache read 0.1, write 1.25"]
    terms = ReplayTerms(
        context_policy.preset_policy("layered"),
        window,
        prices,
        recalls=RecallMode.SEARCHED,
        public_names=read_public_names(),
    )
    ours = [replay_recording(each, terms, counting) for each in recordings]
    half = halves(ours)
    return [
        *(
            _row(each, one, half[one.name], counting)
            for each, one in zip(recordings, ours, strict=True)
        ),
        *(_half(number, [one for one in ours if half[one.name] == number]) for number in (0, 1)),
        _half(2, ours),
        _splits(ours),
    ]


def _row(
    recording: RecordedSession, ours: ReplayFigures, half: int, counting: RememberingCounter
) -> str:
    prices = TABLES["cache read 0.1, write 1.25"]
    peers = {
        name: play(recording, peer(), ours.window, prices, counting.count_tokens)
        for name, peer in PEERS.items()
    }
    able = {
        name: one
        for name, one in peers.items()
        if one.share_of_names_outside_markers >= ours.share_of_names_outside_markers
        and one.peak <= ours.window
    }
    cheapest = min(able, key=lambda name: able[name].billed_with_recalls, default="")
    dearer = (
        f"{ours.billed_with_recalls / able[cheapest].billed_with_recalls - 1:+7.1%} {cheapest}"
        if cheapest
        else "   none retains as much"
    )
    share = f"{ours.billed_with_recalls / ours.plain_billed:.3f}"
    return f"half {half}  {Path(recording.name).name[-34:]:34}  {share}  {ours.share_of_names_outside_markers:.3f}  {dearer}"


def _half(number: int, figures: Sequence[ReplayFigures]) -> str:
    names = ("chosen on", "judged on", "all")
    if not figures:
        return f"{names[number]}: no session"
    low, high = interval(figures)
    whole = sum_figures(figures)
    mean = sum(one.billed_with_recalls / one.plain_billed for one in figures) / len(figures)
    return (
        f"{names[number]}: {len(figures)} sessions, effective {whole.billed_with_recalls / whole.plain_billed:.3f} ({low:.3f}–{high:.3f}), "
        f"mean of the sessions {mean:.3f}, plain retention {whole.share_of_names_outside_markers:.3f}"
    )


def _splits(figures: Sequence[ReplayFigures], seeds: int = 2_000) -> str:
    """How far halves lie apart, whatever the seed."""
    apart = []
    for seed in range(seeds):
        half = halves(figures, seed)
        first, second = (
            sum_figures([one for one in figures if half[one.name] == number]) for number in (0, 1)
        )
        apart.append(
            abs(
                first.billed_with_recalls / first.plain_billed
                - second.billed_with_recalls / second.plain_billed
            )
        )
    apart.sort()
    near = sum(one <= 0.05 for one in apart)
    return f"{seeds:,} other splits: {near} within 0.05, least {apart[0]:.3f}, median {apart[seeds // 2]:.3f}"


def interval(figures: Sequence[ReplayFigures], draws: int = 2_000) -> tuple[float, float]:
    """Between which shares 90 of 100 draws of the sessions lie."""
    numbers = random.Random(18)
    shares = []
    for _ in range(draws):
        drawn = numbers.choices(figures, k=len(figures))
        shares.append(
            sum(one.billed_with_recalls for one in drawn) / sum(one.plain_billed for one in drawn)
        )
    shares.sort()
    return shares[draws // 20], shares[-draws // 20]


def never_dearer(rows: Mapping[str, ReplayFigures]) -> bool:
    """Whether `layered` is billed no more than any other policy."""
    return all(
        rows["layered"].billed_with_recalls <= rows[name].billed_with_recalls for name in PEERS
    )


if __name__ == "__main__":
    sys.exit(main())
