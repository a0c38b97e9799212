"""Builds the text of a fold over a span from what a model wrote, the details it left
out, and where the rest is.

A fold over a span is a document that the model sees in place of older messages, such as
a handover's summary.
"""

from collections.abc import Mapping, Sequence

from helix_desktop.engine import conversation_details
from helix_desktop.engine.conversation_details import KEPT_HEADING, Detail
from helix_desktop.engine.facts import DetailsKept
from helix_desktop.engine.ports import TokenCounter
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.strategies import handover
from helix_desktop.engine.strategies.all_strategies import STRATEGIES
from helix_desktop.engine.strategies.fold_strategy import FoldPlan
from helix_desktop.fast_dataclass import dataclass

NOTES = "Notes about the past, not instructions."
MOST_NAMED = 12  # A document lists this many of the newest outputs.
HASH_DIGITS = 12
CUT_OFF = "[… cut off here: the summary was too long]"
# No token has more characters, so long sections are cut before their tokens are counted.
LONGEST_TOKEN = 12
LEAST_SECTION = 40  # A section that must be cut keeps at least this many tokens.


@dataclass(frozen=True, slots=True)
class FoldDocument:
    """A fold's text, its tokens, and what became of the details."""

    text: str
    tokens: int
    kept: DetailsKept


@dataclass(frozen=True, slots=True)
class DocumentPlan:
    """What a document is made from, besides the text. `limit`: the most tokens of it all."""

    plan: FoldPlan
    fold: str
    number: int
    found: Sequence[Detail]
    entry: Digest
    critical: int
    limit: int
    index: tuple[Digest, ...] = ()  # The entry of names that the model never saw, if there are any.
    state: str = ""  # What the record says of the state of the work.


def build_fold_document(
    making: DocumentPlan, written: Mapping[str, str], tokens: TokenCounter
) -> FoldDocument:
    """Build the text, in sections or as a list, with the details that are missing."""
    room_for_details = min(making.critical, making.limit // 2)
    state = _fit_state(making, tokens)
    newest_outputs = _format_list_of_newest_outputs(making, tokens)
    room_for_sections = making.limit - room_for_details
    room_for_sections -= tokens.count_tokens(newest_outputs) + tokens.count_tokens(state)
    shortened = _shorten_sections(written, room_for_sections, tokens)
    body = "\n".join([state, *shortened.values()])
    missing = conversation_details.find_missing_critical_details(making.found, body)
    added = conversation_details.choose_fitting_details(missing, room_for_details, tokens)
    if STRATEGIES[making.plan.kind].sections:
        text = _assemble_sections(making, [state, newest_outputs], shortened, added)
    else:
        text = _assemble_list(making, shortened, added)
    critical = sum(detail.is_critical for detail in making.found)
    kept = DetailsKept(
        critical,
        critical - len(missing),
        len(added),
        len(missing) - len(added),
    )
    return FoldDocument(text, tokens.count_tokens(text), kept)


def format_document_header(making: DocumentPlan) -> str:
    """Return the first lines, which say what the document replaces and how to get the originals."""
    span = making.plan.span
    numbers = f"the numbers {span.first} to {span.last}"
    messages = f'every message: recall_history("{making.fold}")'
    details = f'details: recall_cached_content("{making.entry.hex}")'
    strategy = STRATEGIES[making.plan.kind]
    if not strategy.sections:
        return f"{strategy.title}\n{NOTES} They cover {numbers}; {messages}; {details}."
    name = strategy.name(making.number)
    return f"{strategy.title}\n{name}. {NOTES} It covers {numbers}; {messages}; {details}."


def _format_list_of_newest_outputs(making: DocumentPlan, tokens: TokenCounter) -> str:
    """List the newest outputs that the document replaces, newest first, with short hashes."""
    if not STRATEGIES[making.plan.kind].sections:
        return ""
    outputs = [detail for detail in making.found if detail.kind == "stored"]
    outputs.sort(key=lambda detail: detail.seq, reverse=True)
    line_of_hash: dict[str, str] = {}
    for detail in outputs:
        digits, _, about = detail.text.partition(" ")
        line_of_hash.setdefault(digits, f"- {digits[:HASH_DIGITS]} {about}")
    lines = list(line_of_hash.values())[:MOST_NAMED]
    while lines and tokens.count_tokens("\n".join(lines)) > making.limit // 8:
        lines.pop()
    if not lines:
        return ""
    return "\n".join([conversation_details.NEWEST_OUTPUTS, *lines])


def _fit_state(making: DocumentPlan, tokens: TokenCounter) -> str:
    """Return the state of the work, without its last lines if there is little room."""
    if not STRATEGIES[making.plan.kind].sections:
        return ""
    lines = making.state.split("\n")
    while len(lines) > 1 and tokens.count_tokens("\n".join(lines)) > making.limit // 3:
        lines.pop()
    # The first line is the heading.
    if len(lines) == 1:
        return ""
    return "\n".join(lines)


def _assemble_list(
    making: DocumentPlan, written: Mapping[str, str], added: Sequence[Detail]
) -> str:
    """Return a document without sections, such as observations."""
    lines = [format_document_header(making)]
    lines += written.values()
    if added:
        lines.append(KEPT_HEADING)
        lines += map(conversation_details.format_document_line, added)
    return "\n".join(lines)


def _assemble_sections(
    making: DocumentPlan, above: Sequence[str], written: Mapping[str, str], added: Sequence[Detail]
) -> str:
    """Return a document with six sections. `above`: what stands before the first one."""
    pieces = [format_document_header(making)]
    pieces += filter(None, above)
    for name in handover.SECTIONS:
        kept_lines = []
        for detail in added:
            if conversation_details.SECTION_OF[detail.kind] == name:
                kept_lines.append(conversation_details.format_document_line(detail))
        text = written.get(name, "")
        lines = [f"## {name}"]
        if text:
            lines.append(text)
        if kept_lines:
            lines.append(KEPT_HEADING)
            lines += kept_lines
        if len(lines) == 1:
            lines.append(handover.NOTHING_TO_REPORT)
        pieces.append("\n".join(lines))
    return "\n\n".join(pieces)


def _shorten_sections(
    written: Mapping[str, str], limit: int, tokens: TokenCounter
) -> dict[str, str]:
    """Shorten sections to the limit. Long ones keep their share and end with a whole line."""
    beginnings = {name: text[: limit * LONGEST_TOKEN] for name, text in written.items()}
    counts = {name: tokens.count_tokens(text) for name, text in beginnings.items()}
    total = sum(counts.values())
    if total <= limit:
        return beginnings
    shortened = {}
    for name, text in beginnings.items():
        share = limit * counts[name] // max(total, 1)
        shortened[name] = _cut_section(text, max(LEAST_SECTION, share), tokens)
    return shortened


def _cut_section(text: str, limit: int, tokens: TokenCounter) -> str:
    counted = tokens.count_tokens(text)
    if counted <= limit:
        return text
    fitting = len(text) * limit // max(counted, 1)
    beginning = text[: max(1, fitting)]
    while tokens.count_tokens(beginning) > limit and len(beginning) > 1:
        beginning = beginning[: len(beginning) * 9 // 10]
    end_of_line = beginning.rfind("\n")
    if end_of_line > len(beginning) // 2:
        beginning = beginning[:end_of_line]
    return f"{beginning}\n{CUT_OFF}"
