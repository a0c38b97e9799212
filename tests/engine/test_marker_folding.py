"""Clearing carried out: content first, then all markers of a batch in one transaction."""

from __future__ import annotations

import json

from helix_desktop.engine.facts import FoldKind, PartRef, Pinned, ToolCall, Unfolded
from tests.engine.keeping import Keeping, keeping
from tests.engine.test_automatic_folding import MARKER, words, worked


async def with_outputs() -> tuple[Keeping, list[int]]:
    kept = await keeping(window=1_000_000)
    await kept.say("go")
    return kept, [await kept.step(words(300, f"out{index}")) for index in range(3)]


async def test_one_batch_is_one_transaction_of_a_fold_for_each_part() -> None:
    kept, seqs = await with_outputs()
    refs = [PartRef(seq) for seq in seqs]
    recorded_folds = await kept.folding._shortener.replace_with_markers(refs, "because")
    folds = kept.folds(FoldKind.MARKER)
    assert len(recorded_folds) == len(folds) == 3
    assert len({fold.fold for fold in folds}) == 3
    for recorded, fold in zip(recorded_folds, folds, strict=True):
        assert recorded.time == recorded_folds[0].time
        assert fold.batch == folds[0].batch
        assert MARKER.match(fold.text)
        assert fold.tokens < fold.tokens_before
        assert fold.why.startswith("because: 3 parts, ")
        assert "read a.py" in fold.text


async def test_doing_it_twice_does_nothing_more() -> None:
    kept, seqs = await with_outputs()
    refs = [PartRef(seq) for seq in seqs]
    await kept.folding._shortener.replace_with_markers(refs, "because")
    before = kept.conversation.current_view()
    assert await kept.folding._shortener.replace_with_markers(refs, "again") == ()
    assert kept.conversation.current_view() == before


async def test_what_changed_meanwhile_is_left_alone() -> None:
    kept, seqs = await with_outputs()
    shortener = kept.folding._shortener
    block = shortener.find_block(PartRef(seqs[0]))
    assert block is not None
    made = await shortener.build_marker(PartRef(seqs[0]), block)
    await kept.conversation.append_facts(Pinned(PartRef(seqs[0])))
    assert await shortener.append_folds_of_unchanged_parts([made], "b", "why", panic=False) == ()
    assert (
        await shortener.replace_with_markers([PartRef(999), PartRef(seqs[1], 4)], "nothing there")
        == ()
    )


async def test_the_one_long_value_of_an_argument_is_stored_as_it_is() -> None:
    kept = await keeping(window=1_000_000)
    await kept.say("go")
    text = words(1_500)
    seq = await kept.step(
        "written", tool="write_file", arguments=json.dumps({"path": "src/a.py", "text": text})
    )
    await worked(kept, 2, 100)
    await kept.folding._shortener.replace_with_markers([PartRef(seq - 1, 1)], "because")
    (fold,) = kept.folds(FoldKind.MARKER)
    assert (await kept.cache.read_content(fold.entries[0])).decode() == text
    arguments = json.loads(shown_call(kept).arguments)
    assert arguments["path"] == "src/a.py"
    assert MARKER.match(arguments["text"])
    assert "argument of write_file src/a.py" in arguments["text"]
    await kept.request()
    await kept.conversation.append_facts(Unfolded(fold.fold))
    assert json.loads(shown_call(kept).arguments)["text"] == text


def shown_call(kept: Keeping) -> ToolCall:
    """The first call of the view."""
    return next(
        b.content
        for b in kept.conversation.current_view().blocks
        if isinstance(b.content, ToolCall) and b.content.name != "read"
    )


async def test_several_long_values_are_stored_together() -> None:
    kept = await keeping(window=1_000_000)
    await kept.say("go")
    arguments = json.dumps({"path": "a.py", "old": words(900), "new": words(900, "new")})
    seq = await kept.step("edited", tool="edit", arguments=arguments)
    await kept.folding._shortener.replace_with_markers([PartRef(seq - 1, 1)], "because")
    (fold,) = kept.folds(FoldKind.MARKER)
    assert (await kept.cache.read_content(fold.entries[0])).decode() == arguments
    await kept.request()


async def test_parts_that_are_replaced_for_one_batch_bear_its_name_and_others_have_their_own() -> (
    None
):
    kept, seqs = await with_outputs()
    shortener = kept.folding._shortener
    await shortener.replace_with_markers([PartRef(seqs[0])], "because", batch="given")
    await shortener.replace_with_markers([PartRef(seqs[1])], "because", batch="given")
    await shortener.replace_with_markers([PartRef(seqs[2])], "because")
    first, second, third = (fold.batch for fold in kept.folds(FoldKind.MARKER))
    assert first == second == "given"
    assert third not in ("", "given")
