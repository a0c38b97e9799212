"""Decides what is shown of a large output. Pure functions; `LargeOutputShortener` asks
the models.
"""

import re
from collections.abc import Collection, Mapping, Sequence

from helix_desktop.engine.context_policy import Policy
from helix_desktop.engine.facts import Stored, ToolReturned
from helix_desktop.engine.fold_economics import large_output_limit_tokens
from helix_desktop.engine.strategies.markers import format_size
from helix_desktop.errors import format_things
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import parse_json_or_none

COMPACT, PREVIEW, FULL = "compact", "preview", "full"
SHORT_CONTEXT = 8_000  # In a conversation of fewer tokens, command outputs have no special limit.
KEEP_WORDS = 500  # Questions to the model quote this many characters of a call's `keep`.
_CHOICE = re.compile(
    r"^[^\w\n]*(\d+)[^\w\n]+(compact|preview|full)\b[^\w\n]*(.*)$", re.IGNORECASE | re.MULTILINE
)
_THING = r"(?: of)?(?: it| the| this| its)?(?: file| output| content| contents| text| page| document| source| code| log)*"
_ALL = re.compile(
    rf"(?:please )?(?:keep |show )?(?:all|everything|(?:the )?(?:whole|entire|full)){_THING}",
    re.IGNORECASE,
)
_COMMAND = re.compile(r"bash|shell|terminal|exec|command|console|(^|_)run(_|$)", re.IGNORECASE)
_FENCE = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class OutputChoice:
    """What to show of one output. `keep`: the instructions for a compaction."""

    what: str
    keep: str = ""


def is_command_output(returned: ToolReturned, tool: str) -> bool:
    """Whether a command printed this output, which nobody asked to have in full."""
    return returned.exit_code is not None or bool(_COMMAND.search(tool))


def find_command_outputs_to_limit(
    batch: Sequence[ToolReturned], tools: Sequence[str], used: int, window: int, head: int = 0
) -> list[int]:
    """Return the indexes of the outputs for which the limit for commands holds. In a short
    conversation, it holds for none, because the conversation may end before shortening pays.
    `head`: the tokens of system prompt and tools, which do not make a conversation long.
    """
    short = min(SHORT_CONTEXT, window // 4)
    if used - (head if head >= short else 0) < short:
        return []
    return [
        index
        for index, (one, tool) in enumerate(zip(batch, tools, strict=True))
        if is_command_output(one, tool)
    ]


def find_outputs_to_shorten(
    batch: Sequence[ToolReturned],
    policy: Policy,
    window: int,
    factor: float,
    commands: Collection[int] = (),
) -> list[int]:
    """Return the indexes of outputs above their limit, and the largest others until the
    batch is below its limit.
    """
    sizes = {index: returned.tokens * factor for index, returned in enumerate(batch)}
    limit = large_output_limit_tokens(window, policy.admission_tokens)
    of_command = min(limit, large_output_limit_tokens(window, policy.admission_command_tokens))
    large = [
        index
        for index, tokens in sizes.items()
        if tokens > (of_command if index in commands else limit)
    ]
    rest = sum(tokens for index, tokens in sizes.items() if index not in large)
    for index in sorted(sizes, key=lambda i: -sizes[i]):
        if rest <= limit * policy.admission_batch_tokens / policy.admission_tokens:
            break
        if index not in large and sizes[index] > policy.preview_tokens:
            large.append(index)
            rest -= sizes[index]
    return sorted(large)


def most_tokens_always_shown_whole(policy: Policy, window: int) -> int:
    """Return up to how many tokens any batch of outputs is shown whole."""
    if policy.admission == "off":
        return window
    tokens = (
        policy.admission_tokens,
        policy.admission_command_tokens,
        policy.admission_batch_tokens,
    )
    return large_output_limit_tokens(window, min(tokens))


def format_excerpt(stored: Stored, tokens: int, text: str, *, asked: str = "") -> str:
    """Return what replaces a large text: where the whole is, then a preview or compaction."""
    lines = f"{format_things(stored.lines, 'line', 'lines')}, " if stored.lines else ""
    how = f"compacted: {' '.join(asked.split())[:KEEP_WORDS]}" if asked else "preview"
    whole = f'recall_cached_content("{stored.digest.hex}")'
    return f"[EXCERPT of {tokens:,} tokens, {lines}{format_size(stored)} ({how}); the whole: {whole}]\n{text}"


def output_choice_question(
    previews: Mapping[int, tuple[str, str]], may_be_full: Sequence[int]
) -> str:
    """Return the question about a batch. `previews`: by number, each with its call."""
    listed = "\n\n".join(
        f"Output {number}, of {call}:\n{text}" for number, (call, text) in previews.items()
    )
    full = (
        f"\n`<number>: full` — only for {', '.join(map(str, may_be_full))}" if may_be_full else ""
    )
    return (
        "Some outputs of your last calls are long. They are stored and can be recalled by hash at any time. Choose for "
        "each what you need to see now, one line each, and nothing else:\n"
        "`<number>: compact: <what you need from it>` — a fast model reads the whole and keeps that\n"
        f"`<number>: preview` — what is shown below is enough{full}\n\n{listed}"
    )


def parse_output_choices(
    answer: str, numbers: Sequence[int], may_be_full: Sequence[int]
) -> dict[int, OutputChoice]:
    """Return the model's choices. An unreadable or forbidden one means a preview."""
    read = _choices_from_json(answer) or _choices_from_lines(answer)
    chosen = {number: read.get(number, OutputChoice(PREVIEW)) for number in numbers}
    return {
        number: OutputChoice(PREVIEW)
        if (choice.what == FULL and number not in may_be_full)
        or (choice.what == COMPACT and not choice.keep)
        else choice
        for number, choice in chosen.items()
    }


def _choices_from_lines(answer: str) -> dict[int, OutputChoice]:
    return {
        int(number): OutputChoice(what.lower(), keep.strip(" `\"'."))
        for number, what, keep in _CHOICE.findall(answer[:50_000])
    }


def _choices_from_json(answer: str) -> dict[int, OutputChoice]:
    """Parse choices in JSON, as some models answer: `{"1": "preview"}`, or a list of objects."""
    fenced = _FENCE.search(answer)
    value = parse_json_or_none(fenced.group(1) if fenced else answer)
    if isinstance(value, dict):
        lines = [f"{number}: {choice}" for number, choice in value.items()]
        return _choices_from_lines("\n".join(lines))
    if isinstance(value, list):
        rows = [row for row in value if isinstance(row, dict)]
        lines = [
            f"{row.get('number', row.get('output', ''))}: {row.get('choice', '')}: {row.get('keep', '')}"
            for row in rows
        ]
        return _choices_from_lines("\n".join(lines))
    return {}


def asks_for_everything(keep_argument: str) -> bool:
    return bool(_ALL.fullmatch(keep_argument.strip(" .!\"'")))


def compaction_question(call: str, keep: str, limit: int) -> str:
    """Return the question to the fast model about one output."""
    return (
        f"The material is the output of {call}. Write down what is needed from it: {keep}\n"
        f"Keep paths, names, numbers and error messages word for word. At most {limit * 3 // 5} words; if it is not in "
        "the material, say so."
    )
