"""A summary that a real server never gives: why is told while a message waits, and recorded."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.engine.facts import (
    Folded,
    FoldFailed,
    FoldKind,
    ModelReplied,
    ModelRole,
    ModelSet,
    Text,
)
from helix_desktop.engine.fold_document_writer import LOST_PART
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import Event, FoldProgress
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from tests.peers.chat_server import ChatServer, chunk, refused, reply, too_long
from tests.peers.peer import Answer, Pause, Piece, Seen, sse
from tests.workbench.recorded import ASIDES, texts_of

SILENCE = 1.0  # A message waits so long for a model that says nothing,
LONGEST_WAIT = 4.0  # and so long for one that fails, if its next try is not later.
BUSY = 10.0  # A busy computer may take so much longer. The defects waited for 20 seconds or more.
SLOW_WAIT = 8.0  # A message waits so long for a model that has not written a word.
SECONDS_OF_WORD = 0.2
INTERNAL_ERROR = "peer says: internal error."


class FailingWriter(ChatServer):
    """Answers messages. Requests for a summary get another answer, once there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.answer_to_asides: Callable[[], Answer] | None = None
        self.aside_count = 0
        self.time_of_message = 0.0  # When the message that waited has come.

    def answer(self, seen: Seen) -> Answer:
        if seen.method == "GET":
            return self.listing(seen)
        is_aside = any(mark in texts_of(seen.body["messages"][-1]) for mark in ASIDES)
        if self.answer_to_asides is None:
            return reply("Read.")
        if is_aside:
            self.aside_count += 1
            return self.answer_to_asides()
        self.time_of_message = time.monotonic()
        return reply("Read.")


@dataclass
class Waiting:
    """A conversation whose next request does not fit, and what it tells of the summary."""

    session: Session
    server: FailingWriter
    told: list[FoldProgress] = field(default_factory=list)

    def hear(self, event: Event) -> None:
        if isinstance(event, FoldProgress):
            self.told.append(event)

    async def seconds_until_sent(self) -> float:
        start = time.monotonic()
        self.session.send_message((Text("go on"),))
        await asyncio.wait_for(self.session.wait_until_idle(), 60)
        assert isinstance(self.session.all_facts[-2].fact, ModelReplied)
        return self.server.time_of_message - start

    def reasons(self) -> list[str]:
        reasons = []
        for recorded in self.session.all_facts:
            if isinstance(recorded.fact, FoldFailed):
                reasons.append(recorded.fact.why)
        return reasons


@asynccontextmanager
async def waiting_conversation(
    home: Path,
    answer: Callable[[], Answer],
    longest_wait: float = LONGEST_WAIT,
    silence: float = SILENCE,
) -> AsyncIterator[Waiting]:
    """With the real clock: what is tried is how long a message waits."""
    places = program_folders.find_program_folders(home / "home")
    desk = Workbenches(places, SecretStorage(places.key_file, environ={}))
    with FailingWriter() as server:
        desk.configured.save_provider(ProviderConfig("peer", base_url=server.base_url))
        desk.configured.correct_model("peer", "large", {"window": 400_000})
        desk.configured.correct_model("peer", "small", {"window": 8_192})
        folder = home / "project"
        folder.mkdir()
        bench = await desk.create_workspace("Pairs", folder)
        await bench.choose_context_policy(
            "layered", {"panic_silence": silence, "panic_wait": longest_wait}
        )
        await bench.choose_model_for_role("peer/large")
        session = await bench.start_conversation()
        for number in range(14):
            session.send_message((Text(f"{number} " + "words of a long story " * 150),))
            await asyncio.wait_for(session.wait_until_idle(), 60)
        await session.folding.wait_for_fold_in_work()
        server.answer_to_asides = answer
        await bench.save_conversation_model(session.id, "peer/small")
        waiting = Waiting(session, server)
        session.subscribe_to_events(waiting.hear)
        yield waiting
        await desk.aclose()


async def test_a_server_that_always_fails_is_named_while_a_message_waits_and_not_for_long(
    tmp_path: Path,
) -> None:
    """The defect: the message waited for a minute without a word, and "There was no response for
    15 seconds" was the reason, though the server had said what was wrong again and again.
    """
    async with waiting_conversation(tmp_path, lambda: refused(500, "internal error")) as waiting:
        seconds = await waiting.seconds_until_sent()
        assert seconds < LONGEST_WAIT + BUSY
        first, *middle, last = waiting.told
        assert (first.is_waited_for, first.is_update, first.retry_why) == (True, False, "")
        # Each failed try is told once, but of those that fail at the same time only the one that
        # is sent again first.
        assert 2 <= len(middle) <= waiting.server.aside_count
        assert {one.retry_why for one in middle} == {INTERNAL_ERROR}
        assert all(one.retry_seconds > 0 and one.is_update for one in middle)
        assert last.done
        (reason,) = waiting.reasons()
        counted = re.fullmatch(
            re.escape(INTERNAL_ERROR) + r" It was asked (\d+) times in \d+ seconds\.", reason
        )
        assert counted is not None
        # The last requests may not have been answered when it was given up.
        assert 2 <= int(counted[1]) <= waiting.server.aside_count


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda: refused(429, "slow down", retry_after=20), "peer says: slow down."),
        (lambda: refused(401, "invalid api key", code="invalid_api_key"), "invalid api key"),
        (lambda: reply("half a summary, cut off").cut_after(3), "The connection to peer was lost"),
        (too_long, "maximum context length is 8192 tokens"),
    ],
)
async def test_what_another_try_would_not_mend_in_time_is_not_waited_for(
    tmp_path: Path, answer: Callable[[], Answer], reason: str
) -> None:
    async with waiting_conversation(tmp_path, answer) as waiting:
        assert await waiting.seconds_until_sent() < LONGEST_WAIT + BUSY
        (recorded_reason,) = waiting.reasons()
        assert reason in recorded_reason


async def test_a_server_that_is_busy_for_some_seconds_still_writes_the_summary(
    tmp_path: Path,
) -> None:
    """Without it, the agent would lose what it knows, and the message would meet the same server."""
    busy = refused(429, "slow down", retry_after=2)
    # It is not given up before the next try, however busy the computer is.
    async with waiting_conversation(tmp_path, lambda: busy, longest_wait=50.0) as waiting:

        def write_at_next_try(event: Event) -> None:
            if isinstance(event, FoldProgress) and event.retry_why:
                waiting.server.answer_to_asides = lambda: reply("The story is about words.")

        waiting.session.subscribe_to_events(write_at_next_try)
        assert await waiting.seconds_until_sent() > SILENCE
        assert "slow down" not in " ".join(waiting.reasons())


async def test_who_tries_now_ends_the_pause_and_who_stops_it_sends_the_message_without_a_summary(
    tmp_path: Path,
) -> None:
    failing = refused(500, "internal error")
    # The message waits until the button is pressed, however busy the computer is.
    async with waiting_conversation(tmp_path, lambda: failing, longest_wait=50.0) as waiting:

        def press_button(event: Event) -> None:
            if not isinstance(event, FoldProgress) or not event.retry_why:
                return
            if waiting.server.aside_count < 3:
                waiting.session.turns.retry_immediately()
            else:
                waiting.session.folding.cancel_fold_in_work()

        waiting.session.subscribe_to_events(press_button)
        assert await waiting.seconds_until_sent() < LONGEST_WAIT + BUSY
        assert waiting.reasons() == []
        assert waiting.told[-1].done


async def test_a_message_that_comes_while_a_summary_fails_is_told_why_at_once(
    tmp_path: Path,
) -> None:
    """The pause before the next try may last longer than the message waits."""
    # A long pause is still going on when the message comes, however busy the computer is.
    failing = refused(500, "internal error", retry_after=50)
    async with waiting_conversation(tmp_path, lambda: failing) as waiting:
        small_model = ModelSet(ModelRole.MAIN, "peer/small", 8_192)
        await waiting.session.conversation.append_facts(small_model)
        waiting.session.folding.start_folds_after_turn()
        async with asyncio.timeout(60):
            while not any(one.retry_why for one in waiting.told):
                await asyncio.sleep(0.01)
        longest_pause = max(one.retry_seconds for one in waiting.told)
        seconds = await waiting.seconds_until_sent()
        assert seconds < LONGEST_WAIT + BUSY
        # Other pieces of the history may fail meanwhile, which is told before or after it.
        first = next(one for one in waiting.told if one.is_waited_for)
        assert (first.is_update, first.retry_why) == (True, INTERNAL_ERROR)
        assert 0 < first.retry_seconds < longest_pause
        assert waiting.told[-1].done


async def test_a_summary_that_is_stopped_while_a_message_waits_is_not_begun_again(
    tmp_path: Path,
) -> None:
    """The defect: a summary begun before the message was stopped, and at once written anew."""
    silent = Answer(pieces=(Pause(60.0),))
    async with waiting_conversation(tmp_path, lambda: silent) as waiting:
        folding = waiting.session.folding
        small_model = ModelSet(ModelRole.MAIN, "peer/small", 8_192)
        await waiting.session.conversation.append_facts(small_model)
        folding.start_folds_after_turn()
        assert folding.progress is not None
        assert not folding.progress.is_waited_for

        def press_stop(event: Event) -> None:
            if isinstance(event, FoldProgress) and event.is_waited_for:
                folding.cancel_fold_in_work()

        waiting.session.subscribe_to_events(press_stop)
        assert await waiting.seconds_until_sent() < LONGEST_WAIT + BUSY
        assert [one.done for one in waiting.told] == [False, False, True]
        assert waiting.reasons() == []


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
async def test_a_model_that_writes_slowly_is_waited_for_as_long_as_words_come(
    tmp_path: Path, field: str
) -> None:
    """The defect: a model on a slow computer, which writes five tokens a second, was cut off after
    a minute in the middle of its summary, and the message was sent without one.
    """
    summary = reply("The story is about words.")
    word = sse(chunk({field: "word "}))[0]
    slow_words: list[Piece] = []
    # They take longer than the message waits for a model that says nothing.
    for _ in range(round(SLOW_WAIT * 1.5 / SECONDS_OF_WORD)):
        slow_words += [word, Pause(SECONDS_OF_WORD)]
    slow = replace(summary, pieces=(*slow_words, *summary.pieces))
    async with waiting_conversation(
        tmp_path, lambda: summary, longest_wait=SLOW_WAIT, silence=50.0
    ) as waiting:
        answers = iter([slow])
        waiting.server.answer_to_asides = lambda: next(answers, summary)
        seconds = await waiting.seconds_until_sent()
        assert waiting.reasons() == []
        assert seconds > SLOW_WAIT
        folds = [one.fact for one in waiting.session.all_facts if isinstance(one.fact, Folded)]
        (handover,) = [fold for fold in folds if fold.kind is FoldKind.HANDOVER]
        assert handover.model == "peer/small"
        # The part that was written slowly is in the summary too.
        asked = [texts_of(body["messages"][-1]) for body in waiting.server.bodies]
        assert not any(LOST_PART in question for question in asked)
