"""Offers to forget what looks like a key in conversations that another agent has written."""

import asyncio
from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QObject

from helix_desktop.engine.facts import Recorded, ToolReturned
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.conversation_sides import ConversationSides
from helix_desktop.gui.question_dialogs import ask_to_forget_keys
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.window_parts import WindowParts
from helix_desktop.gui.workbench_types import Workbench

OFFER_MS = 600_000  # An offer that is made only once stays until the user closes it.


class LeakedKeyOffers(QObject):
    """Looks once through what is new in each conversation that is shown."""

    def __init__(self, parts: WindowParts, sides: ConversationSides) -> None:
        super().__init__(parts.widget)
        self._parts = parts
        self._sides = sides
        sides.conversation_shown.connect(self._look_through_new_facts)

    def _look_through_new_facts(self, side: ChatPage) -> None:
        bench = self._parts.showing.bench
        session = side.session
        if bench is None or session is None:
            return
        row = self._sides.find_listed_conversation(session.id)
        if row is None or not (row.agent or row.recorded_from):
            return
        facts = session.conversation.state.facts
        state_file = self._parts.state_file
        searched_count = state_file.get_remembered("keys", bench.id, session.id, default=0)
        new_facts = facts[searched_count:]
        if new_facts:
            state_file.remember_value("keys", bench.id, session.id, value=len(facts))
            search = _find_keys(bench, new_facts)
            offer = partial(self._offer_to_forget_if_any, bench)
            self._parts.runner.run_in_background(search, then=offer)

    def _offer_to_forget_if_any(self, bench: Workbench, keys: Sequence[str]) -> None:
        from helix_desktop.histories.leaked_keys import mask_key

        if not keys:
            return
        masked_keys = [mask_key(key) for key in keys]
        text = tr(
            "This conversation contains text that looks like keys: {keys}",
            keys=", ".join(masked_keys),
        )
        button = format_count(len(keys), "Forget the key…", "Forget the {n} keys…")
        forget = partial(self._start_forgetting_keys, bench, keys)
        ask = partial(ask_to_forget_keys, self._parts.widget, masked_keys, forget)
        self._parts.notices.show_notice(text, button=button, act=ask, shown_ms=OFFER_MS)

    def _start_forgetting_keys(self, bench: Workbench, keys: Sequence[str]) -> None:
        self._parts.runner.run_in_background(self._forget_keys(bench, keys))

    async def _forget_keys(self, bench: Workbench, keys: Sequence[str]) -> None:
        for key in keys:
            await bench.forget_content(text=key)
        self._parts.notices.show_notice(
            format_count(len(keys), "{n} key was removed.", "{n} keys were removed.")
        )


async def _find_keys(bench: Workbench, facts: Sequence[Recorded]) -> Sequence[str]:
    from helix_desktop.histories.leaked_keys import find_keys_in_facts

    digests = []
    for recorded in facts:
        fact = recorded.fact
        if isinstance(fact, ToolReturned) and not fact.head:
            digests.append(fact.output.digest)
    contents = await bench.workspace.cache.read_contents(digests)
    return await asyncio.to_thread(find_keys_in_facts, facts, contents.values())
