"""Converts a provider's refusal (status and body) to an error with a sentence and a remedy.

Providers agree on little, not even on where the sentence is, so the sentence itself is
examined: `known_refusals.py` has what providers and local servers are known to say.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from helix_desktop import errors
from helix_desktop.errors import shorten_to_line
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import Json, list_at, parse_json, text_at, value_at
from helix_desktop.protocols import known_refusals

LONGEST_SENTENCE = 600
# These patterns take more than twice as long for a text twice as long, so they only see
# short texts.
LONGEST_CODE = 80
MOST_CODES = 10

_RETRIED_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
_OVERLOAD_CODES = ("overloaded_error", "rate_limit_e", "RESOURCE_EXHAUSTED")
# Where providers put their sentence, the most exact place first.
_PLACES_OF_SENTENCE: tuple[tuple[str | int, ...], ...] = (
    ("error", "metadata", "raw"),
    ("error", "message"),
    ("message",),
    ("error",),
    ("detail",),
    ("detail", 0, "msg"),
    ("title",),
)
_TRY_AGAIN = re.compile(r"(?:try again|retry) in ((?:[\d.]+(?:ms|m|s))+)", re.IGNORECASE)
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")


@dataclass(frozen=True, slots=True)
class ProviderRefusal:
    """An answer that is no reply. `where`: the provider's name, for the sentence."""

    where: str
    status: int
    body: Json
    headers: Mapping[str, str]
    model: str = ""


def read_refusal_body(content: bytes) -> Json:
    """Return a refusal's body as JSON, or else as text."""
    try:
        return parse_json(content)
    except ValueError:
        return content.decode("utf-8", errors="replace")


def failure_of_refusal(refusal: ProviderRefusal) -> errors.ModelFailed:
    """Return the error that a refusal is, with what the user can do about it.

    It may be about the request, the account or the provider's load, which is tried in this
    order: each is told by the status, or by words that providers are known to use.
    """
    providers_words = provider_sentence(refusal.body)
    # Codes are examined, too, but not shown: they say nothing to people.
    evidence = f"{_error_codes(refusal.body)} {providers_words}"
    sentence = _sentence_about(refusal, providers_words)
    failure = (
        _request_failure(refusal, evidence, sentence)
        or _account_failure(refusal, evidence, sentence)
        or _load_failure(refusal, evidence, sentence)
    )
    if failure is not None:
        return failure
    return errors.ModelFailed(
        sentence, remedy=f"The request was refused (status {refusal.status}), and nothing was lost."
    )


def _sentence_about(refusal: ProviderRefusal, providers_words: str) -> str:
    if not providers_words:
        return f"{refusal.where} answered with status {refusal.status}."
    if providers_words.endswith((".", "!", "?", "…", "。")):
        return f"{refusal.where} says: {providers_words}"
    return f"{refusal.where} says: {providers_words}."


def _request_failure(
    refusal: ProviderRefusal, evidence: str, sentence: str
) -> errors.ModelFailed | None:
    """Return the error if the request itself was refused: too long, with tools, or redirected."""
    # Some local servers refuse a long request with status 500.
    says_too_long = refusal.status <= 500 and known_refusals.CONTEXT_TOO_LONG.search(evidence)
    if refusal.status == 413 or says_too_long:
        return errors.ContextTooLong(
            sentence,
            remedy="Shorten more of the conversation, or choose a model with a larger context window.",
            window=window_in_refusal(refusal.body, sentence=evidence),
        )
    if known_refusals.NO_TOOLS.search(evidence):
        return errors.ModelFailed(sentence, remedy="Choose a model that can call tools.")
    if 300 <= refusal.status < 400:
        return _redirect_failure(refusal)
    return None


def _redirect_failure(refusal: ProviderRefusal) -> errors.ModelFailed:
    """Say to where the provider redirected the request. No redirect is followed."""
    # The host alone is shown, since an address can have a password or a key in it.
    target = refusal.headers.get("location", "")
    host = re.sub(r"^(https?://)?([^/]*@)?([^/?#]*).*$", r"\3", target) or "another address"
    return errors.ModelFailed(
        f"{refusal.where} redirected the request to {host}. The redirect was not followed, because the key would have been sent to the new address, too.",
        remedy="If you trust the new address, set it as this provider's address.",
    )


def window_in_refusal(body: Json, sentence: str) -> int:
    """Return the model's window in tokens as the refusal states it, or 0."""
    exact_size = value_at(body, "error", "n_ctx")  # llama.cpp's field for the window's size.
    if isinstance(exact_size, int) and not isinstance(exact_size, bool):
        return max(0, exact_size)
    match = known_refusals.WINDOW_SIZE.search(sentence)
    if match is None:
        return 0
    # The pattern has a group for each wording, of which one matched.
    for stated_size in match.groups():
        if stated_size:
            digits = re.sub(r"\D", "", stated_size)
            return int(digits)
    return 0


def _account_failure(
    refusal: ProviderRefusal, evidence: str, sentence: str
) -> errors.ModelFailed | None:
    """Return the error if the account was refused: its credit, its key or its use of a model."""
    is_servers_fault = refusal.status >= 500
    if refusal.status == 402 or known_refusals.NO_CREDIT.search(evidence):
        return errors.NoCreditLeft(
            sentence, remedy="Add credit at the provider, or choose another model."
        )
    says_key_refused = not is_servers_fault and known_refusals.KEY_REFUSED.search(evidence)
    if refusal.status == 401 or says_key_refused:
        return errors.ProviderKeyRefused(sentence, remedy="Set a new key for this provider.")
    if not is_servers_fault and known_refusals.UNKNOWN_MODEL.search(evidence):
        return errors.UnknownModel(
            sentence, remedy="To see this provider's models, run helix-desktop model list."
        )
    if refusal.status == 403:
        return errors.ProviderKeyRefused(
            sentence,
            remedy="The key for this provider does not permit this request. Use another key or another model.",
        )
    if refusal.status in {404, 405}:
        return _not_found_failure(refusal, sentence)
    return None


def _not_found_failure(refusal: ProviderRefusal, sentence: str) -> errors.ModelFailed:
    """Say whether the model or the address is wrong, as far as the refusal tells."""
    # Anthropic's and Google's own codes show that the address is right, and the model is not.
    is_anthropics_code = "not_found_error" in _error_codes(refusal.body)
    is_googles_code = text_at(refusal.body, "error", "status") == "NOT_FOUND"
    if is_anthropics_code or is_googles_code:
        return errors.UnknownModel(
            sentence, remedy="To see this provider's models, run helix-desktop model list."
        )
    if not refusal.model:
        return errors.ModelFailed(sentence, remedy="Check the address.")
    return errors.ModelFailed(
        sentence, remedy=f"Check the address and the model name {refusal.model!r}."
    )


def _load_failure(
    refusal: ProviderRefusal, evidence: str, sentence: str
) -> errors.ModelOverloaded | None:
    """Return the error after which the request is sent again, if the provider is overloaded."""
    has_overload_code = any(code in evidence for code in _OVERLOAD_CODES)
    # Some providers say it with the status of a wrong request.
    says_overloaded = has_overload_code or known_refusals.OVERLOADED.search(evidence)
    has_retried_status = refusal.status in _RETRIED_STATUS or refusal.status > 529
    if not says_overloaded and not has_retried_status:
        return None
    return errors.ModelOverloaded(
        sentence,
        remedy="You can try again.",
        retry_after=retry_after_seconds(refusal.headers, refusal.body),
    )


def provider_sentence(body: Json) -> str:
    """Return the provider's own words, wherever they are, as one line of limited length."""
    if isinstance(body, list) and body:
        return provider_sentence(body[0])
    text = _text_in_body(body)
    # A proxy or a wrong address answers with a page for people.
    if re.match(r"\s*<(!doctype|html)", text, re.IGNORECASE):
        return "a web page instead of an answer"
    return shorten_to_line(text, LONGEST_SENTENCE)


def _text_in_body(body: Json) -> str:
    """Return the provider's sentence from the most exact place that has one."""
    if isinstance(body, str):
        return body
    for path in _PLACES_OF_SENTENCE:
        text = text_at(body, *path)
        if text:
            return text
    return ""


def _error_codes(body: Json) -> str:
    """Return the words for programs in a refusal, such as `rate_limit_error`."""
    if isinstance(body, list) and body:
        return _error_codes(body[0])
    values = [
        value_at(body, "error", "type"),
        value_at(body, "error", "code"),
        value_at(body, "error", "status"),
        value_at(body, "type"),
        value_at(body, "code"),
    ]
    for detail in list_at(body, "error", "details")[:MOST_CODES]:
        values.append(value_at(detail, "reason"))
    codes: list[str] = []
    for value in values:
        if isinstance(value, str | int):
            codes.append(str(value)[:LONGEST_CODE])
    return " ".join(codes[:MOST_CODES])


def retry_after_seconds(
    headers: Mapping[str, str], body: Json = None, now: datetime | None = None
) -> float | None:
    """Return how many seconds the provider asks to wait, in any of the usual forms, or None."""
    milliseconds = _non_negative_number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    retry_after = headers.get("retry-after", "")
    seconds = _non_negative_number(retry_after)
    if seconds is not None:
        return seconds
    if retry_after:
        return _seconds_until_date(retry_after, now or datetime.now(UTC))
    return _retry_delay_in_body(body)


def _seconds_until_date(date: str, now: datetime) -> float | None:
    """Return the seconds until the date in a header, or None if it is no date."""
    try:
        time = parsedate_to_datetime(date)
    except (ValueError, TypeError, OverflowError):
        return None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    seconds = (time - now).total_seconds()
    return max(0.0, seconds)


def _retry_delay_in_body(body: Json) -> float | None:
    """Return the delay in Google's field for it, or else the one that the sentence names."""
    for detail in list_at(body, "error", "details"):
        delay = text_at(detail, "retryDelay")
        if delay:
            return _seconds_of_duration(delay)
    match = _TRY_AGAIN.search(provider_sentence(body))
    if match is None:
        return None
    return _seconds_of_duration(match[1])


def _non_negative_number(text: str) -> float | None:
    """Return a number of seconds or milliseconds in a header, or None if it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    # Infinity and what is no number would let the program wait for ever.
    if not 0 <= value < float("inf"):
        return None
    return value


def _seconds_of_duration(duration: str) -> float | None:
    """Return the seconds of a duration such as `1m30s` or `250ms`, or None if it is none."""
    match = _DURATION.fullmatch(duration.strip())
    if match is None or not any(match.groups()):
        return None
    minutes = float(match[1] or 0)
    seconds = float(match[2] or 0)
    milliseconds = float(match[3] or 0)
    return minutes * 60 + seconds + milliseconds / 1000
