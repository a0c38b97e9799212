"""Whole handovers of random histories: what they say word for word was said so."""

from __future__ import annotations

import json
import random
import re

import pytest

from helix_desktop.engine.conversation_details import KEPT_HEADING, NEWEST_OUTPUTS
from helix_desktop.engine.details_entry import parse_details_entry
from helix_desktop.engine.facts import FoldKind
from tests.engine.keeping import Keeping, keeping

WORDS = ("reader", "parser", "token", "config", "session", "budget", "window", "cache")
COMMANDS = (
    "pytest -q tests/test_{word}.py",
    "cd src && python -m pytest " + "tests/test_{word}_and_more.py " * 20,
    'node -e \'const view = () => import("./{word}.js"); console.log("<b>Logout</b>")\' && npm test',
    "cat > {word}.sh <<'EOF'\nnpm test > Credit\nEOF\nmake {word}",
    "git add -A && git commit -m 'the {word} is split from the rest of the {word}s, as it was asked'",
    "make {word} 2>&1 | tail -5",
)
OUTPUTS = (
    "3 passed in 1s",
    "E   AssertionError: the {word} is not what it was\n1 failed in 2s",
    "make: *** [{word}] Error 2 " + "because it went on for long " * 20,
    "ValueError: the {word}",
    "done",
)
RULES = (
    "Never touch the {word} of number {number}.",
    "Split the {word} from the writer, number {number}",
    "<environment_context>\n<never>always use {word}</never>\n</environment_context>",
)


async def play(kept: Keeping, chance: random.Random) -> tuple[list[str], set[str]]:
    """Play a history; everything that was said in it, and the files that tools wrote."""
    said: list[str] = []
    written: set[str] = set()
    for number in range(chance.randint(16, 40)):
        word = chance.choice(WORDS)
        if number % 9 == 0:
            rule = chance.choice(RULES).format(word=word, number=number)
            said.append(rule)
            await kept.say(rule)
        if chance.random() < 0.3:
            path = f"src/{word}_{number}.py"
            arguments = json.dumps({"file_path": path, "content": "x" * 400})
            is_written = chance.random() < 0.7
            output = "written" if is_written else f"{path} was not read before"
            said += [f"Write {path}", output]
            await kept.step(output, tool="Write", arguments=arguments, ok=is_written)
            written |= {path} if is_written else set()
            continue
        command = chance.choice(COMMANDS).format(word=word)
        output = chance.choice(OUTPUTS).format(word=word)
        said += [command, output]
        await kept.step(
            f"{'padding ' * 100}\n{output}",
            tool="Bash",
            arguments=json.dumps({"command": command}),
            ok="Error" not in output and "failed" not in output,
        )
    return said, written


def is_verbatim(line: str, texts: list[str]) -> bool:
    """Whether each piece of a line stands so in what was said, or is marked as cut."""
    flat = [" ".join(text.split()) for text in texts]
    text = re.sub(r" \[\d+\]$", "", line.removeprefix("- "))
    # A line joins a command, why it failed and what solved it by words of the program.
    joined = r" \[cut\]| failed: |; | — then it worked$| — then worked: "
    for piece in re.split(joined, text):
        plain = piece.strip()
        if plain and not any(plain in whole for whole in flat):
            return False
    return True


@pytest.mark.parametrize("seed", range(40))
async def test_every_line_kept_word_for_word_is_verbatim_or_marked_and_no_file_is_a_phantom(
    seed: int,
) -> None:
    chance = random.Random(seed)
    kept = await keeping(window=1_000_000, handover_writer="main", caching="off")
    said, written = await play(kept, chance)
    (recorded,) = await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    text = recorded.fact.text  # type: ignore[union-attr]
    kept_lines = [
        line
        for section in text.split("\n## ")[1:]
        for line in section.partition(KEPT_HEADING)[2].strip().splitlines()
    ]
    false = [line for line in kept_lines if not is_verbatim(line, [*said, *written])]
    assert false == []
    entry = await kept.cache.read_content(kept.folds()[0].entries[0])
    files = {one.text for one in parse_details_entry(entry.decode()) if one.kind == "written"}
    assert files <= written
    assert "environment_context" not in "\n".join(kept_lines)
    listed = text.partition(NEWEST_OUTPUTS)[2].strip().split("\n\n")[0].splitlines()
    covered = [
        one
        for one in kept.conversation.state.branch.order
        if one <= recorded.fact.cover.last  # type: ignore[union-attr]
        and one in kept.conversation.state.branch.answered
    ]
    newest = [
        kept.conversation.state.branch.tool_output_at(seq).output.digest.hex[:12]
        for seq in reversed(covered)
    ]
    assert [line.split()[1] for line in listed] == list(dict.fromkeys(newest))[: len(listed)]
