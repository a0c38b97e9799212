"""Requests as hypothesis writes them: all four protocols, with blocks nobody knows, odd
white space and odd text.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

Json = Any
FIELDS = {
    "anthropic": "messages",
    "openai-chat": "messages",
    "openai-responses": "input",
    "gemini": "contents",
}
PATHS = {
    "anthropic": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "gemini": "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
}
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.sampled_from(
    ['"', "\\", '\\"]}', "[{", '"cache_control"', '{"messages": []}', "ä€😀", "\u2028", "\0"]
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
odd = st.dictionaries(texts, values, max_size=3)
marks = st.sampled_from([{}, {}, {"cache_control": {"type": "ephemeral"}}])
names = st.sampled_from(["Bash", "Read", "call-1", "x"])


def _with(extra: Json, block: Json) -> Json:
    return {**{k: v for k, v in extra.items() if k not in block}, **block}


def _blocks(protocol: str) -> st.SearchStrategy[Json]:
    match protocol:
        case "anthropic":
            block = st.one_of(
                st.builds(lambda t: {"type": "text", "text": t}, texts),
                st.builds(
                    lambda t, s: {"type": "thinking", "thinking": t, "signature": s}, texts, texts
                ),
                st.builds(
                    lambda n, i, v: {"type": "tool_use", "id": i, "name": n, "input": v},
                    names,
                    names,
                    odd,
                ),
                st.builds(
                    lambda i, t: {"type": "tool_result", "tool_use_id": i, "content": t},
                    names,
                    texts,
                ),
                st.builds(lambda t: {"type": t, "server": True}, texts),
            )
            return st.builds(lambda b, m, o: _with(o, {**b, **m}), block, marks, odd)
        case "gemini":
            return st.one_of(
                st.builds(lambda t: {"text": t}, texts),
                st.builds(
                    lambda n, v: {"functionCall": {"name": n, "args": v}, "thoughtSignature": "s"},
                    names,
                    odd,
                ),
                st.builds(
                    lambda n, t: {"functionResponse": {"name": n, "response": {"output": t}}},
                    names,
                    texts,
                ),
                odd,
            )
    return st.builds(lambda t, o: _with(o, {"type": "text", "text": t}), texts, odd)


def units(protocol: str) -> st.SearchStrategy[Json]:
    """One value of the protocol's list."""
    blocks = _blocks(protocol)
    content = texts | st.lists(blocks, max_size=4)
    match protocol:
        case "anthropic":
            role = st.sampled_from(["user", "assistant"])
            return st.builds(
                lambda r, c, o: _with(o, {"role": r, "content": c}), role, content, odd
            )
        case "gemini":
            role = st.sampled_from(["user", "model"])
            return st.builds(
                lambda r, p, o: _with(o, {"role": r, "parts": p}),
                role,
                st.lists(blocks, max_size=4),
                odd,
            )
        case "openai-chat":
            call = st.builds(
                lambda i, n, a: {
                    "id": i,
                    "type": "function",
                    "function": {"name": n, "arguments": a},
                },
                names,
                names,
                texts,
            )
            said = st.builds(
                lambda r, c, o: _with(o, {"role": r, "content": c}),
                st.sampled_from(["user", "assistant", "system"]),
                content,
                odd,
            )
            called = st.builds(
                lambda c, o: _with(o, {"role": "assistant", "content": None, "tool_calls": c}),
                st.lists(call, min_size=1, max_size=3),
                odd,
            )
            result = st.builds(
                lambda i, t: {"role": "tool", "tool_call_id": i, "content": t}, names, texts
            )
            return said | called | result
    item = st.one_of(
        st.builds(
            lambda r, c: {"type": "message", "role": r, "content": c},
            st.sampled_from(["user", "assistant"]),
            content,
        ),
        st.builds(
            lambda i, n, a: {"type": "function_call", "call_id": i, "name": n, "arguments": a},
            names,
            names,
            texts,
        ),
        st.builds(
            lambda i, t: {"type": "function_call_output", "call_id": i, "output": t}, names, texts
        ),
        st.builds(lambda t: {"type": "reasoning", "summary": [], "encrypted_content": t}, texts),
        st.builds(lambda t: {"type": t, "server": True}, texts),
    )
    return st.builds(lambda i, o: _with(o, i), item, odd)


@st.composite
def bodies(draw: st.DrawFn, protocol: str) -> dict[str, Json]:
    """A request; its fields in any order."""
    tool = {"name": "Bash", "description": "run it", "input_schema": {"type": "object"}}
    fields = [
        ("model", "a-model"),
        (FIELDS[protocol], draw(st.lists(units(protocol), min_size=1, max_size=6))),
        ("tools", [_with(draw(odd), tool)]),
        *draw(
            st.dictionaries(st.sampled_from(["a", "metadata", "x-y", "top_p"]), values, max_size=3)
        ).items(),
    ]
    return dict(draw(st.permutations(fields)))


def dumped(body: Json, style: int) -> bytes:
    """As clients write JSON: compact, with spaces, over several lines, in ASCII."""
    match style % 4:
        case 0:
            return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        case 1:
            return json.dumps(body, ensure_ascii=False).encode()
        case 2:
            return json.dumps(body, ensure_ascii=False, indent=1).encode()
    return json.dumps(body).encode()
