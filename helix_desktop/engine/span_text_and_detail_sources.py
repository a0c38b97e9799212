"""Renders part of a conversation as text for a model's summary, for collecting details,
or for a recall.

A writer reads what the view shows, so a summary costs no more than the context. Details are
collected from the originals.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from datetime import UTC, datetime

from helix_desktop.engine import facts
from helix_desktop.engine.agent_additions import split_off_agent_additions
from helix_desktop.engine.conversation_details import Detail, DetailSource
from helix_desktop.engine.messages import Block, Role
from helix_desktop.engine.ports import ContentCache
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
    text: str
    tokens: int


async def read_stored_text(cache: ContentCache, stored: facts.Stored) -> str:
    """Return an entry's text, the beginning and end of a long one, or a sentence if it is lost."""
    try:
        if stored.size <= MOST_BYTES:
            content = content_for_model(stored, await cache.read_content(stored.digest))
            return content if isinstance(content, str) else f"[a picture, {stored.media_type}]"
        head = await cache.read_range(stored.digest, 0, MOST_BYTES * 3 // 4)
        tail = await cache.read_range(stored.digest, stored.size - MOST_BYTES // 4, MOST_BYTES // 4)
    except (NotFound, CacheCorrupt):
        return GONE
    return head.decode("utf-8", "replace") + "\n[…]\n" + tail.decode("utf-8", "replace")


async def read_span_texts(
    branch: ConversationBranch,
    items: Iterable[ViewItem],
    cache: ContentCache,
    *,
    dated: bool = False,
) -> AsyncIterator[SpanText]:
    """Yield what the view shows of each item. `dated`: with the minute of each message."""
    for item in items:
        said = [await _text_of_block(branch, block, cache) for block in item.blocks]
        where = f"[{item.first}]" if item.first == item.last else f"[{item.first}–{item.last}]"
        if dated and branch.has_message(item.first):
            where += (
                f" {datetime.fromtimestamp(branch.message_at(item.first).time, UTC):%Y-%m-%d %H:%M}"
            )
        yield SpanText("\n".join(f"{where} {text}" for text in said if text), item.tokens)


async def _text_of_block(branch: ConversationBranch, block: Block, cache: ContentCache) -> str:
    match block.content:
        case facts.Text(text=text) if block.role is Role.TOOL:
            return f"output{_call_suffix(branch, block)}:\n{text}"
        case facts.Text(text=text):
            return text if block.fold else f"{block.role}: {text}"
        case facts.ToolCall(name=name, arguments=arguments):
            return f"call of {name}: {arguments}"
        case facts.Stored() as stored:
            return f"output{_call_suffix(branch, block)}:\n{await read_stored_text(cache, stored)}"
        case facts.Attachment(name=name, stored=stored):
            return f"user attached {name}:\n{await read_stored_text(cache, stored)}"
        case _:
            return ""  # The text leaves out reasoning.


def _call_suffix(branch: ConversationBranch, block: Block) -> str:
    call = branch.calls.get(block.call)
    return f" of {call.call.name}" if call else ""


async def read_detail_sources(
    branch: ConversationBranch, seqs: list[int], cache: ContentCache
) -> list[DetailSource]:
    """Return the original messages and outputs, except what the user has excluded."""
    sources: list[DetailSource] = []
    for start in range(0, len(seqs), BATCH):
        await asyncio.sleep(0)  # Lets other tasks run.
        messages = [branch.message_at(seq) for seq in seqs[start : start + BATCH]]
        texts = await read_short_outputs(messages, cache)
        for message in messages:
            seq = message.seq
            match message.fact:
                case facts.ToolReturned() as result if not branch.is_excluded(facts.PartRef(seq)):
                    text = texts.get(result.output) or await read_stored_text(cache, result.output)
                    sources.append(_source_of_output(branch, seq, result, text))
                case facts.UserSaid(by="") as said:  # The program's notes stay in the view.
                    sources += await _sources_of_user_message(branch, seq, said, cache)
                case facts.ModelReplied() as reply:
                    sources += sources_of_reply(branch, seq, reply)
    return sources


async def read_short_outputs(
    messages: Iterable[facts.Recorded], cache: ContentCache
) -> Mapping[facts.Stored, str]:
    """Return the texts of short outputs. Facts of a long history do not hold them, so
    they are read together.
    """
    outputs = [message.fact for message in messages if isinstance(message.fact, facts.ToolReturned)]
    lacking = {
        result.output.digest
        for result in outputs
        if not result.head and result.output.size <= SHORT_BYTES
    }
    contents = await cache.read_contents(lacking) if lacking else {}
    texts: dict[facts.Stored, str] = {}
    for result in outputs:
        stored = result.output
        text = result.head or content_for_model(stored, contents.get(stored.digest, b""))
        if isinstance(text, str) and text:
            texts[stored] = text
    return texts


def _source_of_output(
    branch: ConversationBranch, seq: int, fact: facts.ToolReturned, text: str
) -> DetailSource:
    call = call_answered_by(branch, seq)
    ok = fact.ok and not fact.exit_code
    tool, excerpt = call.name if call else "", branch.excerpt_shown_instead(seq)
    return DetailSource(seq, "output", text, tool, ok, changes=fact.changes, excerpt=excerpt)


async def _sources_of_user_message(
    branch: ConversationBranch, seq: int, fact: facts.UserSaid, cache: ContentCache
) -> list[DetailSource]:
    """Return the user's own words, and apart from them what an agent's program added."""
    shown = [
        part
        for index, part in enumerate(fact.parts)
        if not branch.is_excluded(facts.PartRef(seq, index))
    ]
    words, additions = split_off_agent_additions(shown)
    added_parts = {number for number, _ in additions}
    own_texts = [words] if words else []
    added_texts = [text for _, text in additions if text]
    names = []
    for number, part in enumerate(shown):
        if isinstance(part, facts.Text):
            continue
        names.append(f"{part.name} {part.stored.digest.hex}")
        if part.stored.media_type.startswith("text/"):
            texts = added_texts if number in added_parts else own_texts
            texts.append(await read_stored_text(cache, part.stored))
    sources = [DetailSource(seq, "user", "\n".join(own_texts), names=tuple(names))]
    if added_texts:
        sources.append(DetailSource(seq, "addition", "\n".join(added_texts)))
    # A message that is an addition alone is no message of the user.
    return sources if own_texts or names or not added_texts else sources[1:]


def sources_of_reply(
    branch: ConversationBranch, seq: int, fact: facts.ModelReplied
) -> Iterator[DetailSource]:
    for index, part in enumerate(fact.parts):
        if branch.is_excluded(facts.PartRef(seq, index)) or isinstance(part, facts.Reasoning):
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
                about = _describe_stored_output(branch, seq)
                yield Detail("stored", f"{result.output.digest.hex} {about}", seq)
                for picture in result.images:
                    yield Detail("stored", f"{picture.digest.hex} picture", seq)
            case facts.UserSaid(parts=parts):
                for part in parts:
                    if isinstance(part, facts.Attachment):
                        about = f"attachment {part.name}"
                        yield Detail("stored", f"{part.stored.digest.hex} {about}", seq)


def _describe_stored_output(branch: ConversationBranch, seq: int) -> str:
    """Describe an output. What was recalled is described by the output that it is a part of."""
    described = describe_output(branch, seq)
    call = call_answered_by(branch, seq)
    if call is None or not call.name.endswith(_RECALLING):
        return described
    asked = text_at(parse_call_arguments(call.arguments), "sha256").lower()
    original = _seq_of_output_with_hash(branch, asked, before=seq)
    return f"part of {describe_output(branch, original)}" if original else described


def _seq_of_output_with_hash(branch: ConversationBranch, prefix: str, *, before: int) -> int:
    """Return the last output before a message whose hash begins so, or 0."""
    if len(prefix) < LEAST_HASH_DIGITS:
        return 0
    for seq in reversed(branch.order[: branch.message_position(before)]):
        fact = branch.message_at(seq).fact
        if isinstance(fact, facts.ToolReturned) and fact.output.digest.hex.startswith(prefix):
            return seq
    return 0
