"""Builds the text of a fold over a span from what a model wrote, the details it left
out, and where the rest is.
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
MOST_NAMED, HASH_DIGITS = 12, 12
CUT_OFF = "[… cut off here: the summary was too long]"


LONGEST_TOKEN = (
    12  # No token has more characters, so long sections are cut before their tokens are counted.
)


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
    room = min(making.critical, making.limit // 2)
    state = _fit_state(making, tokens)
    named = _format_list_of_newest_outputs(making, tokens)
    taken = room + tokens.count_tokens(named) + tokens.count_tokens(state)
    shortened = _shorten_sections(written, making.limit - taken, tokens)
    body = "\n".join([state, *shortened.values()])
    lacking = conversation_details.find_missing_critical_details(making.found, body)
    added = conversation_details.choose_fitting_details(lacking, room, tokens)
    whole = _assemble_document(making, [state, named], shortened, added)
    critical = sum(detail.is_critical for detail in making.found)
    in_text = critical - len(lacking)
    rest = critical - in_text - len(added)
    return FoldDocument(
        whole, tokens.count_tokens(whole), DetailsKept(critical, in_text, len(added), rest)
    )


def format_document_header(making: DocumentPlan) -> str:
    """Return the first lines, which say what the document replaces and how to get the originals."""
    span = making.plan.span
    sources = f'every message: recall_history("{making.fold}"); details: recall_cached_content("{making.entry.hex}")'
    strategy = STRATEGIES[making.plan.kind]
    if not strategy.sections:
        return f"{strategy.title}\n{NOTES} They cover the numbers {span.first} to {span.last}; {sources}."
    return f"{strategy.title}\n{strategy.name(making.number)}. {NOTES} It covers the numbers {span.first} to {span.last}; {sources}."


def _format_list_of_newest_outputs(making: DocumentPlan, tokens: TokenCounter) -> str:
    """List the newest outputs that the document replaces, newest first, with short hashes."""
    if not STRATEGIES[making.plan.kind].sections:
        return ""
    stored = [detail for detail in making.found if detail.kind == "stored"]
    lines: dict[str, str] = {}
    for detail in sorted(stored, key=lambda detail: detail.seq, reverse=True):
        name, _, about = detail.text.partition(" ")
        lines.setdefault(name, f"- {name[:HASH_DIGITS]} {about}")
    newest = list(lines.values())[:MOST_NAMED]
    while newest and tokens.count_tokens("\n".join(newest)) > making.limit // 8:
        newest.pop()
    return "\n".join([conversation_details.NEWEST_OUTPUTS, *newest]) if newest else ""


def _fit_state(making: DocumentPlan, tokens: TokenCounter) -> str:
    """Return the state of the work, without its last lines if there is little room."""
    lines = making.state.split("\n") if STRATEGIES[making.plan.kind].sections else []
    while len(lines) > 1 and tokens.count_tokens("\n".join(lines)) > making.limit // 3:
        lines.pop()
    return "\n".join(lines) if len(lines) > 1 else ""


def _assemble_document(
    making: DocumentPlan, above: Sequence[str], written: Mapping[str, str], added: Sequence[Detail]
) -> str:
    if not STRATEGIES[making.plan.kind].sections:
        kept = (
            [KEPT_HEADING, *map(conversation_details.format_document_line, added)] if added else []
        )
        return "\n".join([format_document_header(making), *written.values(), *kept])
    pieces = [format_document_header(making), *filter(None, above)]
    for name in handover.SECTIONS:
        belonging = (
            detail for detail in added if conversation_details.SECTION_OF[detail.kind] == name
        )
        mine = list(map(conversation_details.format_document_line, belonging))
        said = written.get(name, "") or ("" if mine else handover.NOTHING_TO_REPORT)
        lines = [f"## {name}", said, *([KEPT_HEADING, *mine] if mine else [])]
        pieces.append("\n".join(filter(None, lines)))
    return "\n\n".join(pieces)


def _shorten_sections(
    written: Mapping[str, str], limit: int, tokens: TokenCounter
) -> dict[str, str]:
    """Shorten sections to the limit. Long ones keep their share and end with a whole line."""
    written = {name: text[: limit * LONGEST_TOKEN] for name, text in written.items()}
    counts = {name: tokens.count_tokens(text) for name, text in written.items()}
    total = sum(counts.values())
    if total <= limit:
        return dict(written)
    return {
        name: _cut_section(text, max(40, limit * counts[name] // max(total, 1)), tokens)
        for name, text in written.items()
    }


def _cut_section(text: str, limit: int, tokens: TokenCounter) -> str:
    if tokens.count_tokens(text) <= limit:
        return text
    shown = text[: max(1, len(text) * limit // max(tokens.count_tokens(text), 1))]
    while tokens.count_tokens(shown) > limit and len(shown) > 1:
        shown = shown[: len(shown) * 9 // 10]
    end = shown.rfind("\n")
    return f"{shown[:end] if end > len(shown) // 2 else shown}\n{CUT_OFF}"
