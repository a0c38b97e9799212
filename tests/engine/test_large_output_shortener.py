"""What arrives too large: single outputs, whole batches, messages; in the three modes
of admission.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from helix_desktop.engine.facts import (
    Attachment,
    FoldKind,
    ModelRole,
    ModelSet,
    PartRef,
    Spent,
    Text,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.messages import Request
from helix_desktop.engine.ports import EntryOrigin
from tests.engine.keeping import Keeping, fails, keeping
from tests.engine.test_automatic_folding import words
from tests.turns import lasted

WHOLE = re.compile(r'the whole: recall_cached_content\("([0-9a-f]{64})"\)')


def compacts(request: Request) -> str:
    if request.purpose == "admission":
        return "1: compact: the failing tests\n2: preview\n3: full"
    return "two tests fail: a and b"


async def began(preset: str = "layered", **values: Any) -> Keeping:
    kept = await keeping(preset, window=1_000_000, **values)
    await kept.say("go")
    return kept


async def test_a_large_output_shows_as_a_preview_that_names_the_whole() -> None:
    kept = await began()
    seq = await kept.step(words(5_000) + "\nValueError: the one that matters\n" + words(5_000))
    (fold,) = kept.folds(FoldKind.EXCERPT)
    assert fold.cover == PartRef(seq)
    assert fold.tokens < 900
    assert "ValueError: the one that matters" in fold.text
    named = WHOLE.search(fold.text)
    assert named is not None
    assert len(await kept.cache.read_content(fold.entries[0])) > 40_000
    assert fold.entries[0].hex == named[1]
    assert kept.writers["main"].requests == kept.writers["fast"].requests == []


async def test_the_reason_of_an_excerpt_says_which_limit_was_exceeded() -> None:
    """It said "An output of 40,859 tokens.", which is no reason."""
    kept = await keeping("layered", window=32_000)
    await kept.say("go")
    await kept.step(words(5_000))
    (fold,) = kept.folds(FoldKind.EXCERPT)
    tokens = f"{fold.tokens_before:,}"
    assert fold.why == f"the output has {tokens} tokens, more than the 1,333 that are shown whole"


async def test_of_outputs_that_are_long_together_that_is_the_reason() -> None:
    kept = await began()
    await kept.batch([words(3_900, f"n{index:02}") for index in range(9)])
    assert kept.folds()
    for fold in kept.folds():
        assert fold.why.endswith("the outputs of this step were too long together")


async def test_a_read_of_what_is_shown_as_an_excerpt_brings_the_whole() -> None:
    kept = await began()
    text = words(5_000)
    first = await kept.step(text)
    assert not kept.conversation.state.is_message_whole(first)
    second = await kept.step(text)
    assert kept.conversation.state.is_message_whole(second)
    third = await kept.step(text)
    assert not kept.conversation.state.is_message_whole(third), "it stands there already"


async def test_lines_that_were_asked_for_are_shown_whole_in_a_small_window_too_if_they_fit() -> (
    None
):
    kept = await keeping("layered", window=32_000)
    await kept.say("go")
    lines = '{"path": "server.log", "first_line": 1, "last_line": 90}'
    for arguments, is_whole in ((lines, True), ('{"path": "server.log"}', False)):
        seq = await kept.step(words(3_000, arguments[-9:]), arguments=arguments)
        assert kept.conversation.state.is_message_whole(seq) is is_whole
    seqs = await kept.batch([words(3_000, f"n{number}") for number in range(9)], arguments=lines)
    assert not all(map(kept.conversation.state.is_message_whole, seqs)), "nine of them do not fit"


async def test_a_command_that_prints_the_same_again_and_a_very_long_read_stay_short() -> None:
    kept = await began()
    await kept.step(words(9_000))
    for text, tool in ((words(9_000, "again"), "read"), (words(5_000), "bash")):
        for _ in range(2):
            seq = await kept.step(text, tool=tool)
            assert not kept.conversation.state.is_message_whole(seq)


async def test_the_excerpt_is_in_the_same_transaction_as_the_output() -> None:
    kept = await began()
    seq = await kept.step(words(6_000))
    assert kept.facts[seq].fact == kept.folds()[0]
    assert kept.facts[seq].time == kept.facts[seq - 1].time


@pytest.mark.parametrize("tokens", [3_999, 20_000], ids=["just under the limit", "large"])
@pytest.mark.parametrize("ahead", [0, 7, 29])
async def test_of_thirty_outputs_little_is_shown_whole_and_the_rest_as_one_batch(
    ahead: int, tokens: int
) -> None:
    kept = await began()
    outputs = [words(tokens - 9, f"n{index:02}") for index in range(30)]
    seqs = await kept.batch(outputs, ahead=ahead)

    shown = [block for block in kept.conversation.current_view().blocks if block.call]
    assert len(shown) == 30
    assert sum(block.tokens for block in shown if not block.fold) <= 12_000

    (batch,) = {fold.batch for fold in kept.folds()}
    assert batch
    for fold in kept.folds():
        assert isinstance(fold.cover, PartRef)
        assert fold.cover in [PartRef(seq) for seq in seqs]
        output = kept.facts[fold.cover.seq - 1].fact
        assert isinstance(output, ToolReturned)
        assert fold.entries == (output.output.digest,)
    await kept.request()


@pytest.mark.parametrize(
    "output",
    [
        " " * 1_000_000,
        "x" * 5_000_000,
        "\0" * 300_000,
        "\x1b[31mred\x1b[0m \x07\x08" * 20_000,
        "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16") * 50_000,
        "[" * 200_000,
        '{"a": ' * 50_000,
    ],
    ids=["spaces", "one line", "nuls", "escapes", "emoji", "brackets", "nesting"],
)
async def test_outputs_nobody_expects(output: str) -> None:
    kept = await began()
    await kept.step(output)
    (fold,) = kept.folds(FoldKind.EXCERPT)
    assert fold.tokens < 1_200
    assert "\0" not in fold.text
    assert "\x1b" not in fold.text
    assert await kept.cache.read_content(fold.entries[0]) == output.encode()
    await kept.request()


async def test_ahead_compacts_with_the_words_of_the_call_and_asks_the_main_model_nothing() -> None:
    kept = await began()
    kept.writers["fast"].answer = compacts
    await kept.batch([words(6_000), words(6_000, "other")], keeps=["the failing tests", ""])
    one, two = kept.folds(FoldKind.EXCERPT)
    assert "two tests fail: a and b" in one.text
    assert (one.asked, one.model) == ("the failing tests", kept.writers["fast"].model_name)
    assert (two.asked, two.model) == ("", "")
    assert "preview" in two.text
    assert kept.writers["main"].requests == []
    assert [r.purpose for r in kept.writers["fast"].requests] == ["compaction"]
    assert [r.fact.purpose for r in kept.facts if isinstance(r.fact, Spent)] == ["compaction"]


async def test_ahead_keeps_all_where_all_is_asked_for_and_fits() -> None:
    kept = await began()
    await kept.batch([words(6_000)], keeps=["the whole file"])
    assert kept.folds() == []
    small = await keeping(window=6_000)
    await small.say("go")
    await small.batch([words(6_000)], keeps=["everything"])
    assert len(small.folds(FoldKind.EXCERPT)) == 1


async def test_ask_asks_once_for_the_batch_and_keeps_the_question_nowhere() -> None:
    kept = await began("observational")
    kept.writers["main"].answer = kept.writers["fast"].answer = compacts
    await kept.batch([words(6_000), words(7_000, "two"), words(8_000, "three")])
    (question,) = kept.writers["main"].requests
    assert question.purpose == "admission"
    first, second = kept.folds(FoldKind.EXCERPT)
    assert first.text.endswith("two tests fail: a and b")
    assert "preview" in second.text
    shown = await kept.shown()
    assert "Choose for" not in shown
    assert words(8_000, "three") in shown


async def test_ask_reads_the_conversation_over_its_own_prefix() -> None:
    kept = await began("observational")
    kept.writers["main"].answer = compacts
    before = await kept.request()
    await kept.batch([words(6_000)])
    (question,) = kept.writers["main"].requests
    assert question.messages[: len(before.messages)] == before.messages


@pytest.mark.parametrize("preset", ["layered", "observational"])
async def test_models_that_fail_leave_the_preview(preset: str) -> None:
    kept = await began(preset)
    kept.writers["main"].answer = kept.writers["fast"].answer = fails
    await kept.batch([words(6_000)], keeps=["the numbers"])
    (fold,) = kept.folds(FoldKind.EXCERPT)
    assert "(preview)" in fold.text


@pytest.mark.parametrize("preset", ["layered", "observational"])
async def test_models_that_hang_cost_the_turn_no_more_than_the_wait(preset: str) -> None:
    kept = await began(preset, admission_wait=0.05)
    kept.writers["main"].hangs = kept.writers["fast"].hangs = True
    outputs = [words(6_000), words(6_000, "two")]
    assert await lasted(kept.batch(outputs, keeps=["the numbers", "the names"])) < 2
    assert len(kept.folds(FoldKind.EXCERPT)) == 2


async def test_auto_asks_nobody_and_off_holds_nothing_back() -> None:
    kept = await began(admission="auto")
    await kept.batch([words(6_000)], keeps=["the numbers"])
    assert len(kept.folds(FoldKind.EXCERPT)) == 1
    assert kept.writers["fast"].requests == []
    off = await began(admission="off")
    await off.batch([words(6_000)])
    assert off.folds() == []


async def test_of_an_output_that_does_not_fit_the_window_the_model_sees_what_was_asked_for_and_how_long_it_is() -> (
    None
):
    kept = await keeping(window=30_000)
    await kept.say("look")
    kept.writers["fast"].answer = compacts
    lines = "".join(
        f"record {number} value {number * 7919 % 1000}\n" for number in range(1, 20_001)
    )
    await kept.batch([lines], keeps=["the line of record 9711, and how many records there are"])
    (request,) = kept.writers["fast"].requests
    material = "".join(
        part.text
        for message in request.messages
        for part in message.parts
        if isinstance(part, Text)
    )
    assert "record 9711 value" in material
    assert "of all 20,000 lines left out" in material
    assert len(material) < 60_000


async def test_a_compaction_that_is_far_too_long_is_cut() -> None:
    kept = await began()
    kept.writers["fast"].answer = lambda _: words(50_000)
    await kept.batch([words(60_000)], keeps=["all of the numbers"])
    (fold,) = kept.folds(FoldKind.EXCERPT)
    assert fold.tokens < 4_000


async def test_a_recall_is_not_held_back_again() -> None:
    kept = await began()
    await kept.step(words(6_000), tool="recall_cached_content")
    assert kept.folds() == []


async def test_a_message_of_over_a_quarter_of_the_window_is_stored_and_shown_as_an_excerpt() -> (
    None
):
    kept = await keeping(window=8_000)
    text = "Read this log.\n" + words(20_000) + "\nYou must not delete it."
    seq = await kept.say(text)
    (fold,) = kept.folds(FoldKind.EXCERPT)
    assert fold.cover == PartRef(seq)
    assert (await kept.cache.read_content(fold.entries[0])).decode() == text
    shown = await kept.shown()
    assert "Read this log." in shown
    assert "You must not delete it." in shown
    assert kept.conversation.current_meter().request_fits
    said = kept.conversation.fact_at(seq)
    assert isinstance(said, UserSaid)
    assert isinstance(said.parts[0], Attachment)


@pytest.mark.parametrize("window", [2_048, 4_096, 8_192, 32_000, 200_000])
@pytest.mark.parametrize("language", ["English", "Chinese"])
async def test_an_excerpt_of_a_message_is_smaller_than_the_message_in_any_window(
    window: int, language: str
) -> None:
    kept = await keeping(window=window)
    text = ""
    number = 0
    while kept.tokens.count_tokens(text) <= window / 4:
        number += 1
        line = f"{number}: the late fee of book {number * 7919 % 1000} is paid by its reader"
        if language == "Chinese":
            line = f"{number}：图书 {number * 7919 % 1000} 的逾期罚款由读者归还图书时支付"
        text += f"{line}\n"
    for _ in range(4):  # Only what no longer fits is shortened in a small window.
        await kept.say(text)
    folds = kept.folds(FoldKind.EXCERPT)
    assert folds
    for fold in folds:
        assert fold.tokens < fold.tokens_before
        assert fold.tokens <= window / 4


async def test_a_large_attachment_is_shown_as_an_excerpt_and_a_picture_as_it_is() -> None:
    kept = await keeping(window=8_000)
    log = await kept.cache.store_content(words(9_000).encode(), EntryOrigin("user", "a.log"))
    picture = await kept.cache.store_content(b"picture", EntryOrigin("user", "a.png", "image/png"))
    said = UserSaid(
        (Text("see", 1), Attachment("a.log", log, 9_000), Attachment("a.png", picture, 9_000))
    )
    recorded = await kept.conversation.append_facts(*await kept.folding.excerpt_large_message(said))
    (fold,) = kept.folds(FoldKind.EXCERPT)
    assert fold.cover == PartRef(recorded[0].seq, 1)
    assert "a.log" in fold.text


async def test_a_message_larger_than_the_window_of_a_later_smaller_model_still_goes() -> None:
    kept = await keeping(window=12_000)
    await kept.say(words(2_900))
    await kept.answer("yes")
    await kept.conversation.append_facts(ModelSet(ModelRole.MAIN, "small", 2_500))
    await kept.folding.apply_due_folds()
    assert kept.conversation.current_meter().request_fits
    await kept.request()
