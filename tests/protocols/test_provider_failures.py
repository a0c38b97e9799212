"""What providers and local servers are known to say, and which error it is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from helix_desktop.errors import (
    ContextTooLong,
    ModelFailed,
    ModelOverloaded,
    NoCreditLeft,
    ProviderKeyRefused,
    UnknownModel,
)
from helix_desktop.protocols.provider_failures import (
    LONGEST_SENTENCE,
    ProviderRefusal,
    failure_of_refusal,
    provider_sentence,
    read_refusal_body,
    retry_after_seconds,
)


def failure(status: int, body: Any, **headers: str) -> ModelFailed:
    return failure_of_refusal(
        ProviderRefusal(
            "peer",
            status,
            body,
            {name.replace("_", "-"): text for name, text in headers.items()},
            "m",
        )
    )


def openai(message: str, code: str | None = None, kind: str = "invalid_request_error") -> Any:
    return {"error": {"message": message, "type": kind, "code": code, "param": None}}


TOO_LONG = [
    ("openai", 400, openai("This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.")),
    ("openai, by code", 400, openai("Please shorten.", "context_length_exceeded")),
    ("openai, tokens a minute", 429, openai("Request too large for gpt-x on tokens per min (TPM): Limit 30000, Requested 40000.", "rate_limit_exceeded")),
    ("anthropic", 400, {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 208310 tokens > 200000 maximum"}}),
    ("anthropic, with the reply", 400, {"error": {"message": "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000"}}),
    ("anthropic, bytes", 413, {"error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}),
    ("a gateway before any of them", 413, "<html>Request Entity Too Large</html>"),
    ("gemini", 400, {"error": {"code": 400, "message": "The input token count (9) exceeds the maximum number of tokens allowed (8)."}}),
    ("llama.cpp", 400, {"error": {"code": 400, "message": "the request exceeds the available context size, try increasing it", "type": "exceed_context_size_error"}}),
    ("llama.cpp, old", 500, {"error": {"message": "the request exceeds the available context size"}}),
    ("lm studio", 400, {"error": "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens"}),
    ("vllm", 400, {"object": "error", "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens", "code": 400}),
    ("openrouter", 400, {"error": {"message": "This endpoint's maximum context length is 128000 tokens. However, you requested about 130000"}}),
    ("openrouter, wrapped", 400, {"error": {"message": "Provider returned error", "metadata": {"raw": "prompt is too long"}}}),
    ("mistral", 400, {"object": "error", "message": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length"}),
    ("groq", 400, openai("Please reduce the length of the messages or completion.", "context_length_exceeded")),
    ("xai", 400, {"code": "x", "error": "This model's maximum prompt length is 131072 but the request contains 200000 tokens."}),
    ("together", 422, openai("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097.")),
    ("bedrock", 400, {"message": "Input is too long for requested model."}),
    ("sglang", 400, {"object": "error", "message": "The input (8269 tokens) is longer than the model's context length (8192 tokens).", "code": 400}),
    ("sglang, at most", 400, {"message": "Input length (203000 tokens) exceeds the maximum allowed length (202745 tokens). Use a shorter input."}),
    ("vllm, the prompt", 400, {"object": "error", "message": "The decoder prompt (length 5000) is longer than the maximum model length of 4096."}),
    ("vllm, only", 400, openai("You passed 202753 input tokens and requested 0 output tokens. However, the model's context length is only 202752 tokens, resulting in a maximum input length of 202752 tokens.")),
    ("lm studio, to keep", 400, {"error": "The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length"}),
    ("dashscope", 400, openai("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]")),
    ("zhipu", 400, {"error": {"code": "1261", "message": "Prompt exceeds max length"}}),
    ("zhipu, in Chinese", 400, {"error": {"code": "1261", "message": "Prompt 超长"}}),
    ("siliconflow", 400, {"code": 20015, "message": "length of prompt_tokens (35178) must be less than max_seq_len (32768)."}),
    ("volcengine", 400, openai("Total tokens of image and text exceed max message tokens.")),
    ("kimi", 400, openai("Invalid request: Your request exceeded model token limit: 131072")),
    ("ollama", 400, openai("input length exceeds the context length")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "body"), [case[1:] for case in TOO_LONG], ids=[case[0] for case in TOO_LONG]
)
def test_too_long_is_recognised(status: int, body: Any) -> None:
    assert type(failure(status, body)) is ContextTooLong


NAMED = {
    "openai": 8192, "anthropic": 200_000, "anthropic, with the reply": 200_000, "gemini": 8, "lm studio": 4096, "vllm": 4096,
    "openrouter": 128_000, "mistral": 32_768, "xai": 131_072, "together": 4097, "sglang": 8192, "sglang, at most": 202_745,
    "vllm, the prompt": 4096, "vllm, only": 202_752, "dashscope": 129_024, "siliconflow": 32_768, "kimi": 131_072,
}  # fmt: skip


@pytest.mark.parametrize(("name", "status", "body"), TOO_LONG, ids=[case[0] for case in TOO_LONG])
def test_a_refusal_that_names_the_window_teaches_it(name: str, status: int, body: Any) -> None:
    error = failure(status, body)
    assert isinstance(error, ContextTooLong)
    assert error.window == NAMED.get(name, 0)


def test_llama_cpp_names_its_window_beside_the_sentence() -> None:
    error = failure(
        400, {"error": {"message": "the request exceeds the available context size", "n_ctx": 4096}}
    )
    assert isinstance(error, ContextTooLong)
    assert error.window == 4096


OTHERS = [
    ("openai key", 401, openai("Incorrect API key provided: sk-…", "invalid_api_key"), ProviderKeyRefused),
    ("anthropic key", 401, {"error": {"type": "authentication_error", "message": "invalid x-api-key"}}, ProviderKeyRefused),
    ("gemini key", 400, {"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.", "details": [{"reason": "API_KEY_INVALID"}]}}, ProviderKeyRefused),
    ("no permission", 403, openai("Your project has no access"), ProviderKeyRefused),
    ("a page of a proxy", 403, "<!DOCTYPE html><html>blocked</html>", ProviderKeyRefused),
    ("openai model", 404, openai("The model `x` does not exist or you do not have access to it.", "model_not_found"), UnknownModel),
    ("ollama model", 404, openai('model "x" not found, try pulling it first'), UnknownModel),
    ("openrouter model", 400, openai("x is not a valid model ID"), UnknownModel),
    ("deepseek model", 400, openai("Model Not Exist"), UnknownModel),
    ("lm studio, none loaded", 404, openai("No models loaded. Please load a model in the developer page."), UnknownModel),
    ("anthropic model", 404, {"error": {"type": "not_found_error", "message": "model: x"}}, UnknownModel),
    ("wrong path", 404, {"detail": "Not Found"}, ModelFailed),
    ("no tools", 400, openai("registry.ollama.ai/library/gemma does not support tools"), ModelFailed),
    ("no money, openai", 429, openai("You exceeded your current quota, please check your plan", "insufficient_quota"), NoCreditLeft),
    ("no money, anthropic", 400, openai("Your credit balance is too low to access the API."), NoCreditLeft),
    ("no money, deepseek", 402, openai("Insufficient Balance"), NoCreditLeft),
    ("busy", 429, openai("Rate limit reached", "rate_limit_exceeded"), ModelOverloaded),
    ("overloaded", 529, {"error": {"type": "overloaded_error", "message": "Overloaded"}}, ModelOverloaded),
    ("a gateway", 502, "<html>Bad gateway</html>", ModelOverloaded),
    ("cloudflare", 524, "", ModelOverloaded),
    ("too much output asked", 400, openai("max_tokens is too large: 64000. This model supports at most 16384 completion tokens"), ModelFailed),
    ("bad schema", 400, openai("Invalid schema for function 'read'"), ModelFailed),
    ("unprocessable", 422, {"detail": [{"msg": "field required"}]}, ModelFailed),
]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "body", "kind"), [case[1:] for case in OTHERS], ids=[case[0] for case in OTHERS]
)
def test_every_refusal_is_one_error_with_a_sentence_and_a_way_on(
    status: int, body: Any, kind: type[ModelFailed]
) -> None:
    error = failure(status, body)
    assert type(error) is kind
    assert error.what.startswith("peer ")
    assert error.what.endswith((".", "?", "!", "…"))
    assert error.remedy


def test_a_redirect_names_the_host_and_no_password() -> None:
    error = failure(307, "", location="https://user:secret@elsewhere.example/v1?key=secret")
    assert "elsewhere.example" in error.what
    assert "secret" not in str(error)


def test_sentences_are_found_and_kept_short() -> None:
    assert provider_sentence([{"error": {"message": "in an array"}}]) == "in an array"
    assert provider_sentence("two\n lines") == "two lines"
    assert provider_sentence({"odd": 1}) == ""
    assert len(provider_sentence("x" * 10_000)) == LONGEST_SENTENCE
    assert read_refusal_body(b"\xff not json") == "\ufffd not json"


NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"retry-after": "7"}, None, 7.0),
        ({"retry-after": "1.5"}, None, 1.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, None, 0.25),
        ({"retry-after": "Fri, 20 Nov 2026 12:00:30 GMT"}, None, 30.0),
        ({"retry-after": "Fri, 20 Nov 2026 11:00:00 GMT"}, None, 0.0),
        ({"retry-after": "soon"}, None, None),
        ({"retry-after": "-3"}, None, None),
        ({"retry-after": "nan"}, None, None),
        ({"retry-after": "inf"}, None, None),
        ({}, {"error": {"details": [{"retryDelay": "34.074s"}]}}, 34.074),
        ({}, {"error": {"details": [{"retryDelay": "1m2s"}]}}, 62.0),
        ({}, {"error": {"details": [{"retryDelay": "later"}]}}, None),
        ({}, openai("Rate limit reached. Please try again in 1m3.5s. Visit"), 63.5),
        ({}, openai("Rate limit reached. Please try again in 350ms."), 0.35),
        ({}, openai("Try again in a while."), None),
        ({}, openai("try again in ..s"), None),
        ({}, None, None),
    ],
)
def test_the_time_to_wait_in_all_its_forms(
    headers: dict[str, str], body: Any, seconds: float | None
) -> None:
    assert retry_after_seconds(headers, body, NOW) == seconds


NOT_THERE = {"error": {"code": 404, "message": "no such thing", "status": "NOT_FOUND"}}


@pytest.mark.parametrize(
    ("status", "body", "kind", "remedy"),
    [
        (404, {"detail": "gone"}, ModelFailed, "Check the address and the model name 'm'."),
        (405, {"detail": "gone"}, ModelFailed, "Check the address and the model name 'm'."),
        (404, NOT_THERE, UnknownModel, "To see this provider's models, run helix-desktop model list."),
        (404, {"error": {"type": "not_found_error", "message": "x"}}, UnknownModel, "To see this provider's models, run helix-desktop model list."),
        (402, {"message": "x"}, NoCreditLeft, "Add credit at the provider, or choose another model."),
        (401, {"message": "x"}, ProviderKeyRefused, "Set a new key for this provider."),
        (403, {"message": "x"}, ProviderKeyRefused, "The key for this provider does not permit this request. Use another key or another model."),
        (499, openai("Incorrect API key provided"), ProviderKeyRefused, "Set a new key for this provider."),
        (500, openai("Incorrect API key provided"), ModelOverloaded, "You can try again."),
        (500, openai("The model `x` does not exist"), ModelOverloaded, "You can try again."),
        (529, {"message": "x"}, ModelOverloaded, "You can try again."),
        (530, {"message": "x"}, ModelOverloaded, "You can try again."),
        (400, {"error": {"type": "overloaded_error", "message": "x"}}, ModelOverloaded, "You can try again."),
        (400, {"error": {"status": "RESOURCE_EXHAUSTED", "message": "x"}}, ModelOverloaded, "You can try again."),
        (501, openai("prompt is too long"), ModelFailed, None),
    ],
)  # fmt: skip
def test_what_to_do_depends_on_the_status(
    status: int, body: Any, kind: type[ModelFailed], remedy: str | None
) -> None:
    found = failure(status, body)
    assert type(found) is kind
    assert remedy is None or found.remedy == remedy


def test_a_window_that_can_be_none_is_none() -> None:
    for given, window in ((-5, 0), (0, 0), (True, 0), ("4096", 0), (7, 7)):
        error = failure(
            400,
            {
                "error": {
                    "message": "the request exceeds the available context size",
                    "n_ctx": given,
                }
            },
        )
        assert isinstance(error, ContextTooLong)
        assert error.window == window


def test_a_sentence_is_cut_to_its_longest_length() -> None:
    assert provider_sentence("x" * LONGEST_SENTENCE) == "x" * LONGEST_SENTENCE
    assert provider_sentence("x" * (LONGEST_SENTENCE + 1)) == "x" * (LONGEST_SENTENCE - 1) + "…"


@pytest.mark.parametrize(
    ("said", "seconds"), [("0", 0.0), ("-1", None), ("inf", None), ("nan", None), ("1.5", 1.5)]
)
def test_a_wait_is_a_number_of_seconds_that_can_be(said: str, seconds: float | None) -> None:
    assert retry_after_seconds({"retry-after": said}) == seconds
    assert retry_after_seconds({"retry-after-ms": "2500", "retry-after": said}) == 2.5


def test_a_redirect_is_named_without_its_path_and_without_a_password() -> None:
    for location, host in (
        ("https://a:b@c.example/d?e", "c.example"),
        ("//x", "another address"),
        ("", "another address"),
    ):
        found = failure(302, "", location=location)
        assert found.what.startswith(f"peer redirected the request to {host}."), location


def test_a_refusal_that_comes_in_a_list_is_understood_by_its_code() -> None:
    refused = openai("Please shorten.", "context_length_exceeded")
    assert type(failure(400, [refused])) is type(failure(400, refused)) is ContextTooLong
    assert type(failure(400, [])) is type(failure(400, [openai("no")])) is ModelFailed


def test_a_date_beyond_all_dates_is_no_wait() -> None:
    assert (
        retry_after_seconds({"retry-after": "Mon, 1 Jan 2020 00:00:00 +99999999999999999999"})
        is None
    )


@pytest.mark.parametrize("where", ["type", "code", "status"])
def test_a_long_code_is_read_as_far_as_a_code_can_be_long(where: str) -> None:
    """22 KB of `requested tokens exceed` took more than a minute, in which the program
    did nothing else.
    """
    long = "requested tokens exceed " * 100_000
    assert (
        type(failure(400, {"error": {where: long, "details": [{"reason": long}] * 1_000}}))
        is ModelFailed
    )
    assert type(failure(400, {"error": {where: "context_length_exceeded"}})) is ContextTooLong
