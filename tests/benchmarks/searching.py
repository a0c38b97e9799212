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
import statistics
import sys
import tempfile
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
        texts_in_sight = list(view)
        pages = super().pages_to_recall(
            missed, reply, entries, texts_in_sight, has_summary=has_summary, recall_mode=recall_mode
        )
        words_in_sight: set[str] = set()
        for text in texts_in_sight:
            words_in_sight |= self._words_in(text)
        query = _RecallQuery(reply, frozenset(words_in_sight), self.references_in)

        journal, cache = self.stores
        entry_count = 0
        stored: list[ShownEntry] = []
        originals: list[ShownEntry] = []
        for content, entry in cache.all_contents():
            entry_count += 1
            if entry.about.tool == HANDOVER:
                continue
            shown = ShownEntry(entry.stored.digest.hex, content.decode("utf-8", "replace"))
            stored.append(shown)
            if entry.about.tool not in RECALLS:
                originals.append(shown)
        fact_count = sum(1 for _ in journal.texts_of_facts())

        chosen = self._choose_entries_holding(missed, originals)
        left = missed.difference(*(held for _, held in chosen))
        chosen += self._choose_entries_holding(left, stored)
        for best, held in chosen:
            words = query.words_to_search(held)
            if not words:
                continue
            right = frozenset(
                entry.name for entry in stored if held <= self.references_in(entry.text)
            )
            question = RecallQuestion(words, best.name, right, entry_count, fact_count)
            self.asked.append(question)
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
        journal = MemoryJournal(now=now)
        cache = MemoryCache(now=now)
        stores = ReplayStores(journal, cache, MemoryIndex(journal, cache))
        player = AskingPlayer(recording, terms, stores, counting)
        player.noted = NotedReferences(counting)
        player.noted.stores = (journal, cache)
        player.noted.asked = []
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
        place = 0
        for number, result in enumerate(dict.fromkeys(found), 1):
            if result in wanted:
                place = number
                break
        self._found[name].append(place)
        self._found[f"{name}, half {half + 1}"].append(place)

    def show(self) -> str:
        lines = [f"{'':34} first  in 3   in 5   mrr    of"]
        for name, places in sorted(self._found.items()):
            first, in_three, in_five = (_share_within(most, places) for most in (1, 3, 5))
            mean = sum(1 / place for place in places if place) / len(places)
            lines.append(
                f"{name:34} {first:.3f}  {in_three:.3f}  {in_five:.3f}  {mean:.3f}  {len(places)}"
            )
        milliseconds = statistics.median_high(self.took) * 1000
        lines.append(f"processor time of a search: median {milliseconds:.1f} ms")
        return "\n".join(lines)


def _share_within(most: int, places: Sequence[int]) -> float:
    """How often it stood at one of the first places."""
    return sum(0 < place <= most for place in places) / len(places)


async def search_sessions(folder: Path, sessions: Sequence[SearchedSession], ranks: Ranks) -> None:
    """Each question as soon as the workspace has what was there when it was asked."""
    workspaces = AllWorkspaces(folder)
    for session in sessions:
        workspace = await workspaces.open_stored_workspace(
            workspaces.create_stored_workspace("traces").id
        )
        known_entries = 0
        known_facts = 0
        for asked in session.questions:
            for content, about in session.contents[known_entries : asked.entries]:
                await workspace.cache.store_content(content, about)
            new_facts = session.facts[known_facts : asked.facts]
            await workspace.journal.append_to_journal("replay", new_facts)
            known_entries = asked.entries
            known_facts = asked.facts
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
class TalkMessage:
    name: str
    by_user: bool
    text: str


@dataclass(frozen=True, slots=True)
class TalkQuestion:
    """A question, and the names of the messages that answer it."""

    words: str
    right: frozenset[str]


@dataclass(frozen=True, slots=True)
class Talk:
    """Conversations that are searched together: their messages by conversation, and
    questions about them.
    """

    messages: dict[str, list[TalkMessage]]
    questions: Sequence[TalkQuestion]


def locomo_talks(path: Path) -> Iterator[Talk]:
    with zipfile.ZipFile(path) as packed:
        for file_name in sorted(packed.namelist()):
            if file_name.endswith(".json"):
                yield _read_locomo_talk(json.loads(packed.read(file_name)))


def _read_locomo_talk(told: dict[str, Any]) -> Talk:
    messages: dict[str, list[TalkMessage]] = {}
    for session, turns in told.items():
        if not re.fullmatch(r"session_\d+", session):
            continue
        messages[session] = []
        for turn in turns:
            text = f"{turn['speaker']}: {turn['text']}"
            caption = turn.get("blip_caption")
            if caption:
                text = f"{text}\n{caption}"
            by_user = turn["speaker"] == turns[0]["speaker"]
            messages[session].append(TalkMessage(turn["dia_id"], by_user, text))

    questions: list[TalkQuestion] = []
    for asked in told["qa"]:
        evidence = " ".join(map(str, asked.get("evidence", [])))
        right = frozenset(re.findall(r"D\d+:\d+", evidence))
        if right:
            questions.append(TalkQuestion(asked["question"], right))
    return Talk(messages, questions)


def beam_talks(folder: Path) -> Iterator[Talk]:
    chats = folder.glob("chats/100K/*/chat.json")
    for chat in sorted(chats, key=lambda path: int(path.parent.name)):
        messages: list[TalkMessage] = []
        for batch in json.loads(chat.read_text()):
            for turn in batch["turns"]:
                for said in turn:
                    by_user = said["role"] == "user"
                    messages.append(TalkMessage(str(said["id"]), by_user, said["content"]))

        questions: list[TalkQuestion] = []
        probing = chat.parent / "probing_questions" / "probing_questions.json"
        for questions_of_kind in json.loads(probing.read_text()).values():
            for asked in questions_of_kind:
                right = frozenset(_numbers_in(asked.get("source_chat_ids")))
                if right:
                    questions.append(TalkQuestion(asked["question"], right))
        yield Talk({"chat": messages}, questions)


def _numbers_in(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _numbers_in(inner)
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
        for conversation, messages in talk.messages.items():
            facts: list[Fact] = [ConversationStarted(conversation)]
            for message in messages:
                said = (Text(message.text),)
                if message.by_user:
                    facts.append(UserSaid(said))
                else:
                    facts.append(ModelReplied(said, "m", Stop.END))
                names[conversation, len(facts)] = message.name
            await workspace.journal.append_to_journal(conversation, facts)
        await workspace.index.wait_until_indexed()

        half = number % 2
        plain = PlainTalkSearch(talk)
        for question in talk.questions:
            begun = time.process_time()
            hits = await workspace.index.search_index(question.words, limit=60)
            ranks.took.append(time.process_time() - begun)
            found = [names.get((hit.conversation, hit.seq)) for hit in hits]
            ranks.note("message", half, found, question.right)
            ranks.note("message, BM25", half, plain.find_messages(question.words), question.right)
            if len(talk.messages) > 1:
                right = plain.conversations_of(question.right)
                ranks.note("conversation", half, [hit.conversation for hit in hits], right)
                found_plainly = plain.find_conversations(question.words)
                ranks.note("conversation, BM25", half, found_plainly, right)
        await workspace.aclose()


class PlainTalkSearch:
    """BM25 over the messages of a talk, and over its conversations."""

    def __init__(self, talk: Talk) -> None:
        self._conversations = list(talk.messages)
        self._conversation_by_message: dict[str, str] = {}
        self._message_names: list[str] = []
        message_texts: list[tuple[str, str]] = []
        conversation_texts: list[tuple[str, str]] = []
        for conversation, messages in talk.messages.items():
            whole = "\n".join(message.text for message in messages)
            conversation_texts.append(("", whole))
            for message in messages:
                message_texts.append(("", message.text))
                self._message_names.append(message.name)
                self._conversation_by_message[message.name] = conversation
        self._by_message = Plain(message_texts)
        self._by_conversation = Plain(conversation_texts)

    def find_messages(self, words: str) -> list[str]:
        return [self._message_names[place] for place in self._by_message.best(words, 60)]

    def find_conversations(self, words: str) -> list[str]:
        return [self._conversations[place] for place in self._by_conversation.best(words, 60)]

    def conversations_of(self, message_names: Iterable[str]) -> set[str]:
        """The conversations of those messages that there are."""
        conversations: set[str] = set()
        for name in message_names:
            conversation = self._conversation_by_message.get(name)
            if conversation is not None:
                conversations.add(conversation)
        return conversations


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
            policy = context_policy.preset_policy("layered")
            prices = RelativePrices(0.1, 1.25, 5.0)
            terms = ReplayTerms(policy, arguments.window, prices, recalls=RecallMode.SEARCHED)
            sessions: list[SearchedSession] = []
            for recording in policies.every_session(arguments.traces):
                session = collect_questions(recording, terms, counting)
                if session.questions:
                    sessions.append(session)
            ranks = Ranks()
            asyncio.run(search_sessions(Path(folder), sessions, ranks))
            print(f"recordings, window {arguments.window:,}\n{ranks.show()}")
        if arguments.locomo:
            _show_talks("LoCoMo", locomo_talks(arguments.locomo), Path(folder))
        if arguments.beam:
            _show_talks("BEAM", beam_talks(arguments.beam), Path(folder))
    return 0


def _show_talks(name: str, talks: Iterable[Talk], folder: Path) -> None:
    ranks = Ranks()
    asyncio.run(search_talks(folder, talks, ranks))
    print(f"{name}\n{ranks.show()}")


if __name__ == "__main__":
    sys.exit(main())
