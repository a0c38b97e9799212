"""Counts a request with the tokenizer of the server that will read it.

Our own count is that of another vocabulary: a small model needs twice as many tokens for
Chinese. llama.cpp, llamafile, vLLM and KoboldCpp count on request, with their template.
"""

from helix_desktop import json_values
from helix_desktop.errors import ModelFailed
from helix_desktop.json_values import Object
from helix_desktop.providers.http_transport import ProviderTransport
from helix_desktop.providers.json_fetching import fetch_json_by_post
from helix_desktop.providers.local_server_details import LocalServerKind

COUNTING_SECONDS = 5.0  # Counting takes milliseconds, unless the server is busy.
COUNTING_SERVERS = frozenset(
    {
        LocalServerKind.LLAMA_CPP,
        LocalServerKind.LLAMAFILE,
        LocalServerKind.VLLM,
        LocalServerKind.KOBOLDCPP,
    }
)


async def count_with_server(root: ProviderTransport, kind: LocalServerKind, body: Object) -> int:
    """Return the tokens of a request's body, or 0 if the server does not count it."""
    try:
        if kind is LocalServerKind.VLLM:
            return await _count_at_vllm(root, body)
        if kind is LocalServerKind.KOBOLDCPP:
            return await _count_at_koboldcpp(root, body)
        return await _count_at_llama_cpp(root, body)
    except ModelFailed:
        return 0


async def _count_at_llama_cpp(root: ProviderTransport, body: Object) -> int:
    messages: Object = {"messages": json_values.list_at(body, "messages")}
    tools = json_values.list_at(body, "tools")
    if tools:
        messages["tools"] = tools
    written = await fetch_json_by_post(root, "/apply-template", messages, COUNTING_SECONDS)
    content: Object = {
        "content": json_values.text_at(written, "prompt"),
        "add_special": True,
        "parse_special": True,
    }
    counted = await fetch_json_by_post(root, "/tokenize", content, COUNTING_SECONDS)
    return len(json_values.list_at(counted, "tokens"))


async def _count_at_vllm(root: ProviderTransport, body: Object) -> int:
    fields = ("model", "messages", "tools")
    asked: Object = {name: body[name] for name in fields if name in body}
    counted = await fetch_json_by_post(root, "/tokenize", asked, COUNTING_SECONDS)
    return json_values.number_at(counted, "count")


async def _count_at_koboldcpp(root: ProviderTransport, body: Object) -> int:
    messages = json_values.list_at(body, "messages")
    texts = [json_values.text_at(message, "content") for message in messages]
    prompt: Object = {"prompt": "\n".join(texts)}
    counted = await fetch_json_by_post(root, "/api/extra/tokencount", prompt, COUNTING_SECONDS)
    return json_values.number_at(counted, "value")
