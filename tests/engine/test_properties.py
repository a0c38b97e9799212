"""What holds for every conversation: any sequence of messages, folds, undos, rewinds,
pins and crashes.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.engine import request_building, view
from helix_desktop.engine.facts import (
    Attachment,
    Cover,
    DocumentEdited,
    Excluded,
    Fact,
    Folded,
    FoldKind,
    Included,
    ModelReplied,
    PartRef,
    Pinned,
    Reasoning,
    Recorded,
    Refolded,
    ReplyPart,
    Rewound,
    RulesSet,
    Span,
    Stop,
    SystemSet,
    Text,
    TodoSet,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Unfolded,
    Unpinned,
    UserSaid,
)
from helix_desktop.engine.messages import ContextKind, Role, View
from helix_desktop.engine.state.fold_covers import cover_contains, covers_nest
from helix_desktop.engine.view import ConversationState, build_state
from tests.engine.talk import Talk, stored

MESSAGES = (UserSaid, ModelReplied, ToolReturned)
MAKERS: dict[str, Callable[[Talk, int, int], Fact | None]] = {}


def maker(
    function: Callable[[Talk, int, int], Fact | None],
) -> Callable[[Talk, int, int], Fact | None]:
    MAKERS[function.__name__] = function
    return function


def a_seq(talk: Talk, number: int) -> int:
    return number % max(talk.state.seq, 1) + 1


def a_cover(talk: Talk, one: int, other: int) -> Cover:
    """A part or a span; most of them make sense, some do not."""
    if one % 3 == 0:
        return PartRef(a_seq(talk, other), one % 2)
    first, last = sorted((a_seq(talk, one), a_seq(talk, other)))
    return Span(first, last)


def a_fold(talk: Talk, number: int) -> str:
    names = [recorded.fact.fold for recorded in talk.facts if isinstance(recorded.fact, Folded)]
    return names[number % len(names)] if names else "none"


@maker
def user(talk: Talk, one: int, other: int) -> Fact:
    texts = (Text("please", one % 30), Text("  ", 1), Text("must", 5))
    attached = Attachment("a.txt", stored(f"file {one}"), one % 500)
    return UserSaid(
        (attached, *texts[: other % 3]) if one % 4 == 0 else texts[other % 3 :],
        steering=other % 2 == 0,
    )


@maker
def reply(talk: Talk, one: int, other: int) -> Fact:
    parts: list[ReplyPart] = []
    if one % 3 == 0:
        parts.append(Reasoning("hm", 20, "signed" * (one % 2), "p"))
    if one % 2 == 0:
        parts.append(Text("I say" * (one % 5), one % 50))
    for index in range(other % 4):
        arguments = ('{"path": "a.py"}', "{broken", '["list"]', "")[(one + index) % 4]
        parts.append(
            ToolCall(
                f"c{(one + index) % 5}" * (one % 7 > 0),
                "tool name" if one % 5 else "read",
                arguments,
                other % 300,
            )
        )
    return ModelReplied(tuple(parts), "m", (Stop.CALLS, Stop.CUT, Stop.END)[one % 3])


@maker
def result(talk: Talk, one: int, other: int) -> Fact:
    waiting = talk.state.branch.running_calls
    call = waiting[one % len(waiting)].id if waiting and other % 8 else f"c{one % 6}"
    images = (stored(f"picture {one}"),) if one % 6 == 0 else ()
    return ToolReturned(
        call, stored(f"output {one} {other}"), other, ok=one % 2 == 0, images=images
    )


@maker
def fold(talk: Talk, one: int, other: int) -> Fact:
    kind = list(FoldKind)[one % 6]
    name = f"f{talk.state.seq}"
    return Folded(
        name,
        kind,
        a_cover(talk, one, other),
        f"short {name}",
        other % 60,
        100,
        panic=other % 5 == 0,
    )


@maker
def undo(talk: Talk, one: int, other: int) -> Fact:
    return Unfolded(a_fold(talk, one))


@maker
def redo(talk: Talk, one: int, other: int) -> Fact:
    return Refolded(a_fold(talk, one))


@maker
def edit(talk: Talk, one: int, other: int) -> Fact:
    return DocumentEdited(a_fold(talk, one), f"edited {other}", 7)


@maker
def pin(talk: Talk, one: int, other: int) -> Fact:
    return (Pinned, Unpinned)[other % 2](a_cover(talk, one, other))


@maker
def exclude(talk: Talk, one: int, other: int) -> Fact:
    return (Excluded, Included)[other % 3 == 0](a_cover(talk, one, other))


@maker
def rewind(talk: Talk, one: int, other: int) -> Fact | None:
    return Rewound(one % talk.state.seq) if talk.state.seq and one % 4 == 0 else None


@maker
def setting(talk: Talk, one: int, other: int) -> Fact:
    choices = (
        SystemSet(f"system {one % 3}", 5),
        RulesSet("AGENTS.md", "tabs" * (other % 2), 3),
        TodoSet((("do", "open"),)),
    )
    return choices[one % 3]


@maker
def end(talk: Talk, one: int, other: int) -> Fact:
    return TurnEnded(TurnEnd.DONE)


KINDS = st.sampled_from(
    ["user"] * 3
    + ["reply"] * 6
    + ["result"] * 8
    + ["fold"] * 5
    + ["undo", "redo", "edit", "pin", "exclude"] * 2
    + ["rewind", "setting", "end"]
)
SCRIPTS = st.lists(st.tuples(KINDS, st.integers(0, 999), st.integers(0, 999)), max_size=60)


def played(
    script: Sequence[tuple[str, int, int]], check: Callable[[Talk, Fact], None] | None = None
) -> Talk:
    talk = Talk()
    for kind, one, other in script:
        fact = MAKERS[kind](talk, one, other)
        if fact is not None:
            talk.add(fact)
            if check is not None:
                check(talk, fact)
    return talk


def without_folds(facts: Sequence[Recorded]) -> ConversationState:
    """The same conversation had nothing ever been folded."""
    plain = (TurnEnded, Folded, Unfolded, Refolded, DocumentEdited)
    return build_state(
        Recorded(one.conversation, one.seq, one.time, TodoSet(()))
        if isinstance(one.fact, plain) and not isinstance(one.fact, TurnEnded)
        else one
        for one in facts
    )


def body(shown: View) -> list[object]:
    return [block for block in shown.blocks if block.kind is not ContextKind.SYSTEM]


def looked(_: View) -> None:
    """A view that was asked for on the way."""


@given(SCRIPTS)
@settings(max_examples=300)
def test_every_request_is_legal_at_every_moment(script: list[tuple[str, int, int]]) -> None:
    def check(talk: Talk, fact: Fact) -> None:
        request = talk.request()
        assert request_building.find_violations(request) == []
        assert 0 <= request.stable <= len(request.messages)

    played(script, check)


@given(SCRIPTS)
@settings(max_examples=200)
def test_the_view_is_the_same_computed_at_once_or_step_by_step(
    script: list[tuple[str, int, int]],
) -> None:
    talk = played(script, lambda talk, _: looked(talk.view()))
    assert view.build_state(talk.facts).get_view() == talk.view()


@given(SCRIPTS)
@settings(max_examples=200)
def test_the_running_sums_are_what_the_blocks_come_to(script: list[tuple[str, int, int]]) -> None:
    def check(talk: Talk, fact: Fact) -> None:
        branch = talk.state.branch
        counted: Counter[ContextKind] = Counter()
        for item in branch.items:
            for block in item.blocks:
                counted[block.kind] += block.tokens
        # A counter without the kinds of which there is nothing.
        assert +Counter(branch.tokens) == +counted
        assert branch.shown_messages == sum(bool(item.blocks) for item in branch.items)
        assert branch.token_sums.sum_before(len(branch.order)) == counted.total()
        assert branch.plain_tokens == sum(item.tokens for item in branch.items if not item.fold)

    played(script, check)


@given(SCRIPTS)
@settings(max_examples=200)
def test_what_can_be_recalled_is_each_original_once(script: list[tuple[str, int, int]]) -> None:
    def check(talk: Talk, fact: Fact) -> None:
        tokens_of_originals: dict[Cover, int] = {}
        for fold in talk.state.branch.live_folds:
            if fold.kind in (FoldKind.MARKER, FoldKind.EXCERPT):
                assert not fold.entries, "each part is an original of its own"
                known = tokens_of_originals.get(fold.cover, 0)
                tokens_of_originals[fold.cover] = max(known, fold.tokens_before)
        assert talk.state.count_recallable_tokens() == sum(tokens_of_originals.values())

    played(script, check)


@given(SCRIPTS)
@settings(max_examples=200)
def test_a_fold_never_makes_the_view_longer(script: list[tuple[str, int, int]]) -> None:
    talk = Talk()
    for kind, one, other in script:
        fact = MAKERS[kind](talk, one, other)
        if fact is not None:
            before = talk.state.branch.total_tokens
            talk.add(fact)
            if isinstance(fact, Folded):
                assert talk.state.branch.total_tokens <= before


@given(SCRIPTS, st.integers(0, 999), st.integers(0, 999))
@settings(max_examples=200)
def test_undo_of_the_last_fold_is_exact_and_redo_brings_it_back(
    script: list[tuple[str, int, int]], one: int, other: int
) -> None:
    talk = played(script)
    before = talk.view()
    made = fold(talk, one, other)
    assert isinstance(made, Folded)
    talk.add(made)
    folded = talk.view()
    talk.add(Unfolded(made.fold))
    assert talk.view() == before
    talk.add(Refolded(made.fold))
    assert talk.view() == folded


@given(SCRIPTS)
@settings(max_examples=200)
def test_undoing_all_folds_gives_the_view_without_any(script: list[tuple[str, int, int]]) -> None:
    talk = played(script)
    for live in reversed(talk.state.live_folds):
        talk.add(Unfolded(live.fold))
    assert talk.state.live_folds == ()
    assert body(talk.view()) == body(without_folds(talk.facts).get_view())


@given(SCRIPTS, st.integers(0, 999))
@settings(max_examples=200)
def test_a_rewind_shows_the_view_as_it_was(script: list[tuple[str, int, int]], number: int) -> None:
    talk = played(script)
    to = number % (talk.state.seq + 1)
    then = talk.state.past_moment(to)
    talk.add(Rewound(to))
    assert body(talk.view()) == body(then.get_view())
    assert [f.fold for f in talk.state.live_folds] == [f.fold for f in then.live_folds]


@given(SCRIPTS)
@settings(max_examples=200)
def test_without_changes_of_the_past_the_next_view_begins_with_this_one(
    script: list[tuple[str, int, int]],
) -> None:
    talk = Talk()
    for kind, one, other in script:
        fact = MAKERS[kind](talk, one, other)
        if isinstance(fact, MESSAGES):
            before = talk.view().blocks
            talk.add(fact)
            assert talk.view().blocks[: len(before)] == before


@given(
    SCRIPTS,
    st.lists(
        st.tuples(
            st.sampled_from(["user", "reply", "result"]), st.integers(0, 999), st.integers(0, 999)
        ),
        max_size=12,
    ),
)
@settings(max_examples=200)
def test_what_was_sent_stays_the_prefix_of_what_is_sent_next(
    script: list[tuple[str, int, int]], more: list[tuple[str, int, int]]
) -> None:
    """A provider's cache holds as long as nothing is folded: parts once sent are sent
    again, in the same order.
    """
    talk = played(script)
    if talk.state.branch.running_calls:
        return
    talk.add(ModelReplied((Text("said", 1),), "m", Stop.END))
    sent = [part for message in talk.request().messages[:-1] for part in message.parts]
    for kind, one, other in more:
        made = MAKERS[kind](talk, one, other)
        assert made is not None
        talk.add(made)
    again = [part for message in talk.request().messages for part in message.parts]
    assert again[: len(sent)] == sent


@given(SCRIPTS)
@settings(max_examples=200)
def test_pins_are_in_every_view_word_for_word(script: list[tuple[str, int, int]]) -> None:
    def check(talk: Talk, fact: Fact) -> None:
        branch = talk.state.branch
        shown = {block.source: block.content for block in talk.view().blocks if not block.fold}
        for recorded in map(branch.message_at, branch.order):
            parts = recorded.fact.parts if isinstance(recorded.fact, UserSaid) else ()
            for index, part in enumerate(parts):
                ref = PartRef(recorded.seq, index)
                is_blank = isinstance(part, Text) and not part.text.strip()
                is_left_out = is_blank or branch.is_excluded(ref)
                if branch.is_pinned(ref) and not is_left_out:
                    assert shown.get(ref) == part

    played(script, check)


@given(SCRIPTS)
@settings(max_examples=200)
def test_live_folds_nest_or_lie_apart(script: list[tuple[str, int, int]]) -> None:
    def check(talk: Talk, fact: Fact) -> None:
        spans = [live.cover for live in talk.state.live_folds if isinstance(live.cover, Span)]
        for one, other in itertools.combinations(spans, 2):
            first, second = sorted((one, other), key=lambda span: (span.first, -span.last))
            is_apart = first.last < second.first
            is_inside = second.last <= first.last
            assert is_apart or is_inside

    played(script, check)


@given(SCRIPTS)
@settings(max_examples=100)
def test_no_message_is_shown_twice_and_none_is_forgotten(
    script: list[tuple[str, int, int]],
) -> None:
    def check(talk: Talk, fact: Fact) -> None:
        branch = talk.state.branch
        seqs = [seq for item in branch.items for seq in branch.messages_of_item(item)]
        assert seqs == branch.order
        assert [item.first for item in branch.items] == sorted(
            {item.first for item in branch.items}
        )

    played(script, check)


@given(SCRIPTS)
@settings(max_examples=100)
def test_reasoning_is_whole_or_absent(script: list[tuple[str, int, int]]) -> None:
    def check(talk: Talk, fact: Fact) -> None:
        shown: Counter[int] = Counter()
        for block in talk.view().blocks:
            if (
                isinstance(block.content, Reasoning)
                and block.role is Role.ASSISTANT
                and isinstance(block.source, PartRef)
            ):
                shown[block.source.seq] += 1
        for seq, count in shown.items():
            said = talk.state.branch.message_at(seq).fact
            assert isinstance(said, ModelReplied)
            blank = sum(isinstance(part, Reasoning) for part in said.parts)
            assert count == blank

    played(script, check)


@given(
    SCRIPTS, st.lists(st.tuples(st.integers(0, 999), st.integers(0, 999)), min_size=5, max_size=15)
)
@settings(max_examples=150)
def test_nesting_and_the_outermost_spans_are_what_looking_at_every_fold_gives(
    script: list[tuple[str, int, int]], pairs: list[tuple[int, int]]
) -> None:
    talk = played(script)
    branch = talk.state.branch
    covers = [branch.folds[name].cover for name in branch.live]
    spans = [cover for cover in covers if isinstance(cover, Span)]
    for one, other in pairs:
        cover = a_cover(talk, one, other)
        assert branch.would_fold_nest(cover) == all(covers_nest(cover, span) for span in spans)
        if isinstance(cover, Span):
            found = branch.outermost_folds(cover)
            assert [span for span, _ in found] == outermost_within(cover, spans)
            for span, fold in found:
                assert branch.folds[fold.fold].cover == span


def outermost_within(cover: Span, spans: list[Span]) -> list[Span]:
    """The spans within a cover that lie in no other of them, in order."""
    inside = {span for span in spans if cover_contains(cover, span)}
    outermost: list[Span] = []
    for span in sorted(inside, key=lambda span: span.first):
        others = inside - {span}
        if not any(cover_contains(other, span) for other in others):
            outermost.append(span)
    return outermost
