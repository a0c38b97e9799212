"""The rows of the timeline add up to its head: what each fold has saved, and the whole."""

from __future__ import annotations

import os
import random
import sys
from types import FrameType

import pytest

from helix_desktop.engine.facts import (
    BroughtIn,
    ConversationStarted,
    DocumentEdited,
    Excluded,
    Folded,
    FoldKind,
    Included,
    ModelReplied,
    ModelRole,
    ModelSet,
    Origin,
    PartRef,
    Pinned,
    Purpose,
    Refolded,
    Rewound,
    Span,
    Spent,
    Stop,
    SystemSet,
    Text,
    ToolCall,
    ToolReturned,
    Unfolded,
    Unpinned,
    Usage,
)
from helix_desktop.engine.state.fold_savings import SavedByFolds, join_row_runs
from tests.engine.talk import Talk

CONVERSATIONS = int(os.environ.get("HELIX_CONVERSATIONS", "6"))
FIRST_SEED = int(os.environ.get("HELIX_FIRST_SEED", "0"))
SEEDS = range(FIRST_SEED, FIRST_SEED + CONVERSATIONS)
EVENTS = 60
NO_WINDOW = 0
MARKS: tuple[type[Pinned | Unpinned | Excluded | Included], ...] = (
    Pinned,
    Unpinned,
    Excluded,
    Included,
)


def begin(window: int) -> Talk:
    talk = Talk()
    talk.add(ConversationStarted())
    talk.add(ModelSet(ModelRole.MAIN, "m", window, 500))
    talk.add(SystemSet("s", 100))
    talk.user("u", tokens=6)
    return talk


def ask(talk: Talk, factor: float = 1.0, *calls: str) -> int:
    """A request of all that is shown, and its reply. The model counts by this factor."""
    parts = tuple(ToolCall(call, "look", "{}", 10) for call in calls) or (Text("so", 10),)
    billed = round(talk.state.counted_tokens * factor)
    return talk.add(ModelReplied(parts, "m", Stop.CALLS, Usage(billed)))


def shorten(talk: Talk, name: str, seq: int, tokens: int = 96) -> int:
    return talk.add(Folded(name, FoldKind.MARKER, PartRef(seq), "short", tokens, 0))


def saved(talk: Talk, *names: str) -> SavedByFolds:
    return talk.state.saved_by_folds(names)


def what_does_not_add_up(talk: Talk, seq: int) -> dict[str, int]:
    """What is left of the head after all rows, and what is stated beside them, are taken away."""
    moment = talk.state.past_moment(seq)
    head = moment.savings_until_moment()
    names = [each.fact.fold for each in talk.facts if isinstance(each.fact, Folded)]
    rows = sum(moment.saved_by_folds([name]).tokens for name in dict.fromkeys(names))
    stated = head.by_other_summaries - head.shortening
    left = {"rows": head.by_folds - rows, "head": head.saved_tokens - rows - stated}
    return {place: tokens for place, tokens in left.items() if tokens}


def happen(talk: Talk, chance: random.Random, number: int, factor: float) -> None:
    """Something that may happen to a conversation."""
    happened = chance.choice(
        ["turn"] * 5 + ["arrives"] * 2 + ["fold"] * 6 + ["rewind", "spend", "fork", "import"]
    )
    match happened:
        case "turn":
            ask(talk, factor, f"c{number}")
            talk.output(f"c{number}", tokens=chance.randrange(20, 2_500))
            ask(talk, factor)
        case "arrives":
            ask(talk, factor, f"c{number}")
            seq = talk.output(f"c{number}", tokens=chance.randrange(500, 9_000))
            talk.add(Folded(f"e{number}", FoldKind.EXCERPT, PartRef(seq), "part", 200, 0))
            ask(talk, factor)
        case "fold":
            change_folds(talk, chance, number, factor)
        case "rewind":
            talk.add(Rewound(chance.randrange(4, talk.state.seq + 1)))
            talk.user("again", tokens=chance.randrange(5, 3_000))
        case "spend":
            talk.add(Spent(chance.choice(list(Purpose)), "m", Usage(chance.randrange(900))))
        case "fork":
            talk.add(ConversationStarted(forked_from="c", forked_at=talk.state.seq))
        case "import":
            first = talk.state.seq + 1
            ask(talk, factor)
            talk.add(BroughtIn(Origin("codex", "a"), "run", first))


def change_folds(talk: Talk, chance: random.Random, number: int, factor: float) -> None:
    made = [each.fact.fold for each in talk.facts if isinstance(each.fact, Folded)]
    outputs = [each.seq for each in talk.facts if isinstance(each.fact, ToolReturned)]
    live = list(talk.state.branch.live)
    undone = [name for name in made if name not in live]
    if not outputs:
        return
    seq = chance.choice(outputs)
    match chance.choice(["line"] * 3 + ["summary", "undo", "redo", "edit", "mark", "late"]):
        case "line":
            # Often an excerpt that is reduced to one line: two folds of one output.
            shorten(talk, f"m{number}", seq, chance.randrange(5, 100))
        case "summary":
            talk.add(Spent(Purpose.HANDOVER, "m", Usage(chance.randrange(100, 3_000))))
            cover = Span(chance.randrange(4, seq + 1), seq)
            talk.fold(f"h{number}", cover, tokens=chance.randrange(50, 900))
        case "undo" if live:
            talk.add(Unfolded(chance.choice(live)))
        case "redo" if undone:
            talk.add(Refolded(chance.choice(undone)))
        case "edit" if live:
            talk.add(DocumentEdited(chance.choice(live), "mine", chance.randrange(5, 150)))
        case "mark":
            mark = chance.choice(MARKS)
            talk.add(mark(PartRef(seq)))
        case "late":
            # A fold that comes while the model writes is in no request before the next one.
            seen = talk.state.seq
            billed = round(talk.state.counted_tokens * factor)
            shorten(talk, f"l{number}", seq)
            talk.add(ModelReplied((Text("so", 9),), "m", Stop.END, Usage(billed), saw=seen))


@pytest.mark.parametrize("window", [NO_WINDOW, 4_000, 16_000, 200_000])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_rows_add_up_to_the_head_to_the_token(seed: int, window: int) -> None:
    """Rows came to 290K beside a head of 22.6K: they counted requests in which a summary would
    have replaced their text anyway, and nothing said so.
    """
    chance = random.Random(seed)
    talk = begin(window)
    for number in range(EVENTS):
        happen(talk, chance, number, factor=1.0)
    for seq in range(1, talk.state.seq + 1):
        assert what_does_not_add_up(talk, seq) == {}, f"at fact {seq}"


@pytest.mark.parametrize("seed", SEEDS)
def test_where_no_summary_would_have_been_written_the_rows_are_the_head(seed: int) -> None:
    chance = random.Random(seed)
    talk = begin(NO_WINDOW)
    for number in range(EVENTS):
        happen(talk, chance, number, factor=1.0)
        head = talk.state.savings_until_moment()
        assert head.by_other_summaries == 0
        assert head.saved_tokens == head.by_folds - head.shortening


@pytest.mark.parametrize("factor", [0.8, 1.3])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_model_that_counts_otherwise_changes_the_rows_by_no_more_than_its_factor(
    seed: int, factor: float
) -> None:
    chance = random.Random(seed)
    talk = begin(NO_WINDOW)
    for number in range(EVENTS):
        happen(talk, chance, number, factor)
    head = talk.state.savings_until_moment()
    expected = (factor - 1) * head.by_folds
    requests = sum(isinstance(each.fact, ModelReplied) for each in talk.facts)
    assert head.counted_otherwise == pytest.approx(expected, rel=0.05, abs=requests)


def test_a_fold_counts_each_request_that_was_sent_with_it() -> None:
    talk = begin(NO_WINDOW)
    ask(talk, 1.0, "a")
    seq = talk.output("a", tokens=1_000)
    shorten(talk, "m", seq)
    assert saved(talk, "m") == SavedByFolds()
    ask(talk)
    ask(talk)
    assert saved(talk, "m") == SavedByFolds(2 * 904, 2, 2, requests_in_all=2)
    talk.add(Unfolded("m"))
    ask(talk)
    assert saved(talk, "m").requests == 2
    talk.add(Refolded("m"))
    ask(talk)
    assert saved(talk, "m") == SavedByFolds(3 * 904, 3, 3, requests_in_all=3)


def test_a_fold_counts_until_a_summary_would_have_replaced_its_text() -> None:
    talk = begin(4_000)
    seqs = []
    for name in "abcdef":
        ask(talk, 1.0, name)
        seqs.append(talk.output(name, tokens=1_000))
        shorten(talk, name, seqs[-1])
    ask(talk)
    first = saved(talk, "a")
    assert first.requests == 6
    assert 0 < first.counted < 6
    assert saved(talk, "f") == SavedByFolds(904, 1, 1, requests_in_all=1)
    # What is shortened later of a text that such a summary would have replaced saves nothing.
    talk.add(Unfolded("a"))
    shorten(talk, "again", seqs[0])
    ask(talk)
    assert saved(talk, "again").counted == 0
    assert what_does_not_add_up(talk, talk.state.seq) == {}


def test_what_would_not_have_fit_counts_in_no_request() -> None:
    talk = begin(4_000)
    ask(talk, 1.0, "a")
    shorten(talk, "m", talk.output("a", tokens=9_000))
    ask(talk)
    ask(talk)
    assert saved(talk, "m") == SavedByFolds(0, 0, 2, requests_in_all=2)
    assert talk.state.savings_until_moment().saved_tokens == 0


def test_what_is_undone_under_a_summary_is_left_out_by_the_summary() -> None:
    talk = begin(NO_WINDOW)
    ask(talk, 1.0, "a")
    seq = talk.output("a", tokens=1_000)
    shorten(talk, "m", seq)
    talk.fold("h", Span(4, seq), tokens=5)
    ask(talk)
    by_summary = saved(talk, "h").tokens
    talk.add(Unfolded("m"))
    ask(talk)
    assert saved(talk, "m").requests == 1
    assert saved(talk, "h").tokens == 2 * by_summary + 904


def test_folds_of_one_row_share_their_requests() -> None:
    talk = begin(NO_WINDOW)
    for name in "ab":
        ask(talk, 1.0, name)
        shorten(talk, name, talk.output(name, tokens=1_000))
    ask(talk)
    assert saved(talk, "a", "b") == SavedByFolds(3 * 904, 2, 2, requests_in_all=2)


def test_a_fork_counts_its_own_requests() -> None:
    talk = begin(NO_WINDOW)
    ask(talk, 1.0, "a")
    shorten(talk, "m", talk.output("a", tokens=1_000))
    ask(talk)
    before_fork = talk.state.seq
    talk.add(ConversationStarted(forked_from="c", forked_at=before_fork))
    assert saved(talk, "m") == SavedByFolds(requests_in_all=1)
    ask(talk)
    assert saved(talk, "m") == SavedByFolds(904, 1, 1, requests_in_all=2)


def test_what_an_agent_shortens_itself_saves_nothing_here() -> None:
    talk = begin(NO_WINDOW)
    ask(talk, 1.0, "a")
    seq = talk.output("a", tokens=1_000)
    shorten(talk, "m", seq)
    ask(talk)
    talk.add(Folded("agent", FoldKind.HANDOVER, Span(4, seq), "all", 50, 0, is_by_agent=True))
    ask(talk)
    assert saved(talk, "agent") == SavedByFolds(0, 1, 1, requests_in_all=1)
    assert saved(talk, "m").tokens == 904
    assert what_does_not_add_up(talk, talk.state.seq) == {}


def test_runs_that_overlap_or_touch_are_one() -> None:
    assert join_row_runs([(5, 9), (1, 2), (2, 4), (7, 12)]) == [(1, 4), (5, 12)]


def count_changes_of_folds(steps: int) -> int:
    """How often a fold was looked at, in a small window that a summary would often have filled."""
    talk = begin(8_000)
    looked_at = 0

    def count_call(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal looked_at
        if event == "call" and frame.f_code.co_name == "_change_standing":
            looked_at += 1

    sys.setprofile(count_call)
    try:
        for number in range(steps):
            ask(talk, 1.0, f"c{number}")
            shorten(talk, f"m{number}", talk.output(f"c{number}", tokens=900), tokens=9)
    finally:
        sys.setprofile(None)
    return looked_at


def test_a_fold_is_looked_at_as_often_however_many_there_are() -> None:
    """Each summary of the comparison went through all folds: a long conversation opened in three
    times the time.
    """
    assert count_changes_of_folds(400) < 2.5 * count_changes_of_folds(200)
