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
LONGEST_CODE, MOST_CODES = 80, 10

_RETRIED_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
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
    said = provider_sentence(refusal.body)
    evidence = f"{_error_codes(refusal.body)} {said}"
    stop = "" if said.endswith((".", "!", "?", "…", "。")) else "."
    told = (
        f"{refusal.where} says: {said}{stop}"
        if said
        else f"{refusal.where} answered with status {refusal.status}."
    )
    return (
        _request_failure(refusal, evidence, told)
        or _account_failure(refusal, evidence, told)
        or _load_failure(refusal, evidence, told)
        or errors.ModelFailed(
            told, remedy=f"The request was refused (status {refusal.status}), and nothing was lost."
        )
    )


def _request_failure(
    refusal: ProviderRefusal, evidence: str, sentence: str
) -> errors.ModelFailed | None:
    if refusal.status == 413 or (
        refusal.status <= 500 and known_refusals.CONTEXT_TOO_LONG.search(evidence)
    ):
        remedy = "Fold more of the conversation, or choose a model with a larger context window."
        return errors.ContextTooLong(
            sentence, remedy=remedy, window=_window_in_refusal(refusal.body, sentence=evidence)
        )
    if known_refusals.NO_TOOLS.search(evidence):
        return errors.ModelFailed(sentence, remedy="Choose a model that can call tools.")
    if 300 <= refusal.status < 400:
        target = refusal.headers.get("location", "")
        host = re.sub(r"^(https?://)?([^/]*@)?([^/?#]*).*$", r"\3", target) or "another address"
        return errors.ModelFailed(
            f"{refusal.where} redirected the request to {host}. The redirect was not followed, because the key would have been sent to the new address, too.",
            remedy="If you trust the new address, set it as this provider's address.",
        )
    return None


def _window_in_refusal(body: Json, sentence: str) -> int:
    """Return the model's window in tokens as the refusal states it, or 0."""
    exact = value_at(body, "error", "n_ctx")  # llama.cpp's field for the window's size.
    if isinstance(exact, int) and not isinstance(exact, bool):
        return max(0, exact)
    found = known_refusals.WINDOW_SIZE.search(sentence)
    return int(re.sub(r"\D", "", next(filter(None, found.groups())))) if found else 0


def _account_failure(
    refusal: ProviderRefusal, evidence: str, sentence: str
) -> errors.ModelFailed | None:
    if refusal.status == 402 or known_refusals.NO_CREDIT.search(evidence):
        return errors.NoCreditLeft(
            sentence, remedy="Add credit at the provider, or choose another model."
        )
    if refusal.status == 401 or (
        refusal.status < 500 and known_refusals.KEY_REFUSED.search(evidence)
    ):
        return errors.ProviderKeyRefused(sentence, remedy="Set a new key for this provider.")
    if refusal.status < 500 and known_refusals.UNKNOWN_MODEL.search(evidence):
        return errors.UnknownModel(
            sentence, remedy="To see this provider's models, run helix-desktop model list."
        )
    if refusal.status == 403:
        return errors.ProviderKeyRefused(
            sentence,
            remedy="The key for this provider does not permit this request. Use another key or another model.",
        )
    return _not_found_failure(refusal, sentence) if refusal.status in {404, 405} else None


def _not_found_failure(refusal: ProviderRefusal, sentence: str) -> errors.ModelFailed:
    if (
        "not_found_error" in _error_codes(refusal.body)
        or text_at(refusal.body, "error", "status") == "NOT_FOUND"
    ):
        return errors.UnknownModel(
            sentence, remedy="To see this provider's models, run helix-desktop model list."
        )
    model = f" and the model name {refusal.model!r}" if refusal.model else ""
    return errors.ModelFailed(sentence, remedy=f"Check the address{model}.")


def _load_failure(
    refusal: ProviderRefusal, evidence: str, sentence: str
) -> errors.ModelOverloaded | None:
    overloaded = (
        "overloaded_error" in evidence
        or "rate_limit_e" in evidence
        or "RESOURCE_EXHAUSTED" in evidence
    )
    if refusal.status in _RETRIED_STATUS or refusal.status > 529 or overloaded:
        return errors.ModelOverloaded(
            sentence,
            remedy="You can try again.",
            retry_after=retry_after_seconds(refusal.headers, refusal.body),
        )
    return None


def provider_sentence(body: Json) -> str:
    """Return the provider's own words, wherever they are, as one line of limited length."""
    if isinstance(body, list) and body:
        return provider_sentence(body[0])
    paths = (
        ("error", "metadata", "raw"),
        ("error", "message"),
        ("message",),
        ("error",),
        ("detail",),
        ("detail", 0, "msg"),
        ("title",),
    )
    found = (
        body
        if isinstance(body, str)
        else next((said for path in paths if (said := text_at(body, *path))), "")
    )
    if re.match(r"\s*<(!doctype|html)", found, re.IGNORECASE):
        return "a web page instead of an answer"
    return shorten_to_line(found, LONGEST_SENTENCE)


def _error_codes(body: Json) -> str:
    if isinstance(body, list) and body:
        return _error_codes(body[0])
    named = (value_at(body, "error", name) for name in ("type", "code", "status"))
    reasons = (
        value_at(detail, "reason") for detail in list_at(body, "error", "details")[:MOST_CODES]
    )
    top = (value_at(body, "type"), value_at(body, "code"))
    codes = [
        str(one)[:LONGEST_CODE] for one in (*named, *top, *reasons) if isinstance(one, str | int)
    ]
    return " ".join(codes[:MOST_CODES])


def retry_after_seconds(
    headers: Mapping[str, str], body: Json = None, now: datetime | None = None
) -> float | None:
    """Return how many seconds the provider asks to wait, in any of the usual forms, or None."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        if (seconds := _non_negative_number(headers.get(name, ""))) is not None:
            return seconds / scale
    if date := headers.get("retry-after", ""):
        try:
            when = parsedate_to_datetime(date)
        except (ValueError, TypeError, OverflowError):
            return None
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        return max(0.0, (when - (now or datetime.now(UTC))).total_seconds())
    delays = [text_at(detail, "retryDelay") for detail in list_at(body, "error", "details")]
    delays += [match[1] for match in _TRY_AGAIN.finditer(provider_sentence(body))]
    return next((_seconds_of_duration(delay) for delay in delays if delay), None)


def _non_negative_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _seconds_of_duration(duration: str) -> float | None:
    match = _DURATION.fullmatch(duration.strip())
    if match is None or not any(match.groups()):
        return None
    minutes, seconds, milliseconds = (float(group or 0) for group in match.groups())
    return minutes * 60 + seconds + milliseconds / 1000
