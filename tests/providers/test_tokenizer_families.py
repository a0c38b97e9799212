"""Estimates for vocabularies that are not the one we count with, beside what the models' own
tokenizers counted (`tokenizer_counts.json`; the texts were in no fit).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.facts import Text, ToolSpec
from helix_desktop.engine.messages import Message, Request, Role
from helix_desktop.providers.tokenizer_families import (
    FAMILY_OF_UNKNOWN_MODELS,
    TOKENS_OF_TURN_MARKS,
    estimate_request_tokens,
    estimate_tokens_of_texts,
    find_tokenizer_family,
)
from helix_desktop.token_counting import shared_token_counter

COUNTED_TEXTS: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("tokenizer_counts.json").read_text("utf-8")
)
MODELS = {
    "qwen3": "qwen3:8b",
    "llama3": "llama3.2:3b",
    "gemma3": "gemma3:4b",
    "mistral_nemo": "mistral-nemo:12b",
    "deepseek_v3": "deepseek-v3:671b",
    "llama2": "tinyllama:1.1b",
    "command_r_plus": "command-r-plus",
    "smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf",
}


def _errors(tokenizer: str, model: str) -> list[float]:
    """Return how far off the estimate is for each text, as a share of the true count."""
    tokens = shared_token_counter()
    errors: list[float] = []
    for counted in COUNTED_TEXTS:
        estimated = estimate_tokens_of_texts(model, [counted["text"]], tokens)
        errors.append(abs(estimated / counted["tokens"][tokenizer] - 1))
    return errors


@pytest.mark.parametrize(("tokenizer", "model"), MODELS.items())
def test_estimates_come_within_fifteen_percent(tokenizer: str, model: str) -> None:
    errors = _errors(tokenizer, model)
    assert sorted(errors)[len(errors) * 9 // 10] <= 0.15
    assert max(errors) <= 0.25


def test_our_own_count_is_far_off_for_a_small_vocabulary() -> None:
    as_counted = _errors("smollm2", "gpt-oss:20b")
    estimated = _errors("smollm2", MODELS["smollm2"])
    assert sum(estimated) < sum(as_counted) / 3


@pytest.mark.parametrize(
    ("model", "family_of"),
    [
        ("deepseek-r1-distill-llama-8b", "llama3.2"),
        ("DeepSeek-R1-Distill-Qwen-1.5B", "qwen3"),
        ("TinyLlama-1.1B-Chat", "llama2"),
        ("hf.co/unsloth/Qwen3-4B-GGUF:Q4_K_M", "qwen3"),
    ],
)
def test_names_find_the_vocabulary_they_were_trained_with(model: str, family_of: str) -> None:
    assert find_tokenizer_family(model) == find_tokenizer_family(family_of)


def test_other_names_are_estimated_as_the_usual_ones_together() -> None:
    assert find_tokenizer_family("my-assistant") == FAMILY_OF_UNKNOWN_MODELS


def test_a_request_has_the_marks_of_its_template_and_its_tools_as_json() -> None:
    tokens = shared_token_counter()
    question = Message(Role.USER, (Text("Which port?"),))
    plain = estimate_request_tokens("gpt-oss", Request("m", "Be brief.", (question,)), tokens)
    words = tokens.count_tokens("Be brief.") + tokens.count_tokens("Which port?")
    assert plain == words + 3 * TOKENS_OF_TURN_MARKS
    tool = ToolSpec("look", "Look at a file.", '{"type":"object","properties":{}}')
    with_tool = estimate_request_tokens(
        "gpt-oss", Request("m", "Be brief.", (question,), tools=(tool,)), tokens
    )
    assert with_tool > plain + tokens.count_tokens(tool.name + tool.description + tool.schema)
