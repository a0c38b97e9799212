"""Estimates how many tokens a model on this computer needs for a text that we have counted.

We count with OpenAI's vocabulary. Most open models need a few percent more for English and code,
but a small vocabulary splits digits, accented letters and other scripts into many more tokens:
SmolLM2 needs 45 % more for German and twice as many for Japanese. Servers such as Ollama and LM
Studio do not count on request, and Ollama silently drops the beginning of what does not fit.

The weights below were fitted to texts of 13 kinds (prose, code, logs, JSON, seven languages) with
the models' own tokenizers. On other texts of these kinds, 95 % of the estimates are at most 15 %
off. `tests/benchmarks/tokenizers.py` measures this again.
"""

import json
import re
from collections.abc import Iterable

from helix_desktop.engine.facts import Reasoning, Text, ToolCall, ToolSpec
from helix_desktop.engine.messages import Request, ToolResult
from helix_desktop.engine.ports import TokenCounter
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import parse_json_or_none

TOKENS_OF_TURN_MARKS = 5  # `<|im_start|>user`, `<|im_end|>` and the line ends of ChatML.
# What Qwen's, Hermes' and Llama's templates say of tools and of how they are called.
TOKENS_OF_TOOL_INSTRUCTIONS = 100
_ACCENTED_LETTERS = re.compile(r"[\u00c0-\u024f]+")
_CHINESE_CHARACTERS = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]+")
_KANA_AND_HANGUL = re.compile(r"[\u3040-\u30ff\uac00-\ud7af]+")
# Greek, Cyrillic, Hebrew, Arabic, and the scripts of India and South East Asia.
_OTHER_LETTERS = re.compile(r"[\u0370-\u06ff\u0900-\u0fff]+")

# German nouns: German is split into more tokens than English, and has few accented letters.
_CAPITALISED_WORD_IN_A_LINE = re.compile(r" [A-Z][a-z\u00e0-\u00ff]{3,}")


@dataclass(frozen=True, slots=True)
class ScriptCounts:
    """The tokens of a text as we count them, and its characters that vocabularies treat
    differently.
    """

    tokens: int = 0
    digits: int = 0
    accented: int = 0
    chinese: int = 0
    kana_and_hangul: int = 0
    other_letters: int = 0
    capitalised_words: int = 0


@dataclass(frozen=True, slots=True)
class TokenizerFamily:
    """Models with the same vocabulary: parts of their names, and the tokens they need for
    each token that we count, with what each character of a kind adds or saves.
    """

    name_parts: tuple[str, ...]
    token: float
    digit: float
    accented: float
    chinese: float
    kana_and_hangul: float
    other_letter: float
    capitalised_word: float

    def estimate_tokens(self, counts: ScriptCounts) -> float:
        """Return the tokens that the family's models need for a text with these counts."""
        return (
            self.token * counts.tokens
            + self.digit * counts.digits
            + self.accented * counts.accented
            + self.chinese * counts.chinese
            + self.kana_and_hangul * counts.kana_and_hangul
            + self.other_letter * counts.other_letters
            + self.capitalised_word * counts.capitalised_words
        )


# The first family with a part of the model's name applies, so the names of models that were
# distilled into another family's model (`deepseek-r1-distill-llama-8b`) find that family.
TOKENIZER_FAMILIES = (
    TokenizerFamily(
        ("smollm",),
        token=1.14,
        digit=0.44,
        accented=3.67,
        chinese=0.94,
        kana_and_hangul=1.01,
        other_letter=0.59,
        capitalised_word=1.49,
    ),
    TokenizerFamily(
        ("llama2", "llama-2", "tinyllama", "codellama", "vicuna", "phi3", "phi-3"),
        token=1.22,
        digit=0.32,
        accented=1.28,
        chinese=0.23,
        kana_and_hangul=0.21,
        other_letter=0.10,
        capitalised_word=0.28,
    ),
    TokenizerFamily(
        ("qwen", "qwq"),
        token=0.98,
        digit=0.48,
        accented=1.17,
        chinese=-0.04,
        kana_and_hangul=-0.12,
        other_letter=0.07,
        capitalised_word=0.75,
    ),
    TokenizerFamily(
        ("llama",),
        token=0.99,
        digit=-0.02,
        accented=0.99,
        chinese=0.03,
        kana_and_hangul=-0.08,
        other_letter=0.05,
        capitalised_word=0.80,
    ),
    TokenizerFamily(
        ("gemma",),
        token=1.12,
        digit=0.35,
        accented=-0.47,
        chinese=-0.20,
        kana_and_hangul=-0.38,
        other_letter=-0.04,
        capitalised_word=-0.74,
    ),
    TokenizerFamily(
        ("mistral-nemo", "mistral-small", "ministral", "devstral", "magistral"),
        token=1.04,
        digit=0.57,
        accented=1.04,
        chinese=0.23,
        kana_and_hangul=-0.14,
        other_letter=0.04,
        capitalised_word=-0.28,
    ),
    TokenizerFamily(
        ("deepseek",),
        token=1.06,
        digit=-0.12,
        accented=1.12,
        chinese=-0.15,
        kana_and_hangul=-0.13,
        other_letter=0.03,
        capitalised_word=0.33,
    ),
    TokenizerFamily(
        ("command-r", "command-a", "aya"),
        token=1.09,
        digit=0.39,
        accented=0.38,
        chinese=-0.08,
        kana_and_hangul=-0.30,
        other_letter=-0.03,
        capitalised_word=-0.39,
    ),
    TokenizerFamily(  # Has the vocabulary that we count with.
        ("gpt-oss",),
        token=1.00,
        digit=0.00,
        accented=0.00,
        chinese=0.00,
        kana_and_hangul=0.00,
        other_letter=0.00,
        capitalised_word=0.00,
    ),
)
# Fitted to Qwen, Llama 3, Gemma, Mistral Nemo and DeepSeek together. The first replies correct it.
FAMILY_OF_UNKNOWN_MODELS = TokenizerFamily(
    (),
    token=1.04,
    digit=0.19,
    accented=0.81,
    chinese=-0.04,
    kana_and_hangul=-0.17,
    other_letter=0.03,
    capitalised_word=0.22,
)


def find_tokenizer_family(model: str) -> TokenizerFamily:
    """Return the family of a model, by its name as its server lists it."""
    name = model.lower()
    for family in TOKENIZER_FAMILIES:
        if any(part in name for part in family.name_parts):
            return family
    return FAMILY_OF_UNKNOWN_MODELS


def count_scripts(texts: Iterable[str], tokens: TokenCounter) -> ScriptCounts:
    """Count the tokens of texts as we count them, and the characters of each script."""
    token_count = 0
    digits = 0
    accented = 0
    chinese = 0
    kana_and_hangul = 0
    other_letters = 0
    capitalised_words = 0
    for text in texts:
        token_count += tokens.count_tokens(text)
        digits += sum(text.count(digit) for digit in "0123456789")
        capitalised_words += len(_CAPITALISED_WORD_IN_A_LINE.findall(text))
        if text.isascii():
            continue
        accented += _count_characters(_ACCENTED_LETTERS, text)
        chinese += _count_characters(_CHINESE_CHARACTERS, text)
        kana_and_hangul += _count_characters(_KANA_AND_HANGUL, text)
        other_letters += _count_characters(_OTHER_LETTERS, text)
    return ScriptCounts(
        tokens=token_count,
        digits=digits,
        accented=accented,
        chinese=chinese,
        kana_and_hangul=kana_and_hangul,
        other_letters=other_letters,
        capitalised_words=capitalised_words,
    )


def _count_characters(pattern: re.Pattern[str], text: str) -> int:
    return sum(len(run) for run in pattern.findall(text))


def estimate_tokens_of_texts(model: str, texts: Iterable[str], tokens: TokenCounter) -> float:
    """Return about how many tokens the model needs for these texts."""
    counts = count_scripts(texts, tokens)
    return find_tokenizer_family(model).estimate_tokens(counts)


def estimate_request_tokens(model: str, request: Request, tokens: TokenCounter) -> int:
    """Return about how many tokens the model's server makes of a request with its chat template."""
    texts = [request.system]
    texts += [_format_tool_for_template(tool) for tool in request.tools]
    texts += list_message_texts(request)
    # The system prompt and the beginning of the reply have marks, too.
    marks = TOKENS_OF_TURN_MARKS * (len(request.messages) + 2)
    if request.tools:
        marks += TOKENS_OF_TOOL_INSTRUCTIONS
    return round(estimate_tokens_of_texts(model, texts, tokens)) + marks


def list_message_texts(request: Request) -> list[str]:
    """Return the texts of a request's messages, without its system prompt and tools."""
    texts: list[str] = []
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, Text | Reasoning | ToolResult):
                texts.append(part.text)
            elif isinstance(part, ToolCall):
                texts.append(part.name + part.arguments)
    return texts


def _format_tool_for_template(tool: ToolSpec) -> str:
    """Return a tool as chat templates write it: JSON with spaces, which takes up a fifth more
    than the schema that we store.
    """
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": parse_json_or_none(tool.schema),
    }
    return json.dumps({"type": "function", "function": function}, ensure_ascii=False)
