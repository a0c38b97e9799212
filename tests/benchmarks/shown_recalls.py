"""What the call that a marker shows brings: how many entries come back whole, with how
many tokens and extra requests.

    python -m tests.benchmarks.shown_recalls --traces DIR [--window N]

An agent calls `recall_cached_content("HASH")` for every entry that a reply of the
recorded sessions needs and the view names, and follows the way on until it has what it
needs. Beside it: pages of 1,400 tokens from the beginning on, as the program gave them
before.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from helix_desktop import token_counting
from helix_desktop.engine import content_recall, context_policy
from helix_desktop.engine.fold_economics import RelativePrices
from helix_desktop.engine.messages import Request
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.histories.recorded_session import RecordedSession
from helix_desktop.replay import simulated_clock
from helix_desktop.replay.session_player import (
    RememberingCounter,
    ReplayStores,
    ReplayTerms,
    SessionPlayer,
)
from helix_desktop.replay.simulated_recalls import RecalledPage, RecallMode
from helix_desktop.store.in_memory_stores import MemoryCache, MemoryIndex, MemoryJournal
from tests.benchmarks import policies

_WAY_ON = re.compile(r'\[go on with lines="([\d-]+)"\]$')


@dataclass(frozen=True, slots=True)
class ShownRecall:
    """One entry brought back: whole by the first call, the calls it took, and their tokens."""

    whole: bool
    calls: int
    tokens: int


class ShownRecallsPlayer(SessionPlayer):
    """Notes what each recall would have been, then plays on as ever."""

    before: list[ShownRecall]
    after: list[ShownRecall]

    async def _play_recalls(self, request: Request, pages: Sequence[RecalledPage]) -> Request:
        seeks_by_entry: dict[str, frozenset[str]] = {}
        for page in pages:
            if page.entry and page.tool is ToolName.RECALL and page.holds:
                seeks_by_entry[page.entry] = page.seeks
        for entry, seeks in seeks_by_entry.items():
            here = self._conversation
            whole = content_recall.most_tokens_recalled_whole(here.state, here.policy)
            self.after.append(await self._recall(entry, seeks, whole))
            self.before.append(await self._recall_in_pages(entry, seeks))
        return await super()._play_recalls(request, pages)

    async def _recall(self, entry: str, seeks: frozenset[str], whole: int) -> ShownRecall:
        cache = self._stores.cache
        counting = self._tokens
        results: list[str] = []
        lines = ""  # which ones the next call asks for
        while True:
            wanted = content_recall.WantedContent(lines=lines, whole_tokens=whole)
            result = await content_recall.recall_entry(cache, counting, entry, wanted)
            results.append(result)
            way_on = _WAY_ON.search(result)
            if way_on is None or _holds_all("\n".join(results), seeks):
                break
            lines = way_on[1]
        tokens = sum(map(counting.count_tokens, results))
        is_whole = len(results) == 1 and way_on is None
        return ShownRecall(whole=is_whole, calls=len(results), tokens=tokens)

    async def _recall_in_pages(self, entry: str, seeks: frozenset[str]) -> ShownRecall:
        content = await self._stores.cache.read_content(Digest.from_hex(entry))
        lines = content.decode("utf-8", "replace").removesuffix("\n").split("\n")
        shown = ""
        tokens = 0
        calls = 0
        last = 0  # the last line that is shown
        while True:
            first = last + 1
            page, last = content_recall.cut_to_page_with_last_line_number(
                self._tokens, lines[first - 1 : first + 2_000], first
            )
            shown += f"\n{page}"
            tokens += self._tokens.count_tokens(page)
            calls += 1
            if last == len(lines) or _holds_all(shown, seeks):
                break
        is_whole = calls == 1 and last == len(lines)
        return ShownRecall(whole=is_whole, calls=calls, tokens=tokens)


def _holds_all(text: str, seeks: frozenset[str]) -> bool:
    return all(sought in text for sought in seeks)


def collect_recalls(
    recording: RecordedSession, terms: ReplayTerms, counting: RememberingCounter
) -> tuple[list[ShownRecall], list[ShownRecall]]:
    """Before and after, in one session."""

    async def played() -> tuple[list[ShownRecall], list[ShownRecall]]:
        now = simulated_clock.LoopClock().current_time
        journal = MemoryJournal(now=now)
        cache = MemoryCache(now=now)
        stores = ReplayStores(journal, cache, MemoryIndex(journal, cache))
        player = ShownRecallsPlayer(recording, terms, stores, counting)
        player.before = []
        player.after = []
        await player.play_session()
        return player.before, player.after

    return simulated_clock.run_on_jumping_loop(played())


def line(name: str, recalls: Sequence[ShownRecall]) -> str:
    count = max(1, len(recalls))
    in_parts = [recall for recall in recalls if not recall.whole]
    beyond_first_page = [recall for recall in in_parts if recall.calls > 1]
    share_whole = (len(recalls) - len(in_parts)) / count
    share_beyond = len(beyond_first_page) / max(1, len(in_parts))
    extra_requests = sum(recall.calls - 1 for recall in recalls)
    tokens = sum(recall.tokens for recall in recalls) / count
    return (
        f"{name:22} {len(recalls):5} entries, {share_whole:.3f} whole by the call shown, "
        f"of the others {share_beyond:.3f} needed more than the first page, "
        f"{extra_requests} extra requests, {tokens:,.0f} tokens an entry"
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--window", type=int, default=128_000)
    arguments = parser.parse_args(argv)
    counting = RememberingCounter(token_counting.TiktokenCounter())
    terms = ReplayTerms(
        context_policy.preset_policy("layered"), arguments.window, RelativePrices(0.1, 1.25, 5.0)
    )
    terms = replace(terms, recalls=RecallMode.SEARCHED)
    all_before: list[ShownRecall] = []
    all_after: list[ShownRecall] = []
    for recording in policies.every_session(arguments.traces):
        before, after = collect_recalls(recording, terms, counting)
        all_before += before
        all_after += after
    print(line("pages of 1,400 tokens", all_before))
    print(line("as the tool gives it", all_after))
    return 0


if __name__ == "__main__":
    sys.exit(main())
