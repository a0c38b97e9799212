"""The model chooser: found by words, by keyboard alone, at once with a thousand models."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QFontMetrics
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import QPushButton, QWidget

from helix_desktop.engine.context_usage import WindowSizeSource
from helix_desktop.gui import translation
from helix_desktop.gui.frame.model_chooser import (
    GAP,
    PRICE,
    ModelChooser,
    format_model_price,
    format_model_window,
    group_models,
    model_abilities,
    width_of_price_column,
)
from helix_desktop.gui.model_setup_port import ModelChoice, RefreshedModels
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.theme import Theme

SONNET = ModelChoice(
    "anthropic/claude-sonnet-4-8", 1_000_000, 3.0, 15.0, provider="Anthropic", thinking=True
)
OLDER = ModelChoice("anthropic/claude-sonnet-4-5", 200_000, 3.0, 15.0, provider="Anthropic")
ROUTED = ModelChoice(
    "openrouter/perplexity/sonnet-search",
    128_000,
    1.0,
    5.0,
    provider="OpenRouter",
    images=False,
    tools=False,
)
LOCAL = ModelChoice(
    "ollama/distill-8b",
    8_192,
    provider="Ollama",
    images=False,
    local=True,
    sure=WindowSizeSource.LEARNED,
)
MODELS = [SONNET, OLDER, ROUTED, LOCAL]


@pytest.fixture
def chooser(theme: Theme, state_file: WindowStateFile) -> ModelChooser:
    parent = QWidget()
    parent.resize(1200, 800)
    made = ModelChooser(theme, state_file, parent)
    made.opened.connect(lambda: made.show_known_models(MODELS))
    parent.show()
    assert QTest.qWaitForWindowActive(parent)
    made._kept = parent  # type: ignore[attr-defined]  # lives as long as the chooser
    made.destroyed.connect(parent.deleteLater)
    return made


def names(chooser: ModelChooser) -> Sequence[str]:
    return [row.model.name if row.model else f"— {row.heading}" for row in chooser._model.items]


def test_models_are_grouped_by_provider_after_favourites_and_recent_ones() -> None:
    rows = group_models(MODELS, [OLDER.name], [LOCAL.name, OLDER.name, "gone/model"])
    shown = [row.model.name if row.model else row.heading for row in rows]
    assert shown[:4] == ["Favorites", OLDER.name, "Recent", LOCAL.name]
    assert shown[4:] == ["Anthropic", SONNET.name, "OpenRouter", ROUTED.name]


def test_a_model_has_one_row_also_if_it_was_used_last() -> None:
    """The defect: the model that was chosen last stood twice, so three models were four rows."""
    rows = group_models([SONNET, OLDER, LOCAL], [], [SONNET.name])
    names = [row.model.name for row in rows if row.model is not None]
    assert names == [SONNET.name, OLDER.name, LOCAL.name]


def test_words_are_looked_for_in_names_providers_and_abilities() -> None:
    def found(words: str) -> Sequence[str]:
        return [row.model.name for row in group_models(MODELS, [], [], words) if row.model]

    assert found("sonn 4-5") == [OLDER.name]
    assert found("ollama") == [LOCAL.name]
    assert found("thinking") == [SONNET.name]
    assert found("nothing like it") == []


def test_vision_is_claimed_only_of_a_model_of_which_it_is_known() -> None:
    local = ModelChoice(
        "local/scripted", 32_768, sure=WindowSizeSource.REPORTED, are_images_known=False
    )
    assert model_abilities(local) == []
    assert model_abilities(replace(local, are_images_known=True)) == ["vision"]


def test_what_was_learned_says_so_and_nothing_is_claimed_of_an_unknown_price() -> None:
    assert format_model_window(LOCAL) == "8.2K · learned"
    assert (
        format_model_price(SONNET),
        format_model_price(LOCAL),
        format_model_price(ModelChoice("x/y")),
    ) == (
        "$3 / $15",
        "assumed free",
        "",
    )
    assert (
        format_model_price(ModelChoice("x/y", price_input=3.2, price_output=16)) == "$3.20 / $16.00"
    )
    assert (
        format_model_price(ModelChoice("x/y", price_input=0.075, price_output=0.3))
        == "$0.075 / $0.3"
    )


def test_it_opens_at_the_model_in_use_and_enter_takes_another(chooser: ModelChooser) -> None:
    chosen = QSignalSpy(chooser.chosen)
    chooser.open_below(chooser.box, ROUTED.name)
    assert chooser.highlighted_model() == ROUTED
    QTest.keyClicks(chooser.line, "4-8")
    QTest.keyClick(chooser.line, Qt.Key.Key_Return)
    assert [chosen.at(at)[0] for at in range(chosen.count())] == [SONNET.name]
    assert chooser.isHidden()


def test_the_model_in_use_is_there_even_when_no_provider_lists_it(chooser: ModelChooser) -> None:
    chooser.open_below(chooser.box, "peer/unlisted")
    assert chooser.highlighted_model() == ModelChoice("peer/unlisted", provider="peer")


def test_a_favourite_comes_first_and_lasts(
    chooser: ModelChooser, state_file: WindowStateFile
) -> None:
    chooser.open_below(chooser.box, LOCAL.name)
    QTest.keyClick(chooser.line, Qt.Key.Key_D, Qt.KeyboardModifier.ControlModifier)
    assert names(chooser)[:2] == ["— Favorites", LOCAL.name]
    assert state_file.get_remembered("models", "favourites", default=[""]) == [LOCAL.name]
    QTest.keyClick(chooser.line, Qt.Key.Key_D, Qt.KeyboardModifier.ControlModifier)
    assert "— Favorites" not in names(chooser)


def test_a_provider_that_does_not_answer_is_named(chooser: ModelChooser) -> None:
    chooser.open_below(chooser.box, "")
    chooser.show_refreshed_models(
        RefreshedModels(tuple(MODELS), (("OpenRouter", "It is not there."),))
    )
    assert chooser._state.text() == "4 models · no response from OpenRouter"
    chooser.show_refreshed_models(RefreshedModels(tuple(MODELS)))
    assert chooser._state.text() == "4 models · just refreshed"
    chooser.line.setText(LOCAL.name)
    shown = [name for name in names(chooser) if not name.startswith("—")]
    assert chooser._state.text() == f"Matching: {len(set(shown))} of all 4 models · just refreshed"
    assert len(set(shown)) < 4, "the words must leave some out"


def test_an_empty_list_says_that_no_model_matches(chooser: ModelChooser) -> None:
    """It was white without a word, above all for who went on typing a message."""
    chooser.open_below(chooser.box, "")
    chooser.line.setText("please look at this")
    assert chooser._nothing_listed.isVisible()
    assert chooser._nothing_listed.text() == "No model matches “please look at this”."
    chooser.line.clear()
    assert not chooser._nothing_listed.isVisible()


def test_the_field_says_that_a_message_waits_for_the_choice(chooser: ModelChooser) -> None:
    anchor = QPushButton(chooser.parentWidget())
    chooser.open_below(anchor, "", message_waits=True)
    assert chooser.line.placeholderText() == "Which model should answer your message?"
    chooser.open_below(anchor, "")
    assert chooser.line.placeholderText() == "Search models"


def test_a_smaller_window_says_how_full_the_conversation_would_be_there(
    chooser: ModelChooser,
) -> None:
    """Who took a smaller model saw only afterwards that the conversation nearly filled it."""

    def notes() -> dict[str, tuple[str, ...]]:
        return {row.model.name: row.notes for row in chooser._model.items if row.model}

    anchor = QPushButton(chooser.parentWidget())
    chooser.open_below(anchor, SONNET.name, used_tokens=4_751)
    assert notes()[SONNET.name] == ("in use",)
    assert notes()[LOCAL.name] == ("≈ 58% full here",)
    assert notes()[OLDER.name] == ()
    row = chooser._model.index(names(chooser).index(LOCAL.name), 0)
    assert "58% full" in row.data(Qt.ItemDataRole.AccessibleTextRole)

    chooser.open_below(anchor, SONNET.name, used_tokens=9_000)
    assert notes()[LOCAL.name] == ("too small",)
    chooser.open_below(anchor, SONNET.name)
    assert notes()[LOCAL.name] == (), "a new conversation fills nothing"


def test_headings_cannot_be_chosen(chooser: ModelChooser) -> None:
    chooser.open_below(chooser.box, SONNET.name)
    for _ in range(2 * len(MODELS)):
        QTest.keyClick(chooser.line, Qt.Key.Key_Down)
        assert chooser.highlighted_model() is not None


def test_the_head_of_the_first_group_is_in_sight(chooser: ModelChooser) -> None:
    """Of 350 models of one server, the first could be seen, and not whose it is."""
    chooser.opened.disconnect()
    chooser.open_below(chooser.box, "", "p")
    chooser.show_known_models([ModelChoice(f"p/model-{n:03}", provider="p") for n in range(350)])
    assert chooser.list.indexAt(QPoint(5, 5)).row() == 0


def test_a_thousand_models_open_and_are_searched_at_once(chooser: ModelChooser) -> None:
    many = [
        ModelChoice(f"p{n % 7}/family-{n % 90}/model-{n}", 128_000, 1.0, 2.0, provider=f"P{n % 7}")
        for n in range(1_000)
    ]
    chooser.opened.disconnect()
    chooser.opened.connect(lambda: chooser.show_known_models(many))
    begun = time.thread_time()
    chooser.open_below(chooser.box, many[500].name)
    chooser.box.repaint()
    assert time.thread_time() - begun < 0.05
    took = []
    for key in "model-77":
        begun = time.thread_time()
        QTest.keyClicks(chooser.line, key)
        chooser.box.repaint()
        took.append(time.thread_time() - begun)
    assert sorted(took)[len(took) // 2] < 0.016


@pytest.mark.parametrize("language", ["en", "de", "zh_CN"])
@pytest.mark.parametrize("zoom", [1.0, 2.0])
def test_no_price_reaches_into_the_column_before_it(
    theme: Theme, language: str, zoom: float
) -> None:
    """In German, "8K" and "Vermutlich kostenlos" stood upon each other."""
    file = translation.translation_catalogue_path(language)
    if language != "en":
        translation.set_translations(json.loads(file.read_text("utf-8")))
    try:
        theme.set_zoom(zoom)
        metrics = QFontMetrics(theme.build_font(12))
        gap = theme.zoomed_pixels(GAP)
        for model in (*MODELS, replace(SONNET, price_input=0.0000123, price_output=1234.5)):
            price = format_model_price(model)
            usual_width = theme.zoomed_pixels(PRICE)
            width = width_of_price_column(metrics, usual_width, gap, price)
            assert metrics.horizontalAdvance(price) <= width - gap
    finally:
        translation.set_translations({})
