"""The demonstration answers in the language it is written to."""

from __future__ import annotations

import ast
import json
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from helix_desktop import resources
from helix_desktop.engine.facts import ToolCall
from helix_desktop.engine.messages import Request, TextDelta
from helix_desktop.program_settings import LANGUAGES
from helix_desktop.providers import demo_model, demo_tour
from helix_desktop.providers.demo_language import MARKS, choose_translator, translations_of
from helix_desktop.providers.demo_model import DemoModel
from tests.providers.asking import assistant, heard, user
from tests.providers.test_demo_model import TOOLS, reply_to, tour, words

OTHERS = [name for name in LANGUAGES if name != "en"]


def sentences() -> Iterator[str]:
    """What the script may say: sentences, the points of its plan, what it asks to be kept."""
    yield from demo_tour.PLAN
    for module in (demo_model, demo_tour):
        tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
        told = {
            id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
        }  # docstrings
        texts = [
            str(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and id(node) not in told
        ]
        yield from (text for text in texts if text[:1].isupper() and text.endswith((".", "?")))
        yield from (
            text for text in texts if text.startswith(("`{", "You wrote: ", "the line of "))
        )


@pytest.mark.parametrize("language", OTHERS)
def test_every_sentence_is_in_the_table_and_none_that_is_never_said(language: str) -> None:
    assert set(translations_of(language)) == set(sentences())


@pytest.mark.parametrize("language", OTHERS)
def test_what_is_put_in_stays(language: str) -> None:
    def names(text: str) -> set[str | None]:
        return {name for _, name, _, _ in string.Formatter().parse(text)}

    assert [
        text for text, other in translations_of(language).items() if names(text) != names(other)
    ] == []


@pytest.mark.parametrize("language", OTHERS)
async def test_the_windows_first_message_is_answered_in_its_language(language: str) -> None:
    file = resources.resources_folder() / "translations" / f"{language}.json"
    asked = json.loads(file.read_text("utf-8"))["Show me what you can do"]
    messages, closing = await tour(asked=asked)
    deltas, reply = await heard(DemoModel(), Request("demo/demo", "", (user(asked),), TOOLS))
    pieces = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
    assert "".join(pieces) == words(reply)
    assert max(map(len, pieces)) < 40, "as quick in a script without spaces"
    said = closing + "".join(str(part) for message in messages for part in message.parts)
    assert [text for text in sentences() if "{" not in text and text in said] == []
    (plan,) = [part for part in messages[1].parts if isinstance(part, ToolCall)]
    assert (
        json.loads(plan.arguments)["items"][0]["text"]
        == translations_of(language)["Look at the folder"]
    )
    after = words(await reply_to(user(asked), assistant("…"), user("hm?")))
    assert translations_of(language)[demo_model.WHO] in after, (
        "what may be of any language goes by what was written before"
    )


def test_what_is_of_no_known_language_is_answered_in_english() -> None:
    assert set(MARKS) == set(OTHERS)
    for text in ("tour", "What does main.py do, and was it ever used?", "Où est la sortie ?"):
        assert choose_translator([text])("What is in this folder?") == "What is in this folder?"
