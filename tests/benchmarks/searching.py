"""How often a search finds what is needed: in recorded sessions of agents, in LoCoMo and in BEAM.

    python -m tests.benchmarks.searching [--traces DIR [--window N]] [--locomo ZIP] [--beam FOLDER]

Recordings: before each reply that uses what its view no longer shows, a search by words
beside it that the view still shows (`replay/simulated_recalls.py`). Right is an entry
that holds all that the best entry holds of it; "that very one" asks for the best entry
itself, although others hold the same. Lists of details, which handovers leave, are
never right. LoCoMo (snap-research/locomo) and BEAM (mohammadtavakoli78/BEAM, its 100K
chats): right is a message that the set names for the question. A copy of the sets is
given, and nothing of them is kept here. Constants were chosen on the first half.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from helix_desktop import token_counting
from helix_desktop.engine import context_policy
from helix_desktop.engine.automatic_folding import ConversationFolding
from helix_desktop.engine.facts import ConversationStarted, Fact, ModelReplied, Stop, Text, UserSaid
from helix_desktop.engine.fold_economics import RelativePrices
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.tool_names import RECALLS
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession
from helix_desktop.replay import simulated_clock
from helix_desktop.replay.session_player import (
    RememberingCounter,
    ReplayStores,
    ReplayTerms,
    SessionPlayer,
)
from helix_desktop.replay.simulated_recalls import (
    MissedReferences,
    RecalledPage,
    RecallMode,
    ShownEntry,
    _RecallQuery,
)
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.in_memory_stores import MemoryCache, MemoryIndex, MemoryJournal
from helix_desktop.store.search_ranking import HANDOVER
from tests.benchmarks import policies
from tests.benchmarks.finding import Plain

FIRST_HALF = (
    "django-12325",
    "sphinx-7985",
    "sphinx-7748",
    "django-13346",
    "04-divergence",
    "8721",
    "9230",
    "install-1.",
)
Key = tuple[str, str]  # A conversation of a set, and the name of a message in it.


@dataclass(frozen=True, slots=True)
class RecallQuestion:
    """What an agent searches for, and what was there then. `very`: the best entry;
    `right`: all that hold as much.
    """

    words: str
    very: str
    right: frozenset[str]
    entries: int
    facts: int


@dataclass(frozen=True, slots=True)
class SearchedSession:
    name: str
    questions: Sequence[RecallQuestion]
    contents: Sequence[tuple[bytes, EntryOrigin]]
    facts: Sequence[Fact]


class NotedReferences(MissedReferences):
    """Asks a question for each entry that would help, then recalls as ever."""

    stores: tuple[MemoryJournal, MemoryCache]
    asked: list[RecallQuestion]

    def pages_to_recall(
        self,
        missed: set[str],
        reply: RecordedMessage,
        entries: Sequence[ShownEntry],
        view: Iterable[str],
        *,
        has_summary: bool,
        recall_mode: RecallMode = RecallMode.SEARCHED,
    ) -> list[RecalledPage]:
        said = list(view)
        pages = super().pages_to_recall(
            missed, reply, entries, said, has_summary=has_summary, recall_mode=recall_mode
        )
        asks = _RecallQuery(
            reply, frozenset().union(*map(self._words_in, said)), self.references_in
        )
        journal, cache = self.stores
        there = list(cache.all_contents())
        every = [
            (
                ShownEntry(about.stored.digest.hex, content.decode("utf-8", "replace")),
                about.about.tool,
            )
            for content, about in there
            if about.about.tool != HANDOVER
        ]
        originals = self._choose_entries_holding(
            missed, [one for one, tool in every if tool not in RECALLS]
        )
        left = missed.difference(*(held for _, held in originals))
        for best, held in [
            *originals,
            *self._choose_entries_holding(left, [one for one, _ in every]),
        ]:
            if words := asks.words_to_search(held):
                right = frozenset(
                    one.name for one, _ in every if held <= self.references_in(one.text)
                )
                known = sum(1 for _ in journal.texts_of_facts())
                self.asked.append(RecallQuestion(words, best.name, right, len(there), known))
        return pages


class AskingPlayer(SessionPlayer):
    noted: NotedReferences

    def _build_folding(self) -> ConversationFolding:
        self._watching._misses = self.noted
        return super()._build_folding()


def collect_questions(
    recording: RecordedSession, terms: ReplayTerms, counting: RememberingCounter
) -> SearchedSession:
    async def played() -> SearchedSession:
        now = simulated_clock.LoopClock().current_time
        journal, cache = MemoryJournal(now=now), MemoryCache(now=now)
        player = AskingPlayer(
            recording, terms, ReplayStores(journal, cache, MemoryIndex(journal, cache)), counting
        )
        player.noted = NotedReferences(counting)
        player.noted.stores, player.noted.asked = (journal, cache), []
        await player.play_session()
        contents = [(content, entry.about) for content, entry in cache.all_contents()]
        facts = [recorded.fact for recorded, _ in journal.texts_of_facts()]
        return SearchedSession(recording.name, player.noted.asked, contents, facts)

    return simulated_clock.run_on_jumping_loop(played())


class Ranks:
    """At which place the first right result stood, by what was asked and half; 0 where
    it was not found.
    """

    def __init__(self) -> None:
        self._found: dict[str, list[int]] = defaultdict(list)
        self.took: list[float] = []

    def note(self, name: str, half: int, found: Iterable[object], right: Iterable[object]) -> None:
        wanted = set(right)
        place = next((at for at, one in enumerate(dict.fromkeys(found), 1) if one in wanted), 0)
        for each in (f"{name}, half {half + 1}", name):
            self._found[each].append(place)

    def show(self) -> str:
        lines = [f"{'':34} first  in 3   in 5   mrr    of"]
        for name, places in sorted(self._found.items()):
            within = "  ".join(
                f"{sum(0 < at <= most for at in places) / len(places):.3f}" for most in (1, 3, 5)
            )
            mean = sum(1 / at for at in places if at) / len(places)
            lines.append(f"{name:34} {within}  {mean:.3f}  {len(places)}")
        taken = sorted(self.took)
        return "\n".join(
            [*lines, f"processor time of a search: median {taken[len(taken) // 2] * 1000:.1f} ms"]
        )


async def search_sessions(folder: Path, sessions: Sequence[SearchedSession], ranks: Ranks) -> None:
    """Each question as soon as the workspace has what was there when it was asked."""
    workspaces = AllWorkspaces(folder)
    for session in sessions:
        workspace = await workspaces.open_stored_workspace(
            workspaces.create_stored_workspace("traces").id
        )
        entries = facts = 0
        for asked in session.questions:
            for content, about in session.contents[entries : asked.entries]:
                await workspace.cache.store_content(content, about)
            await workspace.journal.append_to_journal("replay", session.facts[facts : asked.facts])
            entries, facts = asked.entries, asked.facts
            await workspace.index.wait_until_indexed()
            begun = time.process_time()
            hits = await workspace.index.search_index(asked.words, entries_only=True)
            ranks.took.append(time.process_time() - begun)
            found = [hit.digest.hex for hit in hits if hit.digest]
            half = 0 if any(part in session.name for part in FIRST_HALF) else 1
            ranks.note("an entry with all of it", half, found, asked.right)
            ranks.note("that very one", half, found, [asked.very])
        await workspace.aclose()


@dataclass(frozen=True, slots=True)
class Talk:
    """Conversations that are searched together: their messages by conversation, and
    questions with the messages that answer.
    """

    messages: dict[
        str, list[tuple[str, bool, str]]
    ]  # The message's name, whether the user said it, and its text
    questions: Sequence[tuple[str, frozenset[str]]]


def locomo_talks(path: Path) -> Iterator[Talk]:
    with zipfile.ZipFile(path) as packed:
        for name in sorted(one for one in packed.namelist() if one.endswith(".json")):
            told = json.loads(packed.read(name))
            messages = {}
            for session in (key for key in told if re.fullmatch(r"session_\d+", key)):
                turns = told[session]
                messages[session] = [
                    (
                        turn["dia_id"],
                        turn["speaker"] == turns[0]["speaker"],
                        "\n".join(
                            filter(
                                None,
                                (f"{turn['speaker']}: {turn['text']}", turn.get("blip_caption")),
                            )
                        ),
                    )
                    for turn in turns
                ]
            asked = [
                (
                    one["question"],
                    frozenset(re.findall(r"D\d+:\d+", " ".join(map(str, one.get("evidence", []))))),
                )
                for one in told["qa"]
            ]
            yield Talk(messages, [(question, right) for question, right in asked if right])


def beam_talks(folder: Path) -> Iterator[Talk]:
    for chat in sorted(
        folder.glob("chats/100K/*/chat.json"), key=lambda path: int(path.parent.name)
    ):
        turns = [
            one for batch in json.loads(chat.read_text()) for turn in batch["turns"] for one in turn
        ]
        messages = [(str(one["id"]), one["role"] == "user", one["content"]) for one in turns]
        asked = json.loads(
            (chat.parent / "probing_questions" / "probing_questions.json").read_text()
        )
        questions = [
            (one["question"], frozenset(_numbers_in(one.get("source_chat_ids"))))
            for kind in asked.values()
            for one in kind
        ]
        yield Talk(
            {"chat": messages}, [(question, right) for question, right in questions if right]
        )


def _numbers_in(value: object) -> Iterator[str]:
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _numbers_in(one)
    elif isinstance(value, int):
        yield str(value)


async def search_talks(folder: Path, talks: Iterable[Talk], ranks: Ranks) -> None:
    """By message, and by conversation where there are several, beside BM25 over the same texts."""
    workspaces = AllWorkspaces(folder)
    for number, talk in enumerate(talks):
        workspace = await workspaces.open_stored_workspace(
            workspaces.create_stored_workspace("talk").id
        )
        names: dict[tuple[str, int], str] = {}
        for conversation, said in talk.messages.items():
            facts: list[Fact] = [ConversationStarted(conversation)]
            for name, by_user, text in said:
                facts.append(
                    UserSaid((Text(text),))
                    if by_user
                    else ModelReplied((Text(text),), "m", Stop.END)
                )
                names[conversation, len(facts)] = name
            await workspace.journal.append_to_journal(conversation, facts)
        await workspace.index.wait_until_indexed()
        every = [(name, text) for said in talk.messages.values() for name, _, text in said]
        plain = Plain([("", text) for _, text in every])
        together = Plain(
            [("", "\n".join(text for *_, text in said)) for said in talk.messages.values()]
        )
        home = {
            name: conversation for conversation, said in talk.messages.items() for name, *_ in said
        }
        for question, right in talk.questions:
            begun = time.process_time()
            hits = await workspace.index.search_index(question, limit=60)
            ranks.took.append(time.process_time() - begun)
            ranks.note(
                "message",
                number % 2,
                [names.get((hit.conversation, hit.seq)) for hit in hits],
                right,
            )
            ranks.note(
                "message, BM25",
                number % 2,
                [every[at][0] for at in plain.best(question, 60)],
                right,
            )
            if len(talk.messages) > 1:
                homes, ids = {home[name] for name in right if name in home}, list(talk.messages)
                ranks.note("conversation", number % 2, [hit.conversation for hit in hits], homes)
                ranks.note(
                    "conversation, BM25",
                    number % 2,
                    [ids[at] for at in together.best(question, 60)],
                    homes,
                )
        await workspace.aclose()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--window", type=int, default=128_000)
    parser.add_argument("--locomo", type=Path)
    parser.add_argument("--beam", type=Path)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="helix-searching-") as folder:
        if arguments.traces:
            counting = RememberingCounter(token_counting.TiktokenCounter())
            policy, prices = context_policy.preset_policy("layered"), RelativePrices(0.1, 1.25, 5.0)
            terms = ReplayTerms(policy, arguments.window, prices, recalls=RecallMode.SEARCHED)
            sessions = [
                collect_questions(each, terms, counting)
                for each in policies.every_session(arguments.traces)
            ]
            ranks = Ranks()
            asyncio.run(
                search_sessions(Path(folder), [each for each in sessions if each.questions], ranks)
            )
            print(f"recordings, window {arguments.window:,}\n{ranks.show()}")
        for name, given, read in (
            ("LoCoMo", arguments.locomo, locomo_talks),
            ("BEAM", arguments.beam, beam_talks),
        ):
            if given:
                ranks = Ranks()
                asyncio.run(search_talks(Path(folder), read(given), ranks))
                print(f"{name}\n{ranks.show()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
