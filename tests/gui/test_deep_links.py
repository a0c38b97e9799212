from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import InvalidInput
from helix_desktop.gui.deep_links import WindowPlace, format_deep_link, parse_deep_link

NAMES = st.text("abcXYZ019._-", min_size=1, max_size=80)
PLACES = st.one_of(
    st.just(WindowPlace("settings")),
    st.builds(WindowPlace, st.just("workspace"), NAMES),
    st.builds(WindowPlace, st.just("conversation"), NAMES, NAMES, st.integers(0, 999_999_999)),
    st.builds(
        lambda w, d: WindowPlace("entry", w, digest=Digest(d)),
        NAMES,
        st.binary(min_size=32, max_size=32),
    ),
    st.builds(lambda w, c, f: WindowPlace("fold", w, c, fold=f), NAMES, NAMES, NAMES),
)


@given(PLACES)
def test_every_place_has_a_link_that_leads_there(place: WindowPlace) -> None:
    assert parse_deep_link(format_deep_link(place)) == place


@pytest.mark.parametrize(
    "address",
    [
        "",
        "https://example.org",
        "helix://",
        "helix://run/rm",
        "helix://workspace/a/../../etc",
        "helix://workspace/a b",
        "helix://workspace/a/conversation/b/send?text=hello",
        "helix://workspace/a/entry/1234",
        "helix://settings?key=x",
        "helix://workspace/" + "a" * 600,
        "javascript:helix://settings",
    ],
)
def test_what_is_not_on_the_list_leads_nowhere(address: str) -> None:
    with pytest.raises(InvalidInput):
        parse_deep_link(address)


@given(st.text(max_size=100))
def test_any_text_is_a_place_or_refused(text: str) -> None:
    try:
        place = parse_deep_link(f"helix://{text}")
    except InvalidInput:
        return
    assert place.kind in {"settings", "workspace", "conversation", "entry", "fold"}
