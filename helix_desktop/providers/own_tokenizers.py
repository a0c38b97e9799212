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
    """Return how many tokens the server makes of a request's body, or 0 if it does not count.

    Each kind of server is asked in another way.
    """
    try:
        if kind is LocalServerKind.VLLM:
            return await _count_at_vllm(root, body)
        if kind is LocalServerKind.KOBOLDCPP:
            return await _count_at_koboldcpp(root, body)
        return await _count_at_llama_cpp(root, body)
    except ModelFailed:
        return 0


async def _count_at_llama_cpp(root: ProviderTransport, body: Object) -> int:
    """Let the server write the prompt of the request, and then count the tokens of that."""
    request: Object = {"messages": json_values.list_at(body, "messages")}
    tools = json_values.list_at(body, "tools")
    if tools:
        request["tools"] = tools
    answer_with_prompt = await fetch_json_by_post(
        root, "/apply-template", request, COUNTING_SECONDS
    )
    prompt: Object = {
        "content": json_values.text_at(answer_with_prompt, "prompt"),
        "add_special": True,
        "parse_special": True,
    }
    answer = await fetch_json_by_post(root, "/tokenize", prompt, COUNTING_SECONDS)
    return len(json_values.list_at(answer, "tokens"))


async def _count_at_vllm(root: ProviderTransport, body: Object) -> int:
    """Let the server count the request itself."""
    request: Object = {}
    for name in ("model", "messages", "tools"):
        if name in body:
            request[name] = body[name]
    answer = await fetch_json_by_post(root, "/tokenize", request, COUNTING_SECONDS)
    return json_values.number_at(answer, "count")


async def _count_at_koboldcpp(root: ProviderTransport, body: Object) -> int:
    """Count the words alone, as this server does not count with its template."""
    texts: list[str] = []
    for message in json_values.list_at(body, "messages"):
        texts.append(json_values.text_at(message, "content"))
    prompt: Object = {"prompt": "\n".join(texts)}
    answer = await fetch_json_by_post(root, "/api/extra/tokencount", prompt, COUNTING_SECONDS)
    return json_values.number_at(answer, "value")
