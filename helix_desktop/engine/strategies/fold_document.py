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

    fold_plan: FoldPlan
    fold: str  # The name that the fold will have.
    number: int  # How many documents of this kind there are with this one.
    details: Sequence[Detail]
    entry: Digest  # The cache entry that has all details.
    critical: int  # How many tokens critical details may have.
    limit: int
    index: tuple[Digest, ...] = ()  # The entry of names that the model never saw, if there are any.
    state: str = ""  # What the record says of the state of the work.


def build_fold_document(
    plan: DocumentPlan, sections: Mapping[str, str], tokens: TokenCounter
) -> FoldDocument:
    """Build the text that stands in place of older messages, within the tokens of the plan.

    What the program adds comes first: the state of the work and a list of the newest outputs.
    What the model wrote (`sections`, by heading) is shortened to the rest of the tokens. Details
    that it lacks are added, most important first.
    """
    state = _fit_state(plan, tokens)
    newest_outputs = _format_list_of_newest_outputs(plan, tokens)
    tokens_for_details = min(plan.critical, plan.limit // 2)
    tokens_above = tokens.count_tokens(newest_outputs) + tokens.count_tokens(state)
    tokens_for_sections = plan.limit - tokens_for_details - tokens_above
    short_sections = _shorten_sections(sections, tokens_for_sections, tokens)

    parts_of_body = [state]
    parts_of_body += short_sections.values()
    body = "\n".join(parts_of_body)
    missing_details = conversation_details.find_missing_critical_details(plan.details, body)
    added_details = conversation_details.choose_fitting_details(
        missing_details, tokens_for_details, tokens
    )
    if STRATEGIES[plan.fold_plan.kind].sections:
        text = _assemble_sections(plan, [state, newest_outputs], short_sections, added_details)
    else:
        text = _assemble_list(plan, short_sections, added_details)

    critical_count = sum(detail.is_critical for detail in plan.details)
    missing_count = len(missing_details)
    added_count = len(added_details)
    # How many critical details there are, how many of them the model's text has, how many were
    # added to it, and how many there was no room for.
    kept = DetailsKept(
        critical_count,
        critical_count - missing_count,
        added_count,
        missing_count - added_count,
    )
    return FoldDocument(text, tokens.count_tokens(text), kept)


def format_document_header(plan: DocumentPlan) -> str:
    """Return the first lines, which say what the document replaces and how to get the originals."""
    span = plan.fold_plan.span
    numbers = f"the numbers {span.first} to {span.last}"
    messages = f'every message: recall_history("{plan.fold}")'
    details = f'details: recall_cached_content("{plan.entry.hex}")'
    strategy = STRATEGIES[plan.fold_plan.kind]
    if not strategy.sections:
        return f"{strategy.title}\n{NOTES} They cover {numbers}; {messages}; {details}."
    name = strategy.name(plan.number)
    return f"{strategy.title}\n{name}. {NOTES} It covers {numbers}; {messages}; {details}."


def _format_list_of_newest_outputs(plan: DocumentPlan, tokens: TokenCounter) -> str:
    """List the newest outputs that the document replaces, newest first, with short hashes."""
    if not STRATEGIES[plan.fold_plan.kind].sections:
        return ""
    outputs = [detail for detail in plan.details if detail.kind == "stored"]
    outputs.sort(key=lambda detail: detail.seq, reverse=True)
    line_by_hash: dict[str, str] = {}
    for detail in outputs:
        digits, _, description = detail.text.partition(" ")
        line_by_hash.setdefault(digits, f"- {digits[:HASH_DIGITS]} {description}")
    lines = list(line_by_hash.values())[:MOST_NAMED]
    while lines and tokens.count_tokens("\n".join(lines)) > plan.limit // 8:
        lines.pop()
    if not lines:
        return ""
    return "\n".join([conversation_details.NEWEST_OUTPUTS, *lines])


def _fit_state(plan: DocumentPlan, tokens: TokenCounter) -> str:
    """Return the state of the work, without its last lines if there is little room."""
    if not STRATEGIES[plan.fold_plan.kind].sections:
        return ""
    lines = plan.state.split("\n")
    while len(lines) > 1 and tokens.count_tokens("\n".join(lines)) > plan.limit // 3:
        lines.pop()
    # The first line is the heading.
    if len(lines) == 1:
        return ""
    return "\n".join(lines)


def _assemble_list(
    plan: DocumentPlan, sections: Mapping[str, str], added_details: Sequence[Detail]
) -> str:
    """Return a document without sections, such as observations."""
    lines = [format_document_header(plan)]
    lines += sections.values()
    if added_details:
        lines.append(KEPT_HEADING)
        lines += map(conversation_details.format_document_line, added_details)
    return "\n".join(lines)


def _assemble_sections(
    plan: DocumentPlan,
    texts_above: Sequence[str],
    sections: Mapping[str, str],
    added_details: Sequence[Detail],
) -> str:
    """Return a document with six sections. `texts_above`: what stands before the first one."""
    pieces = [format_document_header(plan)]
    pieces += filter(None, texts_above)
    for name in handover.SECTIONS:
        details_of_section = []
        for detail in added_details:
            if conversation_details.SECTION_OF[detail.kind] == name:
                details_of_section.append(detail)
        pieces.append(_format_section(name, sections.get(name, ""), details_of_section))
    return "\n\n".join(pieces)


def _format_section(name: str, text: str, details: Sequence[Detail]) -> str:
    """Return a section: its heading, the model's text, and the details that this lacks."""
    lines = [f"## {name}"]
    if text:
        lines.append(text)
    if details:
        lines.append(KEPT_HEADING)
        lines += map(conversation_details.format_document_line, details)
    if not text and not details:
        lines.append(handover.NOTHING_TO_REPORT)
    return "\n".join(lines)


def _shorten_sections(
    sections: Mapping[str, str], limit: int, tokens: TokenCounter
) -> dict[str, str]:
    """Shorten sections to the limit. Long ones keep their share and end with a whole line."""
    beginnings: dict[str, str] = {}
    token_counts: dict[str, int] = {}
    for name, text in sections.items():
        beginnings[name] = text[: limit * LONGEST_TOKEN]
        token_counts[name] = tokens.count_tokens(beginnings[name])
    all_tokens = sum(token_counts.values())
    if all_tokens <= limit:
        return beginnings

    short_sections: dict[str, str] = {}
    for name, text in beginnings.items():
        share = limit * token_counts[name] // max(all_tokens, 1)
        short_sections[name] = _cut_section(text, max(LEAST_SECTION, share), tokens)
    return short_sections


def _cut_section(text: str, limit: int, tokens: TokenCounter) -> str:
    """Return the beginning of a text, up to a line's end, with a note that it was cut off."""
    token_count = tokens.count_tokens(text)
    if token_count <= limit:
        return text
    # An estimate from the text's mean first, because counting takes long.
    estimated_characters = len(text) * limit // max(token_count, 1)
    beginning = text[: max(1, estimated_characters)]
    while tokens.count_tokens(beginning) > limit and len(beginning) > 1:
        beginning = beginning[: len(beginning) * 9 // 10]
    end_of_line = beginning.rfind("\n")
    if end_of_line > len(beginning) // 2:
        beginning = beginning[:end_of_line]
    return f"{beginning}\n{CUT_OFF}"
