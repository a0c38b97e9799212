"""The bill that an agent's user really gets, set by set, beside the peers of the same run.

    python -m tests.benchmarks.bill --traces DIR [--preset NAME] [--window N] [--head TOKENS]
        [--recalls MODE] [--json FILE]

What caching costs and how long it lasts is taken from each recording, where its usage
tells (an hour at twice the input price in Claude Code). Bills are shares of sending
everything as long as it fits, and a summary of it where it does not: no provider takes
more than the window. What is missed is searched for: by default as the tools offer it
now, several entries in one request ("together"); `--recalls searched` opens one after
the other, as this bill did until recalls could name several. Half 0 is for choosing
rules, half 1 for judging them (`policies.halves`). This bill is frozen: a change of a
rule of folding is compared under it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from helix_desktop import token_counting
from helix_desktop.commands.replay_command import replay_recording
from helix_desktop.engine import context_policy
from helix_desktop.engine.fold_economics import RelativePrices
from helix_desktop.histories.recorded_session import RecordedSession
from helix_desktop.replay.prompt_cache_billing import HEAD_TOKENS
from helix_desktop.replay.replay_figures import ReplayFigures, sum_figures
from helix_desktop.replay.session_player import RememberingCounter, ReplayTerms
from helix_desktop.replay.simulated_recalls import RecallMode
from tests.benchmarks.peer_policies import PEERS, play
from tests.benchmarks.policies import every_session, halves
from tests.benchmarks.public_names import read_public_names

PRICES = RelativePrices(0.1, 1.25, 5.0)
SHOWN_PEERS = (
    "outputs masked after 10 steps",
    "summary at 80%, 15,000 tokens kept",
    "excerpts, observations at 30%",
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--preset", default="layered")
    parser.add_argument("--window", type=int, default=128_000)
    parser.add_argument("--head", type=int, default=HEAD_TOKENS)
    parser.add_argument("--half", type=int, choices=(0, 1))
    parser.add_argument("--recalls", choices=list(RecallMode), default=RecallMode.TOGETHER)
    parser.add_argument("--json", type=Path, help="write each session's figures here")
    parser.add_argument("--no-peers", action="store_true")
    arguments = parser.parse_args(argv)
    counting = RememberingCounter(token_counting.TiktokenCounter())
    recordings = every_session(arguments.traces)
    terms = ReplayTerms(
        context_policy.preset_policy(arguments.preset),
        arguments.window,
        PRICES,
        head=arguments.head,
        recalls=RecallMode(arguments.recalls),
        public_names=read_public_names(),
    )
    ours: list[ReplayFigures] = []
    for recording in recordings:
        ours.append(replay_recording(recording, terms, counting))
        print(f"{_name(recording)} {ours[-1].bill_share:.3f}", file=sys.stderr, flush=True)
    half_of = halves(ours)
    if arguments.half is not None:
        kept = [half_of[one.name] == arguments.half for one in ours]
        recordings = [one for one, is_kept in zip(recordings, kept, strict=True) if is_kept]
        ours = [one for one, is_kept in zip(ours, kept, strict=True) if is_kept]
    peers = {} if arguments.no_peers else _play_peers(recordings, terms, counting)
    print("\n".join(_lines(recordings, ours, half_of, peers)))
    if arguments.json is not None:
        shown = {one.name: one.as_json() | {"share": one.bill_share} for one in ours}
        arguments.json.write_text(json.dumps(shown), encoding="utf-8")
    return 0


def _play_peers(
    recordings: Sequence[RecordedSession], terms: ReplayTerms, counting: RememberingCounter
) -> dict[str, list[ReplayFigures]]:
    return {
        name: [
            play(each, PEERS[name](), terms.window, PRICES, counting.count_tokens, terms.head)
            for each in recordings
        ]
        for name in SHOWN_PEERS
    }


def _name(recording: RecordedSession) -> str:
    path = Path(recording.name)
    return f"{path.parent.name}/{path.name[:40]}"


def _lines(
    recordings: Sequence[RecordedSession],
    ours: Sequence[ReplayFigures],
    half_of: Mapping[str, int],
    peers: Mapping[str, Sequence[ReplayFigures]],
) -> list[str]:
    sets: dict[str, list[int]] = {"all": list(range(len(ours)))}
    for number, recording in enumerate(recordings):
        sets.setdefault(Path(recording.name).parent.name, []).append(number)
        sets.setdefault(f"half {half_of[ours[number].name]}", []).append(number)
    lines = [
        f"{'set':18} {'n':>3} {'bill':>6} {'median':>7} {'most':>6} dearer kept  requests/step lost"
    ]
    for name, numbers in sets.items():
        mine = [ours[number] for number in numbers]
        lines.append(_line_of_set(name, mine))
        whole = sum(one.at_limit_billed for one in mine)
        for peer, figures in peers.items():
            bill = sum(figures[number].billed_with_recalls for number in numbers)
            shares = [
                figures[number].billed_with_recalls / ours[number].at_limit_billed
                for number in numbers
            ]
            median = statistics.median(shares)
            lines.append(f"    {peer:38} {bill / whole:.3f} {median:7.3f} {max(shares):6.3f}")
    lines += [
        f"loses: {_name(recording)} {one.bill_share:.3f}"
        for recording, one in zip(recordings, ours, strict=True)
        if one.bill_share > 1.0
    ]
    return lines


def _line_of_set(name: str, figures: Sequence[ReplayFigures]) -> str:
    total = sum_figures(figures)
    shares = [one.bill_share for one in figures]
    bill = total.billed_with_recalls / total.at_limit_billed
    dearer = sum(share > 1.003 for share in shares)
    recalls = total.recall_requests / max(1, len(total.steps))
    lost = total.details.get("lost", 0)
    return (
        f"{name:18} {len(figures):3} {bill:6.3f} {statistics.median(shares):7.3f} {max(shares):6.3f} "
        f"{dearer:6} {total.share_of_names_outside_markers:.3f} {recalls:12.3f} {lost:4}"
    )


if __name__ == "__main__":
    sys.exit(main())
