"""Renders the parts of a message as blocks: as they are, folded or left out. A pure
function of facts.

Here single parts become legal: a call's arguments are a JSON object, and its name is one that every
provider accepts, whatever the model wrote. The fact itself stays unchanged.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from helix_desktop.engine import facts
from helix_desktop.engine.messages import Block, ContextKind, Role
from helix_desktop.engine.tool_call_parsing import parse_arguments, parse_strict_json

IMAGE_TOKENS = 1_600  # A rough estimate of what providers bill for an image.
NOTE_TOKENS = 8
LONG_VALUE = (
    400  # Characters of a long value. Views of shortened arguments depend on it, so it must stay.
)
EXCLUDED = "[Taken out of the context by the user]"
EXCLUDED_ARGUMENTS = json.dumps({"note": EXCLUDED})
SAME_ENTRY = "[CACHED] in the same entry"
_NAME = re.compile(r"[^a-zA-Z0-9_-]")

MessageFact = facts.UserSaid | facts.ModelReplied | facts.ToolReturned


def parts_of(fact: MessageFact) -> tuple[facts.UserPart | facts.ReplyPart | facts.Stored, ...]:
    """Return the parts in the order of `PartRef`. An output's text comes before its pictures."""
    return (fact.output, *fact.images) if isinstance(fact, facts.ToolReturned) else fact.parts


def build_original_block(
    recorded: facts.Recorded, ref: facts.PartRef, ids: Mapping[facts.PartRef, str]
) -> Block:
    """Return the unfolded part `ref`. `ids`: new ids of calls whose own is empty or not unique."""
    fact, part = recorded.fact, ref.part
    if isinstance(fact, facts.UserSaid):
        said = fact.parts[part]
        return Block(ContextKind.CONVERSATION, Role.USER, ref, said, _tokens_of_part(said))
    if isinstance(fact, facts.ModelReplied):
        answer = fact.parts[part]
        if isinstance(answer, facts.ToolCall):
            answer = make_call_legal(answer, ids.get(ref, answer.id) if ids else answer.id)
        kind, complete = ContextKind.CONVERSATION, fact.stop is facts.Stop.END
        return Block(kind, Role.ASSISTANT, ref, answer, answer.tokens, ok=complete)
    if isinstance(fact, facts.ToolReturned):
        call = ids.get(facts.PartRef(recorded.seq), fact.call) if ids else fact.call
        tokens = fact.tokens if part == 0 else IMAGE_TOKENS
        return Block(
            ContextKind.OUTPUT, Role.TOOL, ref, parts_of(fact)[part], tokens, call=call, ok=fact.ok
        )
    raise TypeError(f"{type(fact).__name__} is not a message")


def fold_block(block: Block, fold: facts.Folded) -> Block:
    originals = tuple(facts.Stored(digest, 0) for digest in fold.entries)
    content: facts.Text | facts.ToolCall = facts.Text(fold.text, fold.tokens)
    if isinstance(block.content, facts.ToolCall):
        content = replace(
            block.content,
            arguments=replace_long_argument_values(block.content.arguments, fold.text),
            tokens=fold.tokens,
        )
    elif isinstance(block.content, facts.Stored):
        originals = (block.content,)
    elif isinstance(block.content, facts.Attachment):
        originals = (block.content.stored,)
    return replace(block, content=content, tokens=fold.tokens, fold=fold.fold, cached=originals)


def exclude_block(block: Block) -> Block | None:
    """Return what replaces an excluded part: nothing, or a note if a call needs its result."""
    if isinstance(block.content, facts.ToolCall):
        gone = replace(block.content, arguments=EXCLUDED_ARGUMENTS, tokens=NOTE_TOKENS)
        return replace(block, content=gone, tokens=NOTE_TOKENS)
    if (
        block.role is Role.TOOL
        and isinstance(block.source, facts.PartRef)
        and not block.source.part
    ):
        return replace(block, content=facts.Text(EXCLUDED, NOTE_TOKENS), tokens=NOTE_TOKENS)
    return None


def make_call_legal(call: facts.ToolCall, name_in_request: str) -> facts.ToolCall:
    """Return the call as all providers accept it: with an id, a plain name and an object."""
    name = _NAME.sub("_", call.name)[:64] or "unnamed"
    arguments = (
        call.arguments if is_json_object(call.arguments) else _repair_arguments(call.arguments)
    )
    if (name, name_in_request, arguments) == (call.name, call.id, call.arguments):
        return call
    return replace(call, id=name_in_request, name=name, arguments=arguments)


def replace_long_argument_values(arguments: str, text: str) -> str:
    """Return the arguments with `text` in place of long values. Short ones (a path, a
    flag) stay.
    """
    values = json.loads(arguments) if is_json_object(arguments) else {}
    texts = iter((text,))
    shown = {
        key: next(texts, SAME_ENTRY) if is_long_value(value) else value
        for key, value in values.items()
    }
    if text not in shown.values():
        shown["cached"] = text
    return json.dumps(shown, ensure_ascii=False)


def is_long_value(value: object) -> bool:
    """Whether clearing replaces an argument's value."""
    return len(value if isinstance(value, str) else json.dumps(value)) > LONG_VALUE


def render_message_blocks(
    recorded: facts.Recorded,
    ids: Mapping[facts.PartRef, str],
    fold_of: Callable[[facts.PartRef], facts.Folded | None],
    pinned: Callable[[facts.PartRef], bool],
    is_excluded: Callable[[facts.PartRef], bool],
) -> tuple[Block, ...]:
    """Return a message's blocks. An exclusion beats a pin, and a pin beats a fold."""
    blocks = []
    whole = [
        (facts.PartRef(recorded.seq, index), part)
        for index, part in enumerate(parts_of(require_message(recorded)))
    ]
    no_thinking = any(is_excluded(ref) for ref, part in whole if isinstance(part, facts.Reasoning))
    for ref, part in whole:
        block: Block | None = build_original_block(recorded, ref, ids)
        if block is None or (
            isinstance(block.content, facts.Text) and not block.content.text.strip()
        ):
            continue
        if is_excluded(ref) or (no_thinking and isinstance(part, facts.Reasoning)):
            block = exclude_block(block)
        elif pinned(ref):
            block = replace(block, pinned=True)
        elif (fold := fold_of(ref)) is not None:
            block = fold_block(block, fold)
        if block is not None:
            blocks.append(block)
    return tuple(blocks)


def require_message(recorded: facts.Recorded) -> MessageFact:
    if isinstance(recorded.fact, facts.UserSaid | facts.ModelReplied | facts.ToolReturned):
        return recorded.fact
    raise TypeError(f"{type(recorded.fact).__name__} is not a message")


def _tokens_of_part(part: facts.UserPart | facts.ReplyPart) -> int:
    if isinstance(part, facts.Attachment) and part.stored.media_type.startswith("image/"):
        return part.tokens or IMAGE_TOKENS
    return part.tokens


def is_json_object(arguments: str) -> bool:
    try:
        return isinstance(parse_strict_json(arguments, strict=True), dict)
    except (ValueError, RecursionError):
        return False


def _repair_arguments(arguments: str) -> str:
    found = parse_arguments(arguments)
    if found is None and arguments.strip():
        found = {"malformed": arguments}
    return json.dumps(found or {}, ensure_ascii=False)
