"""What is seen of a conversation while it is replayed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.facts import (
    Fact,
    Folded,
    FoldKind,
    ModelReplied,
    PartRef,
    Recorded,
    Span,
    Stop,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.replay import simulated_clock
from helix_desktop.replay.replay_figures import ReplayFigures
from helix_desktop.replay.replay_observer import ReplayObserver, is_undo_exact
from helix_desktop.replay.simulated_recalls import RecallMode
from tests.replay.sessions import long_session, play


def recorded(*facts: Fact) -> list[Recorded]:
    return [Recorded("c", seq, 0.0, fact) for seq, fact in enumerate(facts, 1)]


def turn(number: int) -> list[Fact]:
    stored = Stored(Digest.of_content(b"%d" % number), 500)
    return [
        UserSaid((Text(f"question {number}", 40),)),
        ModelReplied((ToolCall(f"c{number}", "read", "{}", 5),), "m", Stop.CALLS),
        ToolReturned(f"c{number}", stored, 500),
        ModelReplied((Text("answer", 60),), "m", Stop.END),
    ]


@given(st.lists(st.sampled_from(["marker", "span"]), max_size=5))
def test_undoing_gives_the_view_without_folds(kinds: list[str]) -> None:
    facts = [fact for number in range(len(kinds) + 1) for fact in turn(number)]
    for number, kind in enumerate(kinds):
        cover = PartRef(number * 4 + 3) if kind == "marker" else Span(1, number * 4 + 4)
        facts.append(
            Folded(
                f"f{number}",
                FoldKind.MARKER if kind == "marker" else FoldKind.HANDOVER,
                cover,
                "short",
                2,
                500,
            )
        )
    assert is_undo_exact(recorded(*facts))


def test_a_replay_counts_what_it_sees() -> None:
    figures = play(long_session(11, 70))
    assert figures.recalls > 0
    assert figures.details["found"] == sum(
        figures.details[name] for name in ("kept", "added", "entry")
    )
    assert 0 < figures.standing <= figures.used


def test_a_hash_that_does_not_come_back_is_counted() -> None:
    """A view that names content which is in no cache: a failure of the stores, which
    the replay must not overlook.
    """
    from helix_desktop.engine import request_building
    from helix_desktop.engine.conversation import Conversation
    from helix_desktop.engine.view_contents import ViewContents
    from helix_desktop.store.in_memory_stores import MemoryCache, MemoryJournal
    from tests.replay.sessions import Words, says

    async def watched() -> tuple[int, int]:
        cache = MemoryCache()
        conversation = await Conversation.open(MemoryJournal(), "c")
        watching = ReplayObserver(conversation, cache, (), Words())
        await conversation.append_facts(*turn(1))
        view = conversation.current_view()
        request = request_building.build_request(
            view, await ViewContents(cache).read_view_contents(view)
        )
        await watching.observe_step(view, request, says("done"))
        seen = await watching.complete_figures(ReplayFigures("c", 1, (), 0, 0, 0, 0, 0, 0, 0))
        return seen.recalls, seen.recalls_failed

    assert simulated_clock.run_on_jumping_loop(watched()) == (1, 1)


def test_pages_are_recalled_for_what_a_reply_uses_and_was_not_shown() -> None:
    recording = long_session(11, 40)
    assert play(recording, window=8_000, recalls=RecallMode.NONE).recalled_pages == 0
    assert play(recording, window=8_000, recalls=RecallMode.NAMED).recalled_pages > 0
    # All of it fits, so nothing is missed, and nobody searches for it.
    assert play(recording, window=1_000_000, recalls=RecallMode.SEARCHED).recalled_pages == 0
