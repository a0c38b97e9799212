"""What a person asks for in an agent's own terminal: MCP prompts, which agents show as slash commands.

Each is done for the conversation in which an agent worked last, and its text tells the agent what was done.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import mcp_types as types

from helix_desktop.context_server.context_shelf import ContextShelf, recall_content, search_content
from helix_desktop.engine.content_recall import format_message
from helix_desktop.engine.facts import FoldKind, ModelReplied, PartRef, ToolReturned, UserSaid
from helix_desktop.engine.session import Session
from helix_desktop.errors import ActionRefused, InvalidInput, format_things

TELL = "Helix Desktop did this because I asked for it. Tell me the result in one or two sentences, and do nothing else."
SessionAct = Callable[[ContextShelf, Session, str], Awaitable[str]]


async def _describe_context(_: ContextShelf, session: Session, __: str) -> str:
    meter, price = session.next_request_meter(), session.next_message_cost()
    kinds = "".join(f"\n- {kind.value}: {tokens:,} tokens" for kind, tokens in meter.parts.items() if tokens)
    cost = f"\nSending it costs about ${price.cost_when_sent(time.time()):.4f}, without the reply." if price else ""
    folds = len(session.conversation.state.live_folds)
    return f"The next request takes {meter.format_meter()}.{kinds}{cost}\nFolds: {folds}."


async def _fold_old_outputs(_: ContextShelf, session: Session, __: str) -> str:
    before = session.next_request_meter().used
    await session.start_fold(FoldKind.MARKER)
    return f"The next request takes {session.next_request_meter().used:,} tokens instead of {before:,}."


async def _keep_newest_with(_: ContextShelf, session: Session, words: str) -> str:
    state = session.conversation.state
    kinds = (UserSaid, ModelReplied, ToolReturned) if words else ToolReturned
    for message in reversed(state.facts_on_path()):
        if isinstance(message.fact, kinds) and words in (text := format_message(state.branch, message)):
            await session.pin_part(PartRef(message.seq))
            return f"This stays in the context word for word: {text[:200]}"
    raise InvalidInput("No message or output has these words.")


async def _undo_last_fold(_: ContextShelf, session: Session, __: str) -> str:
    if not (folds := session.conversation.state.live_folds):
        raise ActionRefused("Nothing is folded.")
    last = [one for one in folds if one is folds[-1] or (one.batch and one.batch == folds[-1].batch)]
    for fold in last:
        await session.undo_fold(fold.fold)
    shown = format_things(len(last), "folded part is", "folded parts are")
    return f"{shown} shown in full again: {session.next_request_meter().format_meter()}."


async def _recall_for_user(shelf: ContextShelf, _: Session, words: str) -> str:
    hits = (await search_content(shelf, query=words, limit=1))["hits"]
    found = await recall_content(shelf, sha256=hits[0]["sha256"] if hits else words, find=words if hits else "")
    return f"This is the cached content {found['sha256']}:\n{found['text']}"


# By name: what it does, what may be written behind it (empty: nothing), and the act.
PROMPTS: Mapping[str, tuple[str, str, SessionAct]] = {
    "context": ("Show what is in the context and what it costs", "", _describe_context),
    "fold_now": ("Fold old outputs now", "", _fold_old_outputs),
    "keep": ("Keep a part in the context", "words of it; without them, the last output", _keep_newest_with),
    "undo_fold": ("Undo the last fold", "", _undo_last_fold),
    "recall": ("Bring something back from the cache", "words of it, or its hash", _recall_for_user),
}


async def list_session_prompts(_context: Any, _params: Any) -> types.ListPromptsResult:
    prompts = [
        types.Prompt(
            name=name,
            description=told,
            arguments=[types.PromptArgument(name="words", description=words)] if words else [],
        )
        for name, (told, words, _) in PROMPTS.items()
    ]
    return types.ListPromptsResult(prompts=prompts, ttl_ms=3_600_000, cache_scope="public")


async def run_session_prompt(shelf: ContextShelf, name: str, words: str) -> str:
    """Do what was asked for, and return what the agent is told."""
    if name not in PROMPTS or shelf.use_agent_session is None:
        raise InvalidInput(f"There is no prompt {name[:80]!r} here.")
    async with shelf.use_agent_session() as session:
        done = await PROMPTS[name][2](shelf, session, words.strip())
    return f"{done}\n\n{TELL}"
