"""Which conversation a request belongs to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.gateway.tracks import Track, Tracks, chain_of, longer
from helix_desktop.wire import anthropic
from helix_desktop.wire.message import Wired


def said(*texts: str) -> list[Wired]:
    return anthropic.messages({"messages": [{"role": "user", "content": text} for text in texts]})


@given(st.lists(st.text(max_size=5), max_size=8), st.data())
def test_a_chain_that_goes_on_from_a_known_beginning_is_the_same(texts: list[str], data: st.DataObject) -> None:
    messages = said(*texts)
    whole = chain_of("anthropic", messages)
    known = data.draw(st.integers(0, len(texts)))
    assert chain_of("anthropic", messages, whole[:known]) == whole
    if messages:
        assert longer(whole[:-1], "anthropic", messages[-1].key) == whole[-1]


def test_the_longest_known_beginning_wins() -> None:
    tracks = Tracks()
    short, long = chain_of("anthropic", said("a", "b")), chain_of("anthropic", said("a", "c", "d"))
    tracks.add(Track("one", "", "head", list(short), [1, 2]))
    tracks.add(Track("two", "", "head", list(long), [1, 2, 3]))
    place = tracks.find(chain_of("anthropic", said("a", "c", "d", "e")), "", "head")
    assert place.track is not None
    assert (place.track.conversation, place.known, place.at_tip) == ("two", 3, True)
    assert tracks.find(chain_of("anthropic", said("x")), "", "head").track is None
