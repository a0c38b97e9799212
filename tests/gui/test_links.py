from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.digest import Digest
from helix_desktop.errors import WrongUse
from helix_desktop.gui.links import Place, link, parse

NAMES = st.text("abcXYZ019._-", min_size=1, max_size=80)
PLACES = st.one_of(
    st.just(Place("settings")),
    st.builds(Place, st.just("workspace"), NAMES),
    st.builds(Place, st.just("conversation"), NAMES, NAMES, st.integers(0, 999_999_999)),
    st.builds(lambda w, d: Place("entry", w, digest=Digest(d)), NAMES, st.binary(min_size=32, max_size=32)),
    st.builds(lambda w, c, f: Place("fold", w, c, fold=f), NAMES, NAMES, NAMES),
)


@given(PLACES)
def test_every_place_has_a_link_that_leads_there(place: Place) -> None:
    assert parse(link(place)) == place


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
    with pytest.raises(WrongUse):
        parse(address)


@given(st.text(max_size=100))
def test_any_text_is_a_place_or_refused(text: str) -> None:
    try:
        place = parse(f"helix://{text}")
    except WrongUse:
        return
    assert place.kind in {"settings", "workspace", "conversation", "entry", "fold"}
