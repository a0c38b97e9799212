"""Renders part of a conversation as text for a model's summary, for collecting details,
or for a recall.

A writer reads what the view shows, so a summary costs no more than the context. Details are
collected from the originals.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import combinations, islice

from helix_desktop.engine import facts
from helix_desktop.engine.conversation_details import Detail, DetailSource
from helix_desktop.engine.messages import Block, Role
from helix_desktop.engine.ports import ContentCache
from helix_desktop.engine.state.branch import ConversationBranch
from helix_desktop.engine.state.view_items import ViewItem
from helix_desktop.engine.strategies.markers import call_answered_by, describe_output
from helix_desktop.engine.view import ConversationState
from helix_desktop.engine.view_contents import content_for_model
from helix_desktop.errors import CacheCorrupt, NotFound
from helix_desktop.fast_dataclass import dataclass

MOST_BYTES = 2 << 20  # Only the beginning and the end of an output with more bytes are read.
BATCH = 200  # How many messages are gathered before other tasks may run.
SHORT_BYTES = 8_000  # Outputs of up to so many bytes are read together.
MOST_ARGUMENTS = 8  # Of a call with more texts, the others are not counted.
_ARGUMENT = re.compile(r'"[^"]{1,200}"')
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
    found: list[DetailSource] = []
    for at in range(0, len(seqs), BATCH):
        await asyncio.sleep(0)  # Lets other tasks run.
        messages = [branch.message_at(seq) for seq in seqs[at : at + BATCH]]
        texts = await read_short_outputs(messages, cache)
        for seq, fact in ((message.seq, message.fact) for message in messages):
            if isinstance(fact, facts.ToolReturned):
                if not branch.is_excluded(facts.PartRef(seq)):
                    text = texts.get(fact.output) or await read_stored_text(cache, fact.output)
                    found.append(_source_of_output(branch, seq, fact, text))
            elif (
                isinstance(fact, facts.UserSaid) and not fact.by
            ):  # The program's notes stay in the view.
                found.append(await _source_of_user_message(branch, seq, fact, cache))
            elif isinstance(fact, facts.ModelReplied):
                found.extend(sources_of_reply(branch, seq, fact))
    return found


def sources_beside_messages(history: ConversationState, seqs: Iterable[int]) -> list[DetailSource]:
    """Return what a writer also knows: settings, models, days, and how many calls there were."""
    said = [history.branch.message_at(seq) for seq in seqs]
    blocks = (block.content for block in history.settings.settings_blocks)
    texts = [content.text for content in blocks if isinstance(content, facts.Text)]
    hours = {one.time // 3600 * 3600 for one in said if one.time}
    days = {datetime.fromtimestamp(hour, zone) for hour in hours for zone in (UTC, None)}
    texts += {f"{day:%A %d %B %Y}" for day in days}
    replies = [one.fact for one in said if isinstance(one.fact, facts.ModelReplied)]
    texts += {reply.model for reply in replies}
    counts = Counter(type(one.fact).__name__ for one in said)
    calls = (part for one in replies for part in one.parts if isinstance(part, facts.ToolCall))
    for call in calls:  # A writer counts the calls of a tool, or those with an equal argument.
        found = islice(_ARGUMENT.finditer(call.arguments), MOST_ARGUMENTS)
        words = sorted({call.name, *(one.group() for one in found)})
        counts.update(words)
        counts.update(" ".join(pair) for pair in combinations(words, 2))
    texts.append(" ".join(map(str, set(counts.values()))))
    return [DetailSource(0, "system", text) for text in texts]


async def read_short_outputs(
    messages: Iterable[facts.Recorded], cache: ContentCache
) -> Mapping[facts.Stored, str]:
    """Return the texts of short outputs. Facts of a long history do not hold them, so
    they are read together.
    """
    outputs = [each.fact for each in messages if isinstance(each.fact, facts.ToolReturned)]
    lacking = {
        one.output.digest for one in outputs if not one.head and one.output.size <= SHORT_BYTES
    }
    read = await cache.read_contents(lacking) if lacking else {}
    found = (
        (one.output, one.head or content_for_model(one.output, read.get(one.output.digest, b"")))
        for one in outputs
    )
    return {stored: text for stored, text in found if isinstance(text, str) and text}


def _source_of_output(
    branch: ConversationBranch, seq: int, fact: facts.ToolReturned, text: str
) -> DetailSource:
    call = call_answered_by(branch, seq)
    ok = fact.ok and not fact.exit_code
    tool, excerpt = call.name if call else "", branch.excerpt_shown_instead(seq)
    return DetailSource(seq, "output", text, tool, ok, changes=fact.changes, excerpt=excerpt)


async def _source_of_user_message(
    branch: ConversationBranch, seq: int, fact: facts.UserSaid, cache: ContentCache
) -> DetailSource:
    texts, names = [], []
    for index, part in enumerate(fact.parts):
        if branch.is_excluded(facts.PartRef(seq, index)):
            continue
        if isinstance(part, facts.Text):
            texts.append(part.text)
        else:
            names.append(f"{part.name} {part.stored.digest.hex}")
            if part.stored.media_type.startswith("text/"):
                texts.append(await read_stored_text(cache, part.stored))
    return DetailSource(seq, "user", "\n".join(texts), names=tuple(names))


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
        fact = branch.message_at(seq).fact
        if isinstance(fact, facts.ToolReturned):
            yield Detail("stored", f"{fact.output.digest.hex} {describe_output(branch, seq)}", seq)
            for picture in fact.images:
                yield Detail("stored", f"{picture.digest.hex} picture", seq)
        elif isinstance(fact, facts.UserSaid):
            for part in fact.parts:
                if isinstance(part, facts.Attachment):
                    yield Detail("stored", f"{part.stored.digest.hex} attachment {part.name}", seq)
