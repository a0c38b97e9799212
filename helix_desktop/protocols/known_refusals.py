"""What providers and local servers are known to say when they refuse a request.

Providers agree on no codes, so the sentence itself is searched. Each constant is what
may occur in a sentence of one kind.
"""

import re


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


# A request that is larger than the model's context. `(?s:` lets a dot stand for a line
# break, too.
CONTEXT_TOO_LONG = _any_of(
    r"context_length_exceeded",
    r"string_above_max_length",
    r"exceed_context_size",
    r"model_context_window_exceeded",
    r"request_too_large",
    r"maximum (context|prompt) length",
    r"exceeds? (the |its |model's )?(available |maximum |model )?context",
    r"context (window|length|size|limit) (of this model )?(is |was |has been )?(exceed|overflow|too (small|short))",
    r"exceeds the context window",
    r"larger than the context",
    r"prompt is too long",
    r"input is too long",
    r"prompt too long",
    r"(?s:input length and .?max_tokens.? exceed)",
    r"exceeds? context limit",
    r"(?s:(input|prompt) token count.*exceed)",
    r"exceeds the (maximum )?(number of tokens|(input )?token (limit|count))",
    r"exceeded model token limit",
    r"token limit exceeded",
    r"too large for model with \d+",
    r"reduce the length of the (messages|prompt|input)",
    r"too many (input )?tokens",
    r"context the overflows",
    r"loaded with context length of only",
    r"(?s:requested tokens.*exceed.*context)",
    r"(longer|greater) than the (model's context length|maximum model length|context length)",
    r"context length is only \d",
    r"(?s:input length .*exceeds the maximum)",
    r"range of input length",
    r"prompt exceeds max",
    r"prompt 超长",
    r"(?s:prompt_tokens .*must be less than)",
    r"exceed max message tokens",
    r"(?s:inputs.? tokens.*must be <=)",
    r"request too large for",
    r"exceeds the limit of \d+ tokens",
)

# Refusals that state the window's size, not that of the request or reply.
WINDOW_SIZE = _any_of(
    r"(?:maximum (?:context|prompt|model)|model's context) length (?:is (?:only )?|of |\()(\d[\d,]*)",
    r"> (\d[\d,]*)(?: maximum|$)",
    r"maximum number of tokens allowed \((\d[\d,]*)",
    r"context length of only (\d[\d,]*)",
    r"context (?:size|window) (?:of |\()(\d[\d,]*)",
    r"too large for model with (\d[\d,]*)",
    r"maximum allowed length \((\d[\d,]*)",
    r"model token limit: (\d[\d,]*)",
    r"must be <= (\d[\d,]*)",
    r"max_seq_len \((\d[\d,]*)",
    r"input length should be \[1, (\d[\d,]*)",
)

# A key that is missing or wrong.
KEY_REFUSED = _any_of(
    r"invalid_api_key",
    r"api_key_invalid",
    r"api key not valid",
    r"(invalid|incorrect|missing|no) (x-)?api[- ]key",
    r"authentication_error",
    r"invalid authentication",
    r"you didn't provide an api key",
    r"api key (is )?(expired|required)",
)

# A model that does not exist, or not for this key.
UNKNOWN_MODEL = _any_of(
    r"model_not_found",
    r"model[_ ]not[_ ](found|exist)",
    r"not a valid model",
    r"does not exist or you do not have access",
    r"unknown model",
    r"invalid model",
    r"try pulling it first",
    r"no models? (is |are )?loaded",
    r"models/\S+ is not found",
    r"""model ['\"`]?[^'\"`]*['\"`]? (does not exist|not found|is not found)""",
    r"not_found_error.*model",
    r"model:.*not_found",
)

# An account without money or quota.
NO_CREDIT = _any_of(
    r"insufficient_quota",
    r"insufficient balance",
    r"credit balance is too low",
    r"insufficient credits",
    r"billing_error",
    r"requires more credits",
    r"payment required",
)

OVERLOADED = _any_of(
    r"\boverloaded\b",
    r"(is|are) (currently )?at capacity",
)

# A model that cannot call tools.
NO_TOOLS = _any_of(
    r"does not support (tools|function)",
    r"tool use is not supported",
    r"tools? (is|are) not supported",
)

# The same, as words in lower case: after these, the gateway folds more of an agent's
# request and sends it again.
TOO_LONG_FOR_GATEWAY = (
    "too long",
    "too large",
    "context_length",
    "context window",
    "maximum context",
    "exceeds the maximum number of tokens",
)
