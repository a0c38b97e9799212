"""Builds blocks from the parts of a message, as they are or folded, or leaves them out. A pure
function of facts.

Here single parts become legal: a call's arguments are a JSON object, and its name is one that every
provider accepts, whatever the model wrote. The fact itself stays unchanged.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from helix_desktop.engine import facts
from helix_desktop.engine.messages import Block, ContextKind, Role
from helix_desktop.engine.tool_call_parsing import parse_arguments, parse_strict_json

BYTES_PER_TOKEN = 4  # Of a text, about.
IMAGE_TOKENS = 1_600  # A rough estimate of what providers bill for an image.
NOTE_TOKENS = 8
# Characters of a long value. Views of shortened arguments depend on it, so it must stay.
LONG_VALUE = 400
EXCLUDED = "[Taken out of the context by the user]"
EXCLUDED_ARGUMENTS = json.dumps({"note": EXCLUDED})
SAME_ENTRY = "[CACHED] in the same entry"
LONGEST_TOOL_NAME = 64
_NOT_IN_TOOL_NAME = re.compile(r"[^a-zA-Z0-9_-]")

MessageFact = facts.UserSaid | facts.ModelReplied | facts.ToolReturned


def parts_of(fact: MessageFact) -> tuple[facts.UserPart | facts.ReplyPart | facts.Stored, ...]:
    """Return the parts in the order of `PartRef`. An output's text comes before its pictures."""
    if isinstance(fact, facts.ToolReturned):
        return (fact.output, *fact.images)
    return fact.parts


def build_original_block(
    recorded: facts.Recorded, ref: facts.PartRef, ids: Mapping[facts.PartRef, str]
) -> Block:
    """Return the unfolded part `ref`. `ids`: new ids of calls whose own is empty or not unique."""
    fact = recorded.fact
    if isinstance(fact, facts.UserSaid):
        part = fact.parts[ref.part]
        return Block(ContextKind.CONVERSATION, Role.USER, ref, part, _tokens_of_part(part))
    if isinstance(fact, facts.ModelReplied):
        return _build_block_of_reply(fact, ref, ids)
    if isinstance(fact, facts.ToolReturned):
        call_id = fact.call
        if ids:  # Rarely, and every look-up takes the time of a hash.
            call_id = ids.get(facts.PartRef(recorded.seq), call_id)
        return _build_block_of_result(fact, ref, call_id)
    raise TypeError(f"{type(fact).__name__} is not a message")


def _build_block_of_reply(
    fact: facts.ModelReplied, ref: facts.PartRef, ids: Mapping[facts.PartRef, str]
) -> Block:
    """Return one part of a model's reply. A call is made such that every provider accepts it."""
    content = fact.parts[ref.part]
    if isinstance(content, facts.ToolCall):
        call_id = content.id
        if ids:
            call_id = ids.get(ref, call_id)
        content = make_call_legal(content, call_id)
    is_complete = fact.stop is facts.Stop.END
    kind = ContextKind.CONVERSATION
    return Block(kind, Role.ASSISTANT, ref, content, content.tokens, ok=is_complete)


def _build_block_of_result(fact: facts.ToolReturned, ref: facts.PartRef, call_id: str) -> Block:
    content = parts_of(fact)[ref.part]
    tokens = fact.tokens
    if ref.part > 0 and isinstance(content, facts.Stored):
        # `fact.tokens` are those of the text, which is part 0.
        tokens = _tokens_beside_output(content)
    return Block(ContextKind.OUTPUT, Role.TOOL, ref, content, tokens, call=call_id, ok=fact.ok)


def _tokens_beside_output(stored: facts.Stored) -> int:
    """Estimate the tokens of a picture, of a document's text or of the document itself, which is
    not sent.
    """
    if stored.media_type.startswith("image/"):
        return IMAGE_TOKENS
    if stored.media_type.startswith("text/"):
        return stored.size // BYTES_PER_TOKEN
    return 0


def fold_block(block: Block, fold: facts.Folded) -> Block:
    """Return a block with the shorter text of a fold in place of its own.

    Of a call, only the long arguments are replaced. `cached` says where the original is.
    """
    original = block.content
    content: facts.Text | facts.ToolCall = facts.Text(fold.text, fold.tokens)
    if isinstance(original, facts.ToolCall):
        arguments = replace_long_argument_values(original.arguments, fold.text)
        content = replace(original, arguments=arguments, tokens=fold.tokens)

    if isinstance(original, facts.Stored):
        cached: tuple[facts.Stored, ...] = (original,)
    elif isinstance(original, facts.Attachment):
        cached = (original.stored,)
    else:
        cached = tuple(facts.Stored(digest, 0) for digest in fold.entries)
    return replace(block, content=content, tokens=fold.tokens, fold=fold.fold, cached=cached)


def exclude_block(block: Block) -> Block | None:
    """Return what replaces an excluded part: nothing, or a note if a call needs its result."""
    if isinstance(block.content, facts.ToolCall):
        emptied_call = replace(block.content, arguments=EXCLUDED_ARGUMENTS, tokens=NOTE_TOKENS)
        return replace(block, content=emptied_call, tokens=NOTE_TOKENS)
    # Providers reject a call without a result. Its pictures can go.
    source = block.source
    if block.role is Role.TOOL and isinstance(source, facts.PartRef) and source.part == 0:
        return replace(block, content=facts.Text(EXCLUDED, NOTE_TOKENS), tokens=NOTE_TOKENS)
    return None


def make_call_legal(call: facts.ToolCall, id_in_request: str) -> facts.ToolCall:
    """Return the call as all providers accept it: with an id, a plain name and an object.

    A call that is legal already is returned as the same object.
    """
    plain_name = _NOT_IN_TOOL_NAME.sub("_", call.name)
    name = plain_name[:LONGEST_TOOL_NAME] or "unnamed"
    arguments = call.arguments
    if not is_json_object(arguments):
        arguments = _repair_arguments(arguments)
    is_legal_already = (name, id_in_request, arguments) == (call.name, call.id, call.arguments)
    if is_legal_already:
        return call
    return replace(call, id=id_in_request, name=name, arguments=arguments)


def replace_long_argument_values(arguments: str, text: str) -> str:
    """Return the arguments with `text` in place of long values. Short ones (a path, a
    flag) stay.
    """
    values: dict[str, object] = {}
    if is_json_object(arguments):
        values = json.loads(arguments)
    # The text stands once: in place of the first long value, or else as a value of its own.
    replacement = text
    shortened_values: dict[str, object] = {}
    for key, value in values.items():
        if is_long_value(value):
            shortened_values[key] = replacement
            replacement = SAME_ENTRY
        else:
            shortened_values[key] = value
    if text not in shortened_values.values():
        shortened_values["cached"] = text
    return json.dumps(shortened_values, ensure_ascii=False)


def is_long_value(value: object) -> bool:
    """Whether clearing replaces an argument's value."""
    if isinstance(value, str):
        return len(value) > LONG_VALUE
    return len(json.dumps(value)) > LONG_VALUE


def build_message_blocks(
    recorded: facts.Recorded,
    ids: Mapping[facts.PartRef, str],
    fold_of: Callable[[facts.PartRef], facts.Folded | None],
    is_pinned: Callable[[facts.PartRef], bool],
    is_excluded: Callable[[facts.PartRef], bool],
) -> tuple[Block, ...]:
    """Return what the model is shown of a message, one block for each of its parts.

    A part that the user excluded is left out, one that is pinned is shown as it is, and otherwise
    one with a fold is shown as the fold's shorter text. If several apply, they do in this order.
    """
    parts = parts_of(require_message(recorded))
    excludes_thinking = _is_any_thinking_excluded(recorded.seq, parts, is_excluded)
    blocks: list[Block] = []
    for index, part in enumerate(parts):
        ref = facts.PartRef(recorded.seq, index)
        original = build_original_block(recorded, ref, ids)
        if _is_blank_text(original):
            continue
        is_excluded_thinking = excludes_thinking and isinstance(part, facts.Reasoning)
        if is_excluded_thinking or is_excluded(ref):
            note = exclude_block(original)
            if note is not None:
                blocks.append(note)
            continue
        if is_pinned(ref):
            blocks.append(replace(original, pinned=True))
            continue
        fold = fold_of(ref)
        if fold is None:
            blocks.append(original)
        else:
            blocks.append(fold_block(original, fold))
    return tuple(blocks)


def _is_any_thinking_excluded(
    seq: int, parts: Sequence[object], is_excluded: Callable[[facts.PartRef], bool]
) -> bool:
    """Whether the thinking of a message is left out. Providers check it as a whole, so excluding
    a part of it excludes all.
    """
    for index, part in enumerate(parts):
        if isinstance(part, facts.Reasoning) and is_excluded(facts.PartRef(seq, index)):
            return True
    return False


def _is_blank_text(block: Block) -> bool:
    """Whether a block is text without a visible character, which some providers reject."""
    return isinstance(block.content, facts.Text) and not block.content.text.strip()


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
    """Return a JSON object with what can be read of the arguments, or else with their text."""
    values = parse_arguments(arguments)
    if values is None:
        values = {}
        if arguments.strip():
            values = {"malformed": arguments}
    return json.dumps(values, ensure_ascii=False)
