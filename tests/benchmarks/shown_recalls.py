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
        needed = {
            page.entry: page.seeks
            for page in pages
            if page.entry and page.tool is ToolName.RECALL and page.holds
        }
        for entry, seeks in needed.items():
            here = self._conversation
            whole = content_recall.most_tokens_recalled_whole(here.state, here.policy)
            self.after.append(await self._recall(entry, seeks, whole))
            self.before.append(await self._recall_in_pages(entry, seeks))
        return await super()._play_recalls(request, pages)

    async def _recall(self, entry: str, seeks: frozenset[str], whole: int) -> ShownRecall:
        cache, counting = self._stores.cache, self._tokens
        said: list[str] = []
        lines = ""
        while not said or (lines and not all(one in "\n".join(said) for one in seeks)):
            wanted = content_recall.WantedContent(lines=lines, whole_tokens=whole)
            said.append(await content_recall.recall_entry(cache, counting, entry, wanted))
            more = _WAY_ON.search(said[-1])
            if not lines and more is None:
                return ShownRecall(whole=True, calls=1, tokens=counting.count_tokens(said[0]))
            lines = more[1] if more else ""
        return ShownRecall(
            whole=False, calls=len(said), tokens=sum(map(counting.count_tokens, said))
        )

    async def _recall_in_pages(self, entry: str, seeks: frozenset[str]) -> ShownRecall:
        text = (await self._stores.cache.read_content(Digest.from_hex(entry))).decode(
            "utf-8", "replace"
        )
        lines, shown, first, tokens, calls = text.removesuffix("\n").split("\n"), "", 1, 0, 0
        while first <= len(lines) and (not calls or not all(one in shown for one in seeks)):
            page, last = content_recall.cut_to_page_with_last_line_number(
                self._tokens, lines[first - 1 : first + 2_000], first
            )
            whole = first == 1 and last == len(lines)
            shown, first, calls = f"{shown}\n{page}", last + 1, calls + 1
            tokens += self._tokens.count_tokens(page)
        return ShownRecall(whole=whole and calls == 1, calls=calls, tokens=tokens)


def collect_recalls(
    recording: RecordedSession, terms: ReplayTerms, counting: RememberingCounter
) -> tuple[list[ShownRecall], list[ShownRecall]]:
    """Before and after, in one session."""

    async def played() -> tuple[list[ShownRecall], list[ShownRecall]]:
        now = simulated_clock.LoopClock().current_time
        journal, cache = MemoryJournal(now=now), MemoryCache(now=now)
        stores = ReplayStores(journal, cache, MemoryIndex(journal, cache))
        player = ShownRecallsPlayer(recording, terms, stores, counting)
        player.before, player.after = [], []
        await player.play_session()
        return player.before, player.after

    return simulated_clock.run_on_jumping_loop(played())


def line(name: str, found: Sequence[ShownRecall]) -> str:
    count = max(1, len(found))
    parted = [one for one in found if not one.whole]
    beyond = sum(one.calls > 1 for one in parted) / max(1, len(parted))
    return (
        f"{name:22} {len(found):5} entries, {sum(one.whole for one in found) / count:.3f} whole by the call shown, "
        f"of the others {beyond:.3f} needed more than the first page, "
        f"{sum(one.calls - 1 for one in found)} extra requests, {sum(one.tokens for one in found) / count:,.0f} tokens an entry"
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
    found = [
        collect_recalls(each, terms, counting) for each in policies.every_session(arguments.traces)
    ]
    print(line("pages of 1,400 tokens", [one for before, _ in found for one in before]))
    print(line("as the tool gives it", [one for _, after in found for one in after]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
