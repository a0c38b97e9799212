from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.messages import ContextKind
from helix_desktop.gui.colours import LIGHT
from helix_desktop.gui.context_meter import (
    ContextMeter,
    describe_meter,
    filled_window_percent,
    format_token_count,
    meter_segments,
)
from helix_desktop.gui.theme import Theme

PARTS = [
    (ContextKind.SYSTEM, 5_100),
    (ContextKind.HANDOVER, 11_400),
    (ContextKind.OBSERVATIONS, 0),
    (ContextKind.OUTPUT, 16_800),
]


@pytest.mark.parametrize(
    ("tokens", "shown"),
    [
        (0, "0"),
        (31, "31"),
        (999, "999"),
        (4_812, "4.8K"),
        (128_000, "128K"),
        (999_949, "999.9K"),
        (2_910_000, "2.91M"),
    ],
)
def test_numbers_are_short(tokens: int, shown: str) -> None:
    assert format_token_count(tokens) == shown


def test_the_meter_says_in_words_what_it_shows() -> None:
    assert describe_meter(PARTS, 128_000).splitlines() == [
        "33.3K of 128K tokens, 26% full",
        "System and tools: 5.1K",
        "Summary: 11.4K",
        "Tool outputs: 16.8K",
    ]


def test_the_sizes_and_the_models_difference_add_up_to_what_is_used() -> None:
    counted = [(ContextKind.SYSTEM, 1_417), (ContextKind.HANDOVER, 585)]
    billed = [(ContextKind.SYSTEM, 1_805), (ContextKind.HANDOVER, 745)]
    assert describe_meter(billed, 32_000, counted=counted).splitlines() == [
        "2.5K of 32K tokens, 8% full",
        "System and tools: 1.4K",
        "Summary: 585",
        "These sizes are estimates; the model counts more: +548",
    ]
    fewer = describe_meter(counted, 32_000, counted=billed).splitlines()[-1]
    assert fewer == "These sizes are estimates; the model counts fewer: −548"
    unreported = describe_meter(billed, 32_000, is_estimate=True, counted=counted)
    assert unreported.splitlines()[-1] == (
        "These sizes are estimates; the model probably counts more: +548"
    )
    assert describe_meter(counted, 32_000, counted=counted).splitlines()[-1] == "Summary: 585"


def test_an_unknown_window_is_not_full() -> None:
    assert filled_window_percent(PARTS, 0) == 0


@given(
    st.lists(st.tuples(st.sampled_from(ContextKind), st.integers(0, 500_000)), max_size=5),
    st.integers(0, 200_000),
    st.integers(40, 800),
)
def test_segments_never_leave_the_bar(
    parts: list[tuple[ContextKind, int]], window: int, width: int
) -> None:
    segments = meter_segments(parts, window, width)
    assert [segment.kind for segment in segments] == [kind for kind, tokens in parts if tokens]
    for segment in segments:
        assert 0 <= segment.start <= width
        assert segment.start + segment.width <= width + 1.001


def test_the_bar_is_painted_in_the_colours_of_the_kinds(theme: Theme) -> None:
    meter = ContextMeter(theme, height=12)
    meter.resize(200, 12)
    meter.show_meter_parts([(ContextKind.CONVERSATION, 50), (ContextKind.OUTPUT, 50)], 200)
    image = meter.grab().toImage()
    assert [image.pixelColor(x, 6).name() for x in (20, 80, 150)] == [
        LIGHT["conversation"],
        LIGHT["output"],
        LIGHT["free"],
    ]
    assert meter.accessibleDescription().startswith("100 of 200 tokens")
