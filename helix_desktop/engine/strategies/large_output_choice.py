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

COMPACT = "compact"
PREVIEW = "preview"
FULL = "full"
SHORT_CONTEXT = 8_000  # In a conversation of fewer tokens, command outputs have no special limit.
LONGEST_ANSWER = 50_000  # Only this many characters of a model's answer are read.
KEEP_CHARACTERS = 500  # An excerpt quotes this many characters of what was to be kept.
# A line of an answer, such as "1: compact: the errors" or "- **Output 2** - preview". What is to be
# kept may itself begin with a sign, as in "1: compact: /etc/hosts".
_CHOICE = re.compile(
    r"^[^\w\n]*(?:output )?(\d{1,9})[^\w\n]+(compact|preview|full)\b[ \t]*[:*`\"'.,)–—-]*(.*)$",
    re.IGNORECASE | re.MULTILINE,
)
# The end of "keep the whole file" or "show everything of this log".
_KIND_OF_CONTENT = r"(?: of)?(?: it| the| this| its)?(?: file| output| content| contents| text| page| document| source| code| log)*"
_ALL = re.compile(
    rf"(?:please )?(?:keep |show )?(?:all|everything|(?:the )?(?:whole|entire|full)){_KIND_OF_CONTENT}",
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
    most_tokens_of_short = min(SHORT_CONTEXT, window // 4)
    conversation_tokens = used
    if head >= most_tokens_of_short:
        conversation_tokens -= head
    if conversation_tokens < most_tokens_of_short:
        return []
    indexes = []
    for index, returned in enumerate(batch):
        if is_command_output(returned, tools[index]):
            indexes.append(index)
    return indexes


def find_outputs_to_shorten(
    batch: Sequence[ToolReturned],
    policy: Policy,
    window: int,
    factor: float,
    commands: Collection[int] = (),
) -> list[int]:
    """Return the indexes of the outputs that are too large to be shown whole.

    These are the outputs above the limit for one output, and then the largest others until what
    is left of the batch is below the limit for a batch. `commands`: the indexes of outputs with a
    lower limit, because a command printed them. `factor`: billed tokens for each counted one.
    """
    billed_tokens = [returned.tokens * factor for returned in batch]
    limit = large_output_limit_tokens(window, policy.admission_tokens)
    command_limit = large_output_limit_tokens(window, policy.admission_command_tokens)
    batch_limit = limit * policy.admission_batch_tokens / policy.admission_tokens
    large_indexes = []
    tokens_of_others = 0.0  # What the batch still takes up without its large outputs.
    for index, tokens in enumerate(billed_tokens):
        limit_of_output = limit
        if index in commands:
            limit_of_output = min(limit, command_limit)
        if tokens > limit_of_output:
            large_indexes.append(index)
        else:
            tokens_of_others += tokens

    # Of equals, the first comes first. Sorting keeps the order of equals.
    largest_first = sorted(range(len(batch)), key=billed_tokens.__getitem__, reverse=True)
    for index in largest_first:
        if tokens_of_others <= batch_limit:
            break
        if index not in large_indexes and billed_tokens[index] > policy.preview_tokens:
            large_indexes.append(index)
            tokens_of_others -= billed_tokens[index]
    return sorted(large_indexes)


def format_excerpt(stored: Stored, tokens: int, text: str, *, asked: str = "") -> str:
    """Return what replaces a large text: where the whole is, then a preview or compaction."""
    size = format_size(stored)
    if stored.lines:
        size = f"{format_things(stored.lines, 'line', 'lines')}, {size}"
    kind_of_excerpt = "preview"
    if asked:
        one_line = " ".join(asked.split())
        kind_of_excerpt = f"compacted: {one_line[:KEEP_CHARACTERS]}"
    recall = f'recall_cached_content("{stored.digest.hex}")'
    return (
        f"[EXCERPT of {tokens:,} tokens, {size} ({kind_of_excerpt}); the whole: {recall}]\n{text}"
    )


def output_choice_question(
    previews: Mapping[int, tuple[str, str]], may_be_full: Sequence[int]
) -> str:
    """Return the question about a batch. `previews`: by number, each with its call."""
    outputs = []
    for number, (call, preview) in previews.items():
        outputs.append(f"Output {number}, of {call}:\n{preview}")
    listed_outputs = "\n\n".join(outputs)
    choice_of_full = ""
    if may_be_full:
        numbers = ", ".join(map(str, may_be_full))
        choice_of_full = f"\n`<number>: full` — only for {numbers}"
    return (
        "Some outputs of your last calls are long. They are stored and can be recalled by hash at any time. Choose for "
        "each what you need to see now, one line each, and nothing else:\n"
        "`<number>: compact: <what you need from it>` — a fast model reads the whole and keeps that\n"
        f"`<number>: preview` — what is shown below is enough{choice_of_full}\n\n{listed_outputs}"
    )


def parse_output_choices(
    answer: str, numbers: Sequence[int], may_be_full: Sequence[int]
) -> dict[int, OutputChoice]:
    """Return the model's choices. An unreadable or forbidden one means a preview."""
    read_answer = answer[:LONGEST_ANSWER]
    choices_of_model = _choices_from_json(read_answer) or _choices_from_lines(read_answer)
    choices = {}
    for number in numbers:
        choice = choices_of_model.get(number, OutputChoice(PREVIEW))
        is_forbidden = choice.what == FULL and number not in may_be_full
        lacks_instructions = choice.what == COMPACT and not choice.keep
        if is_forbidden or lacks_instructions:
            choice = OutputChoice(PREVIEW)
        choices[number] = choice
    return choices


def _choices_from_lines(answer: str) -> dict[int, OutputChoice]:
    choices = {}
    for match in _CHOICE.finditer(answer):
        number = int(match[1])
        what = match[2].lower()
        keep = match[3].strip(" `\"'").rstrip(" `\"'.")
        choices[number] = OutputChoice(what, keep)
    return choices


def _choices_from_json(answer: str) -> dict[int, OutputChoice]:
    """Parse choices in JSON, as some models answer: `{"1": "preview"}`, `{"1": {"choice": …}}`,
    an object with its number, or a list of these.

    Each is rewritten as the line that was asked for, and then read like one.
    """
    text = answer
    fenced = _FENCE.search(answer)
    if fenced is not None:
        text = fenced.group(1)
    value = parse_json_or_none(text)

    lines: list[str] = []
    if isinstance(value, list):
        lines = [_line_of_numbered_choice(row) for row in value if isinstance(row, dict)]
    elif isinstance(value, dict) and "choice" in value:
        lines = [_line_of_numbered_choice(value)]
    elif isinstance(value, dict):
        lines = _lines_of_choices_by_number(value)
    return _choices_from_lines("\n".join(lines))


def _lines_of_choices_by_number(choices: Mapping[str, object]) -> list[str]:
    lines: list[str] = []
    for number, choice in choices.items():
        if isinstance(choice, dict):
            lines.append(_line_of_choice(number, choice))
        else:
            lines.append(f"{number}: {choice}")
    return lines


def _line_of_numbered_choice(row: Mapping[str, object]) -> str:
    """Return the line for an object that has the number of its output in it."""
    number = row.get("number", row.get("output", ""))
    return _line_of_choice(number, row)


def _line_of_choice(number: object, row: Mapping[str, object]) -> str:
    return f"{number}: {row.get('choice', '')}: {row.get('keep', '')}"


def asks_for_everything(keep_argument: str) -> bool:
    return bool(_ALL.fullmatch(keep_argument.strip(" .!\"'")))


def compaction_question(call: str, keep: str, limit: int) -> str:
    """Return the question to the fast model about one output."""
    return (
        f"The material is the output of {call}. Write down what is needed from it: {keep}\n"
        f"Keep paths, names, numbers and error messages word for word. At most {limit * 3 // 5} words; if it is not in "
        "the material, say so."
    )
