"""A fold strategy of an extension chooses and writes summaries, and can lose no word: what it returns
is checked, all originals stay, and when it fails a model writes as without it.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from helix_desktop.engine.facts import FoldKind, Rewound, Span
from helix_desktop.extensions.added_fold_strategies import list_added_fold_strategies
from helix_desktop.extensions.extension_checks import check_fold_strategy
from helix_desktop.extensions.extension_loading import LoadedExtensions
from helix_desktop.program_folders import ProgramFolders
from tests.engine.keeping import Keeping, keeping
from tests.engine.test_automatic_folding import FULL, worked
from tests.extensions.conftest import PACKAGES, Install, WriteExtension
from tests.extensions.random_strategies import (
    ROOMY,
    RULE,
    code_of_random_strategy,
    play_beside_none,
)
from tests.extensions.test_allowed_imports import allow, load

CODE = """
import threading
from helix_desktop.extensions.extension_interfaces import *
seen = []
def choose(context):
    seen.append(context)
    {choose}
def write(messages):
    seen.append(messages)
    {write}
extension = Extension("Digest", fold_strategies=[ExtensionFoldStrategy("digest", {functions}limit_seconds=0.5)])
"""


def extension(
    where: ProgramFolders, write_extension: WriteExtension, *, choose: str = "", write: str = ""
) -> LoadedExtensions:
    """Install, allow and load an extension whose functions have these bodies."""
    functions = ""
    if choose:
        functions += "choose=choose, "
    if write:
        functions += "write=write, "
    code = CODE.format(choose=choose or "pass", write=write or "pass", functions=functions)
    write_extension("digest", code)
    return load(allow(where, "digest"))


async def folding_with_extension(**values: Any) -> Keeping:
    kept = await keeping(window=12_000, strategies=list_added_fold_strategies, **values)
    await kept.say(f"Please look around. {RULE} Then go on.")
    return kept


async def test_its_text_is_the_summary_and_what_it_left_out_is_added(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    extension(where, write_extension, write="return f'We read {len(messages)} messages.'")
    kept = await folding_with_extension(**FULL)
    await worked(kept, 20, 400)
    before = await kept.shown()
    await kept.settled()
    (fold,) = kept.folds(FoldKind.HANDOVER)
    assert fold.model == "Digest (extension)"
    assert "We read" in fold.text
    assert RULE in fold.text, "the program adds what must not be lost"
    assert kept.writers["fast"].requests == kept.writers["main"].requests == []
    await kept.folding.unfold(fold.fold)
    assert await kept.shown() == before


async def test_it_chooses_when_and_how_far_and_a_model_writes(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    choose = (
        "ends = [one.number for one in context.messages if one.may_be_last]; "
        "return ChosenFold(ends[-3], 'the first part is done') if len(ends) > 8 else None"
    )
    extension(where, write_extension, choose=choose)
    kept = await folding_with_extension(**ROOMY)
    for _ in range(12):
        await worked(kept, 1, 500)
        await kept.settled()
    assert kept.failures() == []
    fold = kept.folds(FoldKind.HANDOVER)[0]
    assert fold.why == "Digest: the first part is done"
    assert fold.model == "main"
    assert isinstance(fold.cover, Span)
    assert fold.cover.first == 4, "it begins with the first message"
    await kept.request()


async def test_without_summaries_in_the_policy_nobody_is_asked(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    loaded = extension(where, write_extension, choose="raise ValueError", write="return 'x'")
    kept = await folding_with_extension(caching="off", handover="off", observation=False)
    await worked(kept, 8, 200)
    await kept.settled()
    assert loaded.complaints == []
    assert loaded.running[0].failures.total() == 0


async def test_what_was_chosen_before_the_conversation_was_rewound_is_not_folded(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    gate = "import sys; threading.Event.wait(sys.modules[__name__].gate); "
    choose = f"{gate}return ChosenFold(context.messages[-1].number, 'all of it')"
    loaded = extension(where, write_extension, choose=choose)
    module = loaded.running[0].declared.fold_strategies[0].choose.__globals__  # type: ignore[union-attr]
    module["gate"] = threading.Event()
    kept = await folding_with_extension(**ROOMY)
    await worked(kept, 4, 300)
    assert kept.folding._asking_task is not None, "the steps went on meanwhile"
    await kept.conversation.append_facts(Rewound(5))
    module["gate"].set()
    await kept.settled()
    assert kept.folds() == []


BAD_CHOICES = {
    "return 7": "int instead of a ChosenFold",
    "return ChosenFold('4', 'x')": "no number",
    "return ChosenFold(True, 'x')": "no number",
    "return ChosenFold(1, 7)": "`why` no text",
    "return ChosenFold(10**9, 'x')": "not the number of a message",
    "return ChosenFold(-1, 'x')": "not the number of a message",
    "return ChosenFold(context.used, 'x')": "not the number of a message",
    "return ChosenFold(next(one.number for one in context.messages if not one.may_be_last), 'x')": "may be the last",
    "return ChosenFold(context.messages[-1].number, 'Claude Code compacted the conversation here')": "own compaction",
    "raise SystemExit": "raised SystemExit",
    "raise StopIteration": "raised StopIteration",
    "context.messages = ()": "raised",
    "threading.Event().wait()": "did not return",
}
BAD_TEXTS = {
    "return 7": "int instead of a text",
    "return None": "NoneType instead of a text",
    "return 'x' * 10**6": "more than 200,000",
    "return chr(0xd800)": "not valid Unicode",
    "raise KeyboardInterrupt": "raised KeyboardInterrupt",
    "from helix_desktop.extensions.limited_calls import ExtensionFailed; raise ExtensionFailed(7)": "raised ExtensionFailed",
    "messages.clear()": "raised",
    "threading.Event().wait()": "did not return",
}


@pytest.mark.parametrize("body", BAD_CHOICES)
async def test_a_wrong_choice_folds_nothing_and_switches_it_off_with_a_sentence(
    body: str, where: ProgramFolders, write_extension: WriteExtension
) -> None:
    loaded = extension(where, write_extension, choose=body)
    kept = await folding_with_extension(**ROOMY)
    for _ in range(6):
        await worked(kept, 1, 200)
        await kept.settled()
    assert kept.folds() == []
    assert list_added_fold_strategies() == []
    (complaint,) = loaded.complaints
    assert "The extension digest was switched off: choose of digest" in complaint
    assert BAD_CHOICES[body] in complaint


@pytest.mark.parametrize("body", BAD_TEXTS)
async def test_in_place_of_a_wrong_text_a_model_writes(
    body: str, where: ProgramFolders, write_extension: WriteExtension
) -> None:
    loaded = extension(where, write_extension, write=body)
    kept = await folding_with_extension(**FULL)
    await worked(kept, 20, 400)
    await kept.settled()
    (fold,) = kept.folds(FoldKind.HANDOVER)
    assert fold.model == "main"
    assert RULE in fold.text
    assert kept.failures() == []
    if "wait" in body:
        assert "did not return" in loaded.complaints[0]
    else:
        assert loaded.running[0].failures == {"write of digest": 1}


async def test_what_the_user_asks_to_keep_is_left_to_a_model(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    extension(where, write_extension, write="return 'We read.'")
    kept = await folding_with_extension(**ROOMY)
    await worked(kept, 12, 400)
    await kept.folding.fold_on_demand(FoldKind.HANDOVER, "the names of the files")
    (fold,) = kept.folds(FoldKind.HANDOVER)
    assert fold.model == "main"
    assert fold.asked == "the names of the files"


async def test_an_empty_text_leaves_the_summary_to_a_model(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    loaded = extension(where, write_extension, write="return '  '")
    kept = await folding_with_extension(**FULL)
    await worked(kept, 20, 400)
    await kept.settled()
    assert kept.folds(FoldKind.HANDOVER)[0].model == "main"
    assert loaded.running[0].failures.total() == 0


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_it_chooses_and_writes_every_word_comes_back(
    seed: int, where: ProgramFolders, write_extension: WriteExtension
) -> None:
    write_extension("dice", code_of_random_strategy(seed))
    load(allow(where, "dice"))
    played = await play_beside_none(seed)
    assert played.problem == ""
    assert played.summaries > 0


async def test_the_example_package_summarizes_without_a_model(
    where: ProgramFolders, install: Install
) -> None:
    install(PACKAGES / "plain_summary")
    loaded = load(allow(where, "plain-summary"))
    assert check_fold_strategy(loaded.running[0].declared.fold_strategies[0]) == []
    kept = await folding_with_extension(**FULL)
    await worked(kept, 20, 400)
    await kept.settled()
    (fold,) = kept.folds(FoldKind.HANDOVER)
    assert fold.model == "Plain summaries (extension)"
    assert 'read: {"path": "a.py"}' in fold.text
    assert "- [4] Please look around." in fold.text
    assert kept.writers["main"].requests == []


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("[ExtensionFoldStrategy('a b', write=write)]", "letters, digits"),
        ("[ExtensionFoldStrategy('a')]", "neither `choose` nor `write`"),
        ("[ExtensionFoldStrategy('a', write=write, limit_seconds=61)]", "at most 60"),
        ("[ExtensionFoldStrategy('a', write=write)] * 2", "declares the fold strategy a twice"),
        ("[write]", "is no ExtensionFoldStrategy"),
    ],
)
def test_a_wrong_declaration_of_a_strategy_is_off(
    declared: str, said: str, where: ProgramFolders, write_extension: WriteExtension
) -> None:
    code = CODE.format(choose="pass", write="pass", functions="write=write, ")
    code += f"extension = Extension('Digest', fold_strategies={declared})"
    write_extension("digest", code)
    assert said in load(allow(where, "digest")).complaints[0]
    assert list_added_fold_strategies() == []
