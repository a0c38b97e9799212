"""Renders part of a conversation as text for a model's summary, for collecting details,
or for a recall.

Such a part, a span, is a run of neighbouring messages. A writer reads what the view shows, so a
summary costs no more than the context. Details are collected from the originals.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from datetime import UTC, datetime

from helix_desktop.engine import facts
from helix_desktop.engine.agent_additions import split_off_agent_additions
from helix_desktop.engine.conversation_details import Detail, DetailSource
from helix_desktop.engine.messages import Block, Role
from helix_desktop.engine.ports import ContentReader
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state.branch import ConversationBranch
from helix_desktop.engine.state.view_items import ViewItem
from helix_desktop.engine.strategies.markers import call_answered_by, describe_output
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.engine.tool_result_reading import parse_call_arguments
from helix_desktop.engine.view_contents import content_for_model
from helix_desktop.errors import CacheCorrupt, NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import text_at

MOST_BYTES = 2 << 20  # Only the beginning and the end of an output with more bytes are read.
BATCH = 200  # How many messages are gathered before other tasks may run.
SHORT_BYTES = 8_000  # Outputs of up to so many bytes are read together.
LEAST_HASH_DIGITS = 4
# Another agent calls this tool by a longer name, such as mcp__helix__recall_cached_content.
_RECALLING = (str(ToolName.RECALL), str(ToolName.COMPACT_CACHE))
GONE = "[not available any more]"


@dataclass(frozen=True, slots=True)
class SpanText:
    """A piece of a span's text, and about how many tokens it has."""

    text: str
    tokens: int


async def read_stored_text(cache: ContentReader, stored: facts.Stored) -> str:
    """Return an entry's text, the beginning and end of a long one, or a sentence if it is lost."""
    try:
        if stored.size > MOST_BYTES:
            return await _read_both_ends(cache, stored)
        content = content_for_model(stored, await cache.read_content(stored.digest))
    except (NotFound, CacheCorrupt):
        return GONE
    if isinstance(content, str):
        return content
    return f"[a picture, {stored.media_type}]"


async def _read_both_ends(cache: ContentReader, stored: facts.Stored) -> str:
    """Return three parts of the beginning and one of the end, of the bytes that may be read."""
    tail_bytes = MOST_BYTES // 4
    head = await cache.read_range(stored.digest, 0, MOST_BYTES - tail_bytes)
    tail = await cache.read_range(stored.digest, stored.size - tail_bytes, tail_bytes)
    return head.decode("utf-8", "replace") + "\n[…]\n" + tail.decode("utf-8", "replace")


async def read_span_texts(
    branch: ConversationBranch,
    items: Iterable[ViewItem],
    cache: ContentReader,
    *,
    dated: bool = False,
) -> AsyncIterator[SpanText]:
    """Yield what the model is shown of each item as text: of a message, or of a document that
    stands for several. Each line begins with its number. `dated`: also with the minute.
    """
    for item in items:
        label = _label_item(branch, item, dated=dated)
        rows = []
        for block in item.blocks:
            text = await _text_of_block(branch, block, cache)
            if text:
                rows.append(f"{label} {text}")
        yield SpanText("\n".join(rows), item.tokens)


def _label_item(branch: ConversationBranch, item: ViewItem, *, dated: bool) -> str:
    """Return the number of an item's message, or the first and last number of a document's."""
    if item.first == item.last:
        numbers = f"[{item.first}]"
    else:
        numbers = f"[{item.first}–{item.last}]"
    if not dated or not branch.has_message(item.first):
        return numbers
    minute = datetime.fromtimestamp(branch.message_at(item.first).time, UTC)
    return f"{numbers} {minute:%Y-%m-%d %H:%M}"


async def _text_of_block(branch: ConversationBranch, block: Block, cache: ContentReader) -> str:
    """Return a block as text with a word on who said it, or nothing for reasoning."""
    match block.content:
        case facts.Text(text=text):
            return _label_text(branch, block, text)
        case facts.ToolCall(name=name, arguments=arguments):
            return f"call of {name}: {arguments}"
        case facts.Stored() as stored:
            output = await read_stored_text(cache, stored)
            return f"output{_call_suffix(branch, block)}:\n{output}"
        case facts.Attachment(name=name, stored=stored):
            attached_text = await read_stored_text(cache, stored)
            return f"user attached {name}:\n{attached_text}"
    return ""


def _label_text(branch: ConversationBranch, block: Block, text: str) -> str:
    if block.role is Role.TOOL:
        return f"output{_call_suffix(branch, block)}:\n{text}"
    if block.fold:
        return text
    return f"{block.role}: {text}"


def _call_suffix(branch: ConversationBranch, block: Block) -> str:
    """Return " of" and the tool whose output a block is, if that is known."""
    pending_call = branch.calls.get(block.call)
    if pending_call is None:
        return ""
    return f" of {pending_call.call.name}"


async def read_detail_sources(
    branch: ConversationBranch, seqs: list[int], cache: ContentReader
) -> list[DetailSource]:
    """Return the original messages and outputs, in which details are looked for, except what the
    user has excluded.
    """
    sources: list[DetailSource] = []
    for start in range(0, len(seqs), BATCH):
        await asyncio.sleep(0)  # Lets other tasks run.
        messages = [branch.message_at(seq) for seq in seqs[start : start + BATCH]]
        short_texts = await read_short_outputs(messages, cache)
        for message in messages:
            seq = message.seq
            fact = message.fact
            if isinstance(fact, facts.ModelReplied):
                sources += sources_of_reply(branch, seq, fact)
            elif isinstance(fact, facts.UserSaid) and not fact.by:
                # The program's own notes stay in the view.
                sources += await _sources_of_user_message(branch, seq, fact, cache)
            elif isinstance(fact, facts.ToolReturned):
                if branch.is_excluded(facts.PartRef(seq)):
                    continue
                text = short_texts.get(fact.output, "")
                if not text:
                    text = await read_stored_text(cache, fact.output)
                sources.append(_source_of_output(branch, seq, fact, text))
    return sources


async def read_short_outputs(
    messages: Iterable[facts.Recorded], cache: ContentReader
) -> Mapping[facts.Stored, str]:
    """Return the texts of short outputs. Facts of a long history do not hold them, so
    they are read together.
    """
    results = [message.fact for message in messages if isinstance(message.fact, facts.ToolReturned)]
    digests_to_read = set()
    for result in results:
        if not result.head and result.output.size <= SHORT_BYTES:
            digests_to_read.add(result.output.digest)
    contents: Mapping[Digest, bytes] = {}
    if digests_to_read:
        contents = await cache.read_contents(digests_to_read)
    texts: dict[facts.Stored, str] = {}
    for result in results:
        stored = result.output
        text = result.head or content_for_model(stored, contents.get(stored.digest, b""))
        if isinstance(text, str) and text:
            texts[stored] = text
    return texts


def _source_of_output(
    branch: ConversationBranch, seq: int, fact: facts.ToolReturned, text: str
) -> DetailSource:
    """Return an output as a source of details, with what the model saw of it if not all."""
    tool = ""
    call = call_answered_by(branch, seq)
    if call is not None:
        tool = call.name
    return DetailSource(
        seq,
        "output",
        text,
        tool,
        ok=fact.ok and not fact.exit_code,
        changes=fact.changes,
        excerpt=branch.excerpt_shown_instead(seq),
    )


async def _sources_of_user_message(
    branch: ConversationBranch, seq: int, fact: facts.UserSaid, cache: ContentReader
) -> list[DetailSource]:
    """Return the user's own words, and apart from them what an agent's program added."""
    shown_parts = _parts_not_excluded(branch, seq, fact)
    own_words, additions = split_off_agent_additions(shown_parts)
    own_texts: list[str] = []
    if own_words:
        own_texts.append(own_words)
    added_texts = [text for _, text in additions if text]

    # An attachment is an addition, too, if it is among them by the number of its part.
    added_numbers = {number for number, _ in additions}
    names: list[str] = []
    for number, part in enumerate(shown_parts):
        if isinstance(part, facts.Text):
            continue
        names.append(f"{part.name} {part.stored.digest.hex}")
        if not part.stored.media_type.startswith("text/"):
            continue
        text_of_attachment = await read_stored_text(cache, part.stored)
        if number in added_numbers:
            added_texts.append(text_of_attachment)
        else:
            own_texts.append(text_of_attachment)

    own_text = "\n".join(own_texts)
    own_source = DetailSource(seq, "user", own_text, names=tuple(names))
    if not added_texts:
        return [own_source]
    added_text = "\n".join(added_texts)
    added_source = DetailSource(seq, "addition", added_text)
    # A message that is an addition alone is no message of the user.
    if not own_texts and not names:
        return [added_source]
    return [own_source, added_source]


def _parts_not_excluded(
    branch: ConversationBranch, seq: int, fact: facts.UserSaid
) -> list[facts.UserPart]:
    parts = []
    for index, part in enumerate(fact.parts):
        if not branch.is_excluded(facts.PartRef(seq, index)):
            parts.append(part)
    return parts


def sources_of_reply(
    branch: ConversationBranch, seq: int, fact: facts.ModelReplied
) -> Iterator[DetailSource]:
    """Yield what a reply says and calls, without its reasoning and what the user excluded."""
    for index, part in enumerate(fact.parts):
        if isinstance(part, facts.Reasoning):
            continue
        if branch.is_excluded(facts.PartRef(seq, index)):
            continue
        if isinstance(part, facts.ToolCall):
            yield DetailSource(seq, "call", part.arguments, part.name)
        else:
            yield DetailSource(seq, "assistant", part.text)


def details_of_stored_entries(branch: ConversationBranch, seqs: list[int]) -> Iterator[Detail]:
    """Yield every entry that the messages refer to, so that its hash can be recalled."""
    for seq in seqs:
        match branch.message_at(seq).fact:
            case facts.ToolReturned() as result:
                description = _describe_stored_output(branch, seq)
                yield Detail("stored", f"{result.output.digest.hex} {description}", seq)
                for picture in result.images:
                    yield Detail("stored", f"{picture.digest.hex} picture", seq)
            case facts.UserSaid(parts=parts):
                for part in parts:
                    if isinstance(part, facts.Attachment):
                        text = f"{part.stored.digest.hex} attachment {part.name}"
                        yield Detail("stored", text, seq)


def _describe_stored_output(branch: ConversationBranch, seq: int) -> str:
    """Describe an output. What was recalled is described by the output that it is a part of."""
    description = describe_output(branch, seq)
    call = call_answered_by(branch, seq)
    if call is None or not call.name.endswith(_RECALLING):
        return description
    asked_hash = text_at(parse_call_arguments(call.arguments), "sha256").lower()
    seq_of_original = _seq_of_output_with_hash(branch, asked_hash, before=seq)
    if not seq_of_original:
        return description
    return f"part of {describe_output(branch, seq_of_original)}"


def _seq_of_output_with_hash(branch: ConversationBranch, prefix: str, *, before: int) -> int:
    """Return the last output before a message whose hash begins so, or 0."""
    if len(prefix) < LEAST_HASH_DIGITS:
        return 0
    for seq in reversed(branch.order[: branch.message_position(before)]):
        fact = branch.message_at(seq).fact
        if isinstance(fact, facts.ToolReturned) and fact.output.digest.hex.startswith(prefix):
            return seq
    return 0
