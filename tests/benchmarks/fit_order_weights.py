"""Fits the weights by which the search for invented orders scores a sentence
(`engine/invented_order_score.py`).

python -m tests.benchmarks.fit_order_weights
tests/benchmarks/claims_sentences/[a-w].jsonl [--traces DIR] [--share .0135] [--write]

It is a logistic regression in two steps: first of the words alone, then of their score
(which other sets gave) and of what was said. In one step, words that state orders
outweigh what was said. Each sentence is also scored by weights that were fitted without
its set, and without its session. The figures are for texts of the files, and a text
counts as its worst sentence. The threshold is where `--share` of the honest ones would
be marked.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from helix_desktop.engine.agent_findings import split_sentences
from helix_desktop.engine.conversation_details import DetailSource
from helix_desktop.engine.invented_order_score import SaidWords, stems_in_pieces, stems_of
from helix_desktop.engine.span_text_and_detail_sources import (
    read_detail_sources,
    sources_beside_messages,
)
from helix_desktop.engine.summary_claims import SourceTexts
from helix_desktop.errors import InvalidInput
from helix_desktop.resources import resources_folder
from tests.benchmarks.claims import imported_history
from tests.benchmarks.gateway import TRACES
from tests.engine.claim_samples import SAMPLES

ROUNDS, STEP = 15, 0.3
WORD_SCALE, DECAY = (
    2.0,
    10.0,
)  # A word's weight may grow more easily than that of a share, as each is rare.
LEAST_SESSIONS = 6  # A word or pair of words of fewer sessions would stand for its session.
INNER_FOLDS = 4
TIMES = 6  # So often the samples of the tests count, as they say what an order is.
SAID = {"length", "one sentence", "sentences", "user", "any source"}
STATED = {"attributed", "ordered", "state"}
SHARES = (0.01, 0.015, 0.02, 0.03, 0.05)


@dataclass(frozen=True, slots=True)
class ScoredSentence:
    text: tuple[str, int]
    group: str
    session: str
    false: bool
    signs: Mapping[str, float]


def read_sentences(files: Sequence[Path], traces: Path) -> list[ScoredSentence]:
    samples = defaultdict(list)
    for file in files:
        for at, line in enumerate(filter(str.strip, file.read_text("utf-8").splitlines())):
            sample = json.loads(line)
            if sample["kind"] in {"honest", "order"}:
                samples[sample["session"]].append((file.stem, at, sample))
    rows = list[ScoredSentence]()
    for session, of_session in samples.items():
        try:
            sources = asyncio.run(_sources_of(traces / session))
        except InvalidInput:
            continue
        rows += _rows_of_session(session, of_session, sources)
    for name, sample in enumerate(SAMPLES):
        sources = SourceTexts().with_sources(
            [
                DetailSource(1, role, text)
                for role, texts in (("user", sample.said), ("output", sample.seen))
                for text in texts
            ]
        )
        orders = [text for kind in ("said order", "stated order") for text in sample.false[kind]]
        texts = [
            (text, honest)
            for honest, those in ((True, sample.honest), (False, orders))
            for text in those
        ]
        of_session = [
            ("samples", 100 * name + at, {"text": text, "honest": honest})
            for at, (text, honest) in enumerate(texts)
        ]
        rows += TIMES * list(_rows_of_session(f"sample {name}", of_session, sources))
    return rows


def _rows_of_session(
    session: str, samples: Sequence[tuple[str, int, Mapping[str, Any]]], sources: SourceTexts
) -> Iterator[ScoredSentence]:
    said = SaidWords(sources.said, sources.agreed, [sample["text"] for _, _, sample in samples])
    known = stems_in_pieces(
        said.wanted, (line for text in sources.unpack_texts() for line in text.splitlines())
    )
    for group, at, sample in samples:
        sentences = split_sentences(sample["text"])
        if not sample["honest"]:  # Only one of its sentences is known to be false.
            invented = stems_of(sample.get("false_part") or sample["text"], every=True)
            shared = [len(invented & stems_of(one, every=True)) for one in sentences]
            sentences = [sentences[shared.index(max(shared))]]
        signs = (said.signs_of_invention(one, known) for one in sentences)
        yield from (
            ScoredSentence((group, at), group, session, not sample["honest"], one) for one in signs
        )


async def _sources_of(path: Path) -> SourceTexts:
    state, cache = await imported_history(path)
    seqs = list(state.branch.order)
    sources = await read_detail_sources(state.branch, seqs, cache)
    return SourceTexts().with_sources(sources + sources_beside_messages(state, seqs))


def fit_weights(rows: Sequence[ScoredSentence], kept: set[str]) -> dict[str, float]:
    """Return a weight for each sign, by steps that get smaller the more a weight has moved."""
    numeric = [
        sign for sign in kept if any(row.signs.get(sign, 0.0) not in {0.0, 1.0} for row in rows)
    ]
    spread = dict.fromkeys(kept, WORD_SCALE)
    for sign in numeric:
        values = [float(row.signs.get(sign, 0.0)) for row in rows]
        mean = sum(values) / len(values)
        spread[sign] = 1 / (
            math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) or 1
        )
    scaled = [
        (
            {
                sign: value * spread[sign]
                for sign, value in row.signs.items()
                if sign in kept and value
            },
            row.false,
        )
        for row in rows
    ]
    weights, moved, bias, bias_moved = (
        dict.fromkeys(kept, 0.0),
        dict.fromkeys(kept, 1e-6),
        0.0,
        1e-6,
    )
    seen = Counter(sign for signs, _ in scaled for sign in signs)
    shuffled = random.Random(0)
    for _ in range(ROUNDS):
        shuffled.shuffle(scaled)
        for signs, false in scaled:
            error = float(false) - 1 / (
                1 + math.exp(-bias - sum(weights[sign] * value for sign, value in signs.items()))
            )
            bias_moved += error**2
            bias += STEP * error / math.sqrt(bias_moved)
            for sign, value in signs.items():
                pull = error * value - DECAY * weights[sign] / seen[sign]
                moved[sign] += pull**2
                weights[sign] += STEP * pull / math.sqrt(moved[sign])
    return {sign: weight * spread[sign] for sign, weight in weights.items()} | {"bias": bias}


def fit_in_steps(rows: Sequence[ScoredSentence], kept: set[str]) -> dict[str, float]:
    said = {sign for sign in kept if sign in SAID or sign.startswith(("words ", "longest "))}
    words, groups = kept - said, sorted({row.group for row in rows})
    second = list[ScoredSentence]()
    for fold in range(INNER_FOLDS):
        others = fit_weights(
            [row for row in rows if groups.index(row.group) % INNER_FOLDS != fold], words
        )
        of_fold = [row for row in rows if groups.index(row.group) % INNER_FOLDS == fold]
        second += [
            replace(row, signs={**row.signs, "score": score_sentence(row, others)})
            for row in of_fold
        ]
    last, first = fit_weights(second, {*said, *STATED, "score"}), fit_weights(rows, words)
    return {
        sign: last["score"] * first.get(sign, 0.0) + last.get(sign, 0.0) for sign in (*kept, "bias")
    }


def score_sentence(row: ScoredSentence, weights: Mapping[str, float]) -> float:
    return weights["bias"] + sum(
        weights.get(sign, 0.0) * value for sign, value in row.signs.items()
    )


def score_texts(
    rows: Sequence[ScoredSentence], weights: Mapping[str, float]
) -> dict[tuple[str, int], tuple[float, bool]]:
    scores = dict[tuple[str, int], tuple[float, bool]]()
    for row in rows:
        score = score_sentence(row, weights)
        scores[row.text] = max((score, row.false), scores.get(row.text, (-99.0, row.false)))
    return scores


def threshold_for(scores: Mapping[tuple[str, int], tuple[float, bool]], share: float) -> float:
    honest = sorted((score for score, false in scores.values() if not false), reverse=True)
    return honest[int(share * len(honest))]


def score_without_own(
    rows: Sequence[ScoredSentence], kept: set[str], key: Callable[[ScoredSentence], int], folds: int
) -> dict[tuple[str, int], tuple[float, bool]]:
    scores = dict[tuple[str, int], tuple[float, bool]]()
    for fold in range(folds):
        weights = fit_in_steps([row for row in rows if key(row) != fold], kept)
        scores |= score_texts([row for row in rows if key(row) == fold], weights)
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sentences", nargs="+", type=Path)
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument(
        "--share",
        type=float,
        default=0.0135,
        help="of honest texts that may be marked for an order",
    )
    parser.add_argument("--write", action="store_true", help="write the weights into the resources")
    chosen = parser.parse_args()
    rows = read_sentences(chosen.sentences, chosen.traces)
    sessions = defaultdict[str, set[str]](set)
    for row in rows:
        for sign in row.signs:
            sessions[sign].add(row.session)
    kept = {sign for sign, those in sessions.items() if len(those) >= LEAST_SESSIONS}
    groups, places = sorted({row.group for row in rows}), sorted({row.session for row in rows})
    by = {
        "set": score_without_own(rows, kept, lambda row: groups.index(row.group) % 7, 7),
        "session": score_without_own(rows, kept, lambda row: places.index(row.session) % 6, 6),
    }
    for name, scores in by.items():
        marks = [(share, threshold_for(scores, share)) for share in SHARES]
        false = [score for score, its in scores.values() if its]
        found = (
            f"{sum(score > least for score in false) / len(false):.2f} at {share:.1%}"
            for share, least in marks
        )
        print(
            f"{len(rows)} sentences, {len(kept)} signs, scored without their own {name}: of orders",
            *found,
        )
    weights = fit_in_steps(rows, kept)
    threshold = threshold_for(by["set"], chosen.share) - weights.pop("bias")
    if chosen.write:
        kept_weights = {
            sign: round(weight, 2)
            for sign, weight in sorted(weights.items())
            if abs(weight) >= 0.05
        }
        path = resources_folder() / "order_weights.json"
        path.write_text(
            json.dumps(
                {"threshold": round(threshold, 2), **kept_weights}, indent=0, ensure_ascii=False
            )
            + "\n",
            "utf-8",
        )


if __name__ == "__main__":
    main()
