"""What the search for invented claims marks in sentences of people who have not seen it.

python -m tests.benchmarks.claims tests/benchmarks/claims_sentences/*.jsonl [--traces DIR] [--quiet]

Each file has a line per sentence: `{"session", "text", "honest", "kind",
"false_part"}`. `session` is a recording below the folder of traces. It is imported as a
user would, and the sentences stand in a fold of all of it.

The rules for figures were chosen on a to d, those for names on a to t, and the score
for orders (`fit_order_weights.py`) is fitted to a to w: what this prints of them
flatters. e to y (but m, which was written to fit to) were judged once before anybody
read them. All have been read since.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helix_desktop.engine.facts import Folded, FoldKind, Recorded, Span
from helix_desktop.engine.summary_claims import find_unsupported_claims_of_fold
from helix_desktop.engine.view import ConversationState, build_state
from helix_desktop.errors import InvalidInput
from helix_desktop.histories import history_facts
from helix_desktop.histories.history_reading import read_history_file
from helix_desktop.store.in_memory_stores import MemoryCache
from tests.benchmarks.gateway import TRACES
from tests.faults.histories import Words


async def imported_history(path: Path) -> tuple[ConversationState, MemoryCache]:
    recordings = read_history_file(path).recordings
    longest = max(recordings, key=lambda one: len(one.messages))
    drafts, cache = history_facts.draft_facts(longest, Words(), lambda _: ""), MemoryCache()
    for content in (content for draft in drafts for content in draft.contents):
        await cache.store_content(*content)
    # A compaction of its own would stand in the way of a fold of all of it.
    kept = [draft for draft in drafts if not isinstance(draft.fact, Folded)]
    return build_state(
        Recorded("c", at, one.time, one.fact) for at, one in enumerate(kept, 1)
    ), cache


async def marked_sentences(path: Path, texts: list[str]) -> tuple[list[list[str]], float]:
    """Return for each text what was marked in it, and how long that took."""
    state, cache = await imported_history(path)
    seqs = state.branch.order
    fold = Folded("f", FoldKind.HANDOVER, Span(seqs[0], seqs[-1]), "\n".join(texts), 0, 0)
    begun = time.perf_counter()
    claims = await find_unsupported_claims_of_fold(state, fold, cache)
    took = time.perf_counter() - begun
    return [
        [claim for claim in claims if claim.rpartition(" — ")[2] in text or claim in text]
        for text in texts
    ], took


def read_samples(files: list[Path]) -> Iterator[dict[str, Any]]:
    for file in files:
        yield from (
            json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sentences", nargs="+", type=Path)
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--quiet", action="store_true", help="print the counts only")
    chosen = parser.parse_args()
    sessions, written, marked, slowest = defaultdict(list), Counter[str](), Counter[str](), 0.0
    for sample in read_samples(chosen.sentences):
        sessions[sample["session"]].append(sample)
    for session, samples in sessions.items():
        texts = [sample["text"] for sample in samples]
        try:
            found, took = asyncio.run(marked_sentences(chosen.traces / session, texts))
        except InvalidInput:
            print(f"{len(samples)} sentences left out: {session} has no session that can be read")
            continue
        slowest = max(slowest, took)
        for sample, claims in zip(samples, found, strict=True):
            written[sample["kind"]] += 1
            marked[sample["kind"]] += bool(claims)
            if not chosen.quiet and bool(claims) is sample["honest"]:
                print(
                    sample["kind"],
                    Path(session).stem[:30],
                    "|",
                    sample["text"],
                    "|",
                    claims or sample["false_part"],
                )
    print(
        *(f"{kind} {marked[kind]} of {written[kind]}" for kind in sorted(written)),
        f"slowest {slowest:.2f} s",
        sep=", ",
    )


if __name__ == "__main__":
    main()
