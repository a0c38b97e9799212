"""The digest of a request: what is shown as "what the model saw" is what was sent,
whatever happened meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from random import Random

import pytest

from helix_desktop.engine.facts import (
    Cover,
    DocumentEdited,
    Excluded,
    Fact,
    Folded,
    FoldKind,
    Included,
    ModelReplied,
    PartRef,
    Pinned,
    Reasoning,
    Refolded,
    Rewound,
    RulesSet,
    Span,
    Text,
    ToolCall,
    ToolReturned,
    ToolSpec,
    Unfolded,
    Unpinned,
    UserSaid,
)
from helix_desktop.engine.messages import Image, Message, Request, Role, ToolResult
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state.request_digest import digest_of_request
from tests.engine.agent import World, calls, says, world
from tests.engine.test_session import told

REQUEST = Request(
    "m",
    "system",
    (
        Message(Role.USER, (Text("go"), Image("image/png", b"png"))),
        Message(Role.ASSISTANT, (Reasoning("hm", 1, "signed", "p"), ToolCall("c", "look", "{}"))),
        Message(Role.USER, (ToolResult("c", "text", ok=True, images=(Image("image/png", b"x"),)),)),
    ),
    (ToolSpec("look", "looks", "{}"),),
)


def test_the_digest_of_a_request_never_changes() -> None:
    assert (
        digest_of_request(REQUEST).hex
        == "5a0c90c754816c26c893706481b6d231b1fb15a31f8aa7f421d28bcc51b661ab"
    )


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, system="systen"),
        replace(REQUEST, reasoning="high"),
        replace(REQUEST, tools=()),
        replace(REQUEST, messages=REQUEST.messages[:2]),
        replace(
            REQUEST,
            messages=(
                *REQUEST.messages[:2],
                Message(Role.USER, (ToolResult("c", "text", ok=False),)),
            ),
        ),
        replace(
            REQUEST, messages=(Message(Role.USER, (Text("g"), Text("o"))), *REQUEST.messages[1:])
        ),
    ],
)
def test_another_request_has_another_digest(other: Request) -> None:
    assert digest_of_request(other) != digest_of_request(REQUEST)


def test_which_model_was_asked_makes_no_difference() -> None:
    assert digest_of_request(
        replace(REQUEST, model="other", stable=1, max_output=9)
    ) == digest_of_request(REQUEST)


def test_any_text_has_a_digest_and_a_failed_call_is_another() -> None:
    odd = Request(
        "m", "naïve 日本 \ud800", (Message(Role.USER, (ToolResult("c", "text", ok=False),)),)
    )
    assert (
        digest_of_request(odd).hex
        == "cd8ca5004db9ee5ebccc979e445b88f350a51a1aca5611d2dc7b1f221ef5b8d8"
    )


async def changing_while_prepared(at: World, change: Fact) -> None:
    """What the user does while the content of the second request is read."""
    whole = at.cache.read_contents
    conversation = at.session.conversation

    async def contents(digests: Collection[Digest]) -> Mapping[Digest, bytes]:
        if (
            any(isinstance(one.fact, ToolReturned) for one in at.session.all_facts)
            and change not in at.facts
        ):
            await conversation.append_facts(change)
        return await whole(digests)

    at.cache.read_contents = contents  # type: ignore[method-assign]
    await told(at, "hello")
    at.cache.read_contents = whole  # type: ignore[method-assign]


@pytest.mark.parametrize("what", ["exclude", "pin", "rewind", "edit", "said"])
async def test_what_changes_while_a_request_is_prepared_is_not_in_it(what: str) -> None:
    at = await world(calls("look"), says("done"), says("more"))
    output = 9
    changes: dict[str, Fact] = {
        "exclude": Excluded(PartRef(output)),
        "pin": Pinned(PartRef(output)),
        "rewind": Rewound(5),
        "edit": DocumentEdited("none", "x", 1),
        "said": Excluded(PartRef(1)),
    }
    await changing_while_prepared(at, changes[what])
    await told(at, "and then?")
    replies = [one for one in at.session.all_facts if isinstance(one.fact, ModelReplied)]
    assert len(replies) == 3
    for sent, reply in zip(at.model.requests, replies, strict=True):
        shown = await at.session.context.rebuild_request(reply.seq)
        assert (shown.system, shown.messages, shown.tools) == (
            sent.system,
            sent.messages,
            sent.tools,
        )
        assert at.session.context.matches_sent_request(reply.seq, shown)


@pytest.mark.parametrize("seed", range(20))
async def test_the_request_shown_is_the_one_sent_whatever_changes_meanwhile(seed: int) -> None:
    """Changes by chance between turns, and while the content of a request is read."""
    chance = Random(seed)
    at = await world(
        *[calls("look", "run") if chance.random() < 0.7 else says("done") for _ in range(14)]
    )
    whole = at.cache.read_contents
    conversation = at.session.conversation

    async def contents(digests: Collection[Digest]) -> Mapping[Digest, bytes]:
        while chance.random() < 0.5:
            await conversation.append_facts(_by_chance(chance, conversation.state.seq))
        return await whole(digests)

    at.cache.read_contents = contents  # type: ignore[method-assign]
    for number in range(4):
        await told(at, f"message {number}")
        await conversation.append_facts(_by_chance(chance, conversation.state.seq))
    at.cache.read_contents = whole  # type: ignore[method-assign]
    replies = [one.seq for one in at.session.all_facts if isinstance(one.fact, ModelReplied)]
    for sent, seq in zip(at.model.requests, replies, strict=True):
        shown = await at.session.context.rebuild_request(seq)
        assert shown == replace(sent, model="", room=0)
        assert at.session.context.matches_sent_request(seq, shown)


def _by_chance(chance: Random, last: int) -> Fact:
    """What a person, a strategy or the settings may append at any moment."""
    first, other = sorted((chance.randint(1, last), chance.randint(1, last)))
    cover: Cover = PartRef(first) if chance.random() < 0.5 else Span(first, other)
    name = f"f{chance.randint(1, 6)}"
    choices: list[Fact] = [
        Excluded(cover), Included(cover), Pinned(cover), Unpinned(cover), Unfolded(name), Refolded(name),
        Folded(name, FoldKind.HANDOVER, cover, "short", 1, 10), DocumentEdited(name, "worded anew", 2),
        RulesSet("a", chance.choice(["", "tabs"]), 1), Rewound(other), UserSaid((Text("and", 1),), steering=True),
    ]  # fmt: skip
    return chance.choice(choices)


async def test_a_reply_of_version_0_1_cannot_be_checked_and_another_request_is_told() -> None:
    at = await world(says("done"))
    await told(at, "hello")
    (reply,) = [one for one in at.session.all_facts if isinstance(one.fact, ModelReplied)]
    shown = await at.session.context.rebuild_request(reply.seq)
    assert (
        at.session.context.matches_sent_request(reply.seq, replace(shown, system="another"))
        is False
    )
    assert isinstance(reply.fact, ModelReplied)
    old = replace(reply, fact=replace(reply.fact, request=None))
    at.session.conversation.state.facts[reply.seq - 1] = old
    assert at.session.context.matches_sent_request(reply.seq, shown) is None
