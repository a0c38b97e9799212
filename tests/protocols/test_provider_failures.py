"""What providers and local servers are known to say, and which error it is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
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
    named_headers = {name.replace("_", "-"): text for name, text in headers.items()}
    refusal = ProviderRefusal("peer", status, body, named_headers, "m")
    return failure_of_refusal(refusal)


def openai(message: str, code: str | None = None) -> Any:
    """A refusal as OpenAI writes it, and everybody who speaks its protocol."""
    error = {"message": message, "type": "invalid_request_error", "code": code, "param": None}
    return {"error": error}


@dataclass(frozen=True)
class SeenRefusal:
    """What a provider was seen to answer. `error`: the class that it must become; `window`: the
    window of the model that the answer names, or 0.
    """

    who: str
    status: int
    body: Any
    error: str
    window: int = 0


SEEN = [
    SeenRefusal(**seen)
    for seen in json.loads(Path(__file__).with_name("provider_refusals.json").read_text("utf-8"))
]


@pytest.mark.parametrize("seen", SEEN, ids=[seen.who for seen in SEEN])
def test_what_a_provider_was_seen_to_say_is_one_error_with_a_sentence_and_a_way_on(
    seen: SeenRefusal,
) -> None:
    error = failure(seen.status, seen.body)
    assert type(error).__name__ == seen.error
    assert error.what.startswith("peer ")
    assert error.what.endswith((".", "?", "!", "…"))
    assert error.remedy


def test_a_refusal_that_names_the_window_teaches_it() -> None:
    too_long = [seen for seen in SEEN if seen.error == "ContextTooLong"]
    assert len(too_long) > 20
    for seen in too_long:
        error = failure(seen.status, seen.body)
        assert isinstance(error, ContextTooLong)
        assert error.window == seen.window, seen.who


def of_llama_cpp(window: object) -> int:
    """The window that is learnt from a refusal of llama.cpp, which names it beside the sentence."""
    said = {"message": "the request exceeds the available context size", "n_ctx": window}
    error = failure(400, {"error": said})
    assert isinstance(error, ContextTooLong)
    return error.window


def test_llama_cpp_names_its_window_beside_the_sentence() -> None:
    assert of_llama_cpp(4096) == 4096


@pytest.mark.parametrize("window", [-5, 0, True, "4096"])
def test_a_window_that_can_be_none_is_none(window: object) -> None:
    assert of_llama_cpp(window) == 0


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


def wait_of_header(text: str) -> float | None:
    return retry_after_seconds({"retry-after": text}, None, NOW)


def test_a_header_says_the_seconds_to_wait_or_until_when() -> None:
    assert wait_of_header("7") == 7.0
    assert wait_of_header("1.5") == 1.5
    assert wait_of_header("0") == 0.0
    assert wait_of_header("Fri, 20 Nov 2026 12:00:30 GMT") == 30.0


def test_a_date_that_has_passed_is_no_wait() -> None:
    assert wait_of_header("Fri, 20 Nov 2026 11:00:00 GMT") == 0.0


@pytest.mark.parametrize(
    "text", ["soon", "-3", "-1", "nan", "inf", "Mon, 1 Jan 2020 00:00:00 +99999999999999999999"]
)
def test_a_header_that_says_no_time_that_can_be_is_as_none(text: str) -> None:
    assert wait_of_header(text) is None


@pytest.mark.parametrize("seconds", ["1", "0", "-1", "inf", "nan"])
def test_milliseconds_count_more_than_seconds(seconds: str) -> None:
    headers = {"retry-after-ms": "250", "retry-after": seconds}
    assert retry_after_seconds(headers) == 0.25


def wait_of_gemini(delay: str) -> float | None:
    body: Any = {"error": {"details": [{"retryDelay": delay}]}}
    return retry_after_seconds({}, body, NOW)


def test_gemini_says_the_wait_among_its_details() -> None:
    assert wait_of_gemini("34.074s") == 34.074
    assert wait_of_gemini("1m2s") == 62.0
    assert wait_of_gemini("later") is None


def wait_of_words(words: str) -> float | None:
    return retry_after_seconds({}, openai(words), NOW)


def test_openai_says_the_wait_in_its_sentence() -> None:
    assert wait_of_words("Rate limit reached. Please try again in 1m3.5s. Visit") == 63.5
    assert wait_of_words("Rate limit reached. Please try again in 350ms.") == 0.35


def test_words_without_a_time_are_no_wait() -> None:
    assert wait_of_words("Try again in a while.") is None
    assert wait_of_words("try again in ..s") is None
    assert retry_after_seconds({}, None, NOW) is None


def what_to_do(status: int, body: Any, error: type[ModelFailed]) -> str:
    found = failure(status, body)
    assert type(found) is error
    return found.remedy


SAID = {"message": "x"}
SET_KEY = "Set a new key for this provider."
TRY_AGAIN = "You can try again."
LIST_MODELS = "To see this provider's models, run helix-desktop model list."


@pytest.mark.parametrize("status", [404, 405])
def test_an_address_that_is_not_there_may_be_wrong(status: int) -> None:
    remedy = what_to_do(status, {"detail": "gone"}, ModelFailed)
    assert remedy == "Check the address and the model name 'm'."


def test_a_model_that_is_not_there_leads_to_those_that_are() -> None:
    by_status = {"error": {"code": 404, "message": "no such thing", "status": "NOT_FOUND"}}
    by_type = {"error": {"type": "not_found_error", "message": "x"}}
    assert what_to_do(404, by_status, UnknownModel) == LIST_MODELS
    assert what_to_do(404, by_type, UnknownModel) == LIST_MODELS


def test_who_must_pay_is_told_so() -> None:
    remedy = what_to_do(402, SAID, NoCreditLeft)
    assert remedy == "Add credit at the provider, or choose another model."


def test_a_key_that_is_refused_is_to_be_set_anew_and_one_that_may_not_is_another_matter() -> None:
    assert what_to_do(401, SAID, ProviderKeyRefused) == SET_KEY
    assert what_to_do(403, SAID, ProviderKeyRefused) == (
        "The key for this provider does not permit this request. Use another key or another model."
    )


def test_below_500_the_words_say_what_is_wrong_and_from_500_on_the_server_is_busy() -> None:
    wrong_key = openai("Incorrect API key provided")
    assert what_to_do(499, wrong_key, ProviderKeyRefused) == SET_KEY
    assert what_to_do(500, wrong_key, ModelOverloaded) == TRY_AGAIN
    assert what_to_do(500, openai("The model `x` does not exist"), ModelOverloaded) == TRY_AGAIN


@pytest.mark.parametrize("status", [529, 530])
def test_an_overloaded_server_can_be_asked_again(status: int) -> None:
    assert what_to_do(status, SAID, ModelOverloaded) == TRY_AGAIN


def test_a_server_that_says_that_it_is_overloaded_is_whatever_its_status() -> None:
    of_anthropic = {"error": {"type": "overloaded_error", "message": "x"}}
    of_google = {"error": {"status": "RESOURCE_EXHAUSTED", "message": "x"}}
    assert what_to_do(400, of_anthropic, ModelOverloaded) == TRY_AGAIN
    assert what_to_do(400, of_google, ModelOverloaded) == TRY_AGAIN
    # Above these stood "Something went wrong", as it says no code that is known.
    in_words = openai("The model is currently overloaded with other requests")
    assert what_to_do(400, in_words, ModelOverloaded) == TRY_AGAIN
    assert what_to_do(400, openai("an overloadedness is no word"), ModelFailed) != TRY_AGAIN


def test_what_a_server_cannot_do_at_all_is_no_window_that_is_too_small() -> None:
    assert type(failure(501, openai("prompt is too long"))) is ModelFailed


def test_a_sentence_is_cut_to_its_longest_length() -> None:
    assert provider_sentence("x" * LONGEST_SENTENCE) == "x" * LONGEST_SENTENCE
    assert provider_sentence("x" * (LONGEST_SENTENCE + 1)) == "x" * (LONGEST_SENTENCE - 1) + "…"


@pytest.mark.parametrize(
    ("location", "host"),
    [
        ("https://a:b@c.example/d?e", "c.example"),
        ("//x", "another address"),
        ("", "another address"),
    ],
)
def test_a_redirect_is_named_without_its_path_and_without_a_password(
    location: str, host: str
) -> None:
    error = failure(302, "", location=location)
    assert error.what.startswith(f"peer redirected the request to {host}.")


def test_a_refusal_that_comes_in_a_list_is_understood_by_its_code() -> None:
    refused = openai("Please shorten.", "context_length_exceeded")
    assert type(failure(400, refused)) is ContextTooLong
    assert type(failure(400, [refused])) is ContextTooLong
    assert type(failure(400, [])) is ModelFailed
    assert type(failure(400, [openai("no")])) is ModelFailed


@pytest.mark.parametrize("where", ["type", "code", "status"])
def test_a_long_code_is_read_as_far_as_a_code_can_be_long(where: str) -> None:
    """22 KB of `requested tokens exceed` took more than a minute, in which the program
    did nothing else.
    """
    long = "requested tokens exceed " * 100_000
    with_long_codes = {"error": {where: long, "details": [{"reason": long}] * 1_000}}
    assert type(failure(400, with_long_codes)) is ModelFailed
    with_a_code = {"error": {where: "context_length_exceeded"}}
    assert type(failure(400, with_a_code)) is ContextTooLong
