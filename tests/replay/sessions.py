"""Made-up sessions for the tests of the replay."""

from __future__ import annotations

import random

from helix_desktop.engine import context_policy
from helix_desktop.engine.facts import ToolCall
from helix_desktop.engine.fold_economics import RelativePrices
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession
from helix_desktop.replay import simulated_clock
from helix_desktop.replay.replay_figures import ReplayFigures
from helix_desktop.replay.session_player import ReplayStores, ReplayTerms, SessionPlayer
from helix_desktop.replay.simulated_recalls import RecallMode
from helix_desktop.store.in_memory_stores import MemoryCache, MemoryIndex, MemoryJournal

USUAL = RelativePrices(0.1, 1.25, 5.0)


class Words:
    """Counts words: quick, and plain to reckon with."""

    def count_tokens(self, text: str) -> int:
        return len(text.split())


def user(text: str) -> RecordedMessage:
    return RecordedMessage("user", text)


def says(text: str, *calls: ToolCall) -> RecordedMessage:
    return RecordedMessage("assistant", text, calls)


def returned(call: str, text: str) -> RecordedMessage:
    return RecordedMessage("tool", text, answers=call)


def step(number: int, output: str, *, name: str = "read") -> list[RecordedMessage]:
    """A reply with one call, and what it returned."""
    call = ToolCall(f"c{number}", name, f'{{"path": "src/module_{number}.py"}}')
    said = (
        f"Step {number}: I look at identifier_{number:03} and what uses it. "
        + "So the work goes on as it was asked. " * 12
    )
    return [says(said, call), returned(call.id, output)]


def prose(random_numbers: random.Random, words: int) -> str:
    """Lines of words that look like code and its output."""
    names = [f"identifier_{random_numbers.randrange(200):03}" for _ in range(words)]
    return "\n".join(" ".join(names[at : at + 9]) for at in range(0, words, 9))


def long_session(seed: int, steps: int, words: int = 900) -> RecordedSession:
    """One long turn: reads, a rule of the user at its beginning, a change of the
    subject in the middle.
    """
    numbers = random.Random(seed)
    said = [user("You must never delete tests/data/golden.json. Look at all the modules.")]
    for number in range(steps):
        said += step(number, prose(numbers, numbers.randrange(50, words)))
        if number == steps // 2:
            said += [says("Half of it is done."), user("Go on with identifier_007, and be quick.")]
    said.append(says("All of it is done."))
    return RecordedSession(f"made-up {seed}", tuple(said))


def play(
    recording: RecordedSession,
    name: str = "layered",
    *,
    window: int = 128_000,
    stand_in: str = "works",
    prices: RelativePrices = USUAL,
    recalls: RecallMode = RecallMode.SEARCHED,
    output_growth: float = 0.0,
    **values: object,
) -> ReplayFigures:
    """The session under a policy, in memory, counting words."""
    policy = context_policy.preset_policy(name).with_thresholds(values)
    terms = ReplayTerms(
        policy, window, prices, stand_in, recalls=recalls, output_growth=output_growth
    )

    async def played() -> ReplayFigures:
        now = simulated_clock.LoopClock().current_time
        journal = MemoryJournal(now=now)
        cache = MemoryCache(now=now)
        return await SessionPlayer(
            recording, terms, ReplayStores(journal, cache, MemoryIndex(journal, cache)), Words()
        ).play_session()

    return simulated_clock.run_on_jumping_loop(played())
