import pytest

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.fact_encoding import decode_fact, encode_fact
from helix_desktop.engine.facts import (
    Attachment,
    ConversationChanged,
    Fact,
    FileChanged,
    Folded,
    FoldKind,
    ModelReplied,
    PartRef,
    Pinned,
    PolicySet,
    Reasoning,
    Span,
    Stop,
    Stored,
    Text,
    TodoSet,
    ToolCall,
    ToolReturned,
    ToolsOffered,
    ToolSpec,
    Usage,
    UserSaid,
)
from helix_desktop.errors import JournalCorrupt, WrittenByNewerVersion

DIGEST = Digest.of_content(b"x")
FACTS: list[Fact] = [
    UserSaid((Text("hé\n\x00", 3), Attachment("a", Stored(DIGEST, 1), 2))),
    Folded("f1", FoldKind.MARKER, PartRef(3, 1), "t", 1, 2, entries=(DIGEST,)),
    Folded("f2", FoldKind.HANDOVER, Span(3, 9), "t", 1, 2),
    ToolReturned("c", Stored(DIGEST, 3), 1, changes=(FileChanged("p", None, DIGEST),)),
    PolicySet("helix", (("a", 1.5), ("b", True), ("c", "x"))),
    ModelReplied((ToolCall("1", "n", "{}"), Reasoning("x")), "m", Stop.CUT, Usage(1, 2)),
    TodoSet((("a", "open"),)),
    ToolsOffered((ToolSpec("a", "b", "{}"),), 3),
    ConversationChanged(title="x", pinned=False),
    Pinned(Span(1, 2)),
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_a_fact_comes_back_as_it_was(fact: Fact) -> None:
    assert decode_fact(encode_fact(fact)) == fact


def test_a_fact_of_a_newer_version_is_refused() -> None:
    with pytest.raises(WrittenByNewerVersion):
        decode_fact('{"fact":"Text2","version":1}')
    with pytest.raises(WrittenByNewerVersion):
        decode_fact('{"fact":"UserSaid","version":99,"parts":[]}')


@pytest.mark.parametrize("text", ["", "[]", '{"fact":"UserSaid","version":1}', '{"version":1}', "{"])
def test_what_is_no_fact_is_named_corrupt(text: str) -> None:
    with pytest.raises(JournalCorrupt):
        decode_fact(text)
