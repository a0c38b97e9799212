"""The digest of a request, stored with its reply, so that what the model saw can always be checked.

It covers what a model reads: system text, messages, tools and how long to think, each
with its length before it. It does not cover the model's name or cache marks.
`store/FORMATS.md` describes the bytes.
"""

import hashlib
from collections.abc import Iterator

from helix_desktop.engine.facts import Reasoning, Text, ToolCall
from helix_desktop.engine.messages import Image, MessagePart, Request, ToolResult
from helix_desktop.engine.sha256_digest import Digest


def digest_of_request(request: Request) -> Digest:
    """Return the same digest for the same request, in every version of the program."""
    content = hashlib.sha256()
    for piece in _pieces_of_request(request):
        if isinstance(piece, bytes):
            data = piece
        else:
            data = piece.encode("utf-8", "surrogatepass")
        content.update(len(data).to_bytes(8, "big"))
        content.update(data)
    return Digest(content.digest())


def _pieces_of_request(request: Request) -> Iterator[str | bytes]:
    yield from ("request 1", request.system, request.reasoning)
    for tool in request.tools:
        yield from ("tool", tool.name, tool.description, tool.schema)
    for message in request.messages:
        yield from ("message", message.role.value)
        for part in message.parts:
            yield from _pieces_of_part(part)


def _pieces_of_part(part: MessagePart) -> Iterator[str | bytes]:
    """Yield what distinguishes a part from others: its kind first, then all that is sent of it."""
    match part:
        case Text(text=text):
            yield from ("text", text)
        case Reasoning(text=text, opaque=opaque, provider=provider):
            yield from ("reasoning", text, opaque, provider)
        case ToolCall(id=name, name=tool, arguments=arguments):
            yield from ("call", name, tool, arguments)
        case Image(media_type=kind, data=data):
            yield from ("image", kind, data)
        case ToolResult():
            yield from ("result", part.call, part.text)
            if part.ok:
                yield "ok"
            else:
                yield "failed"
            for image in part.images:
                yield from _pieces_of_part(image)
