"""Offers to forget what looks like a key in conversations that another agent has written."""

import asyncio
from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QObject

from helix_desktop.engine.facts import Recorded
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.conversation_sides import ConversationSides
from helix_desktop.gui.question_dialogs import ask_to_forget_keys
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.window_parts import WindowParts
from helix_desktop.gui.workbench_types import Workbench

OFFER_MS = 600_000  # It stays until the user closes it or shows another conversation.
SUBJECT = "keys in the current conversation"
ConversationPlace = tuple[str, str]  # A workspace's id and a conversation's id.


class LeakedKeyOffers(QObject):
    """Looks once through what is new in each conversation that is shown. What is found is offered
    while that conversation is the current one, until the user answers.
    """

    def __init__(self, parts: WindowParts, sides: ConversationSides) -> None:
        super().__init__(parts.widget)
        self._parts = parts
        self._sides = sides
        self._unanswered: dict[ConversationPlace, list[str]] = {}  # The keys to be offered.
        self._offered_place: ConversationPlace | None = None
        sides.conversation_shown.connect(self._look_through_new_facts)
        sides.current_changed.connect(self._offer_for_current_conversation)

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
            place = (bench.id, session.id)
            self._parts.runner.run_in_background(search, then=partial(self._add_keys, place))

    def _add_keys(self, place: ConversationPlace, keys: Sequence[str]) -> None:
        """Remembers keys that were found, and offers them if their conversation is current."""
        if not keys:
            return
        unanswered_keys = self._unanswered.setdefault(place, [])
        for key in keys:
            if key not in unanswered_keys:
                unanswered_keys.append(key)
        if place == self._offered_place:
            self._withdraw_offer()  # The new one names the keys of both.
        self._offer_for_current_conversation()

    def _offer_for_current_conversation(self) -> None:
        """Shows the offer of the current conversation instead of that of the one before."""
        showing = self._parts.showing
        bench = showing.bench
        current_place = (showing.workspace_id, showing.conversation_id)
        if current_place == self._offered_place:
            return
        self._withdraw_offer()
        keys = self._unanswered.get(current_place)
        if bench is not None and keys:
            self._offered_place = current_place
            self._show_offer(bench, current_place, keys)

    def _withdraw_offer(self) -> None:
        self._offered_place = None
        self._parts.notices.withdraw_offers_about(SUBJECT)

    def _show_offer(self, bench: Workbench, place: ConversationPlace, keys: Sequence[str]) -> None:
        from helix_desktop.histories.leaked_keys import mask_key

        masked_keys = [mask_key(key) for key in keys]
        listed_keys = ", ".join(masked_keys)
        text = tr(
            "This conversation contains text that looks like passwords or other secrets: {keys}",
            keys=listed_keys,
        )
        button = format_count(len(keys), "Forget the secret…", "Forget the {n} secrets…")
        ask_to_forget = partial(self._ask_to_forget, bench, place, masked_keys)
        take_keys = partial(self._take_keys, place)
        self._parts.notices.show_notice(
            text,
            button=button,
            act=ask_to_forget,
            shown_ms=OFFER_MS,
            when_dismissed=take_keys,
            subject=SUBJECT,
        )

    def _ask_to_forget(
        self, bench: Workbench, place: ConversationPlace, masked_keys: Sequence[str]
    ) -> None:
        keys = self._take_keys(place)
        forget = partial(self._start_forgetting_keys, bench, keys)
        ask_to_forget_keys(self._parts.widget, masked_keys, forget)

    def _take_keys(self, place: ConversationPlace) -> Sequence[str]:
        """Removes and returns the keys of a conversation, because the user has answered."""
        self._offered_place = None
        return self._unanswered.pop(place, [])

    def _start_forgetting_keys(self, bench: Workbench, keys: Sequence[str]) -> None:
        self._parts.runner.run_in_background(self._forget_keys(bench, keys))

    async def _forget_keys(self, bench: Workbench, keys: Sequence[str]) -> None:
        from helix_desktop.histories.leaked_keys import longest_first

        for key in longest_first(keys):
            await bench.forget_content(text=key)
            # The user may have pasted it, or sent it from here.
            self._parts.state_file.forget_remembered_text(key, within=bench.id)
        notice = format_count(len(keys), "{n} secret was removed.", "{n} secrets were removed.")
        self._parts.notices.show_notice(notice)


async def _find_keys(bench: Workbench, facts: Sequence[Recorded]) -> Sequence[str]:
    from helix_desktop.histories.leaked_keys import find_keys_in_facts, list_outputs_beside_facts

    contents = await bench.workspace.cache.read_contents(list_outputs_beside_facts(facts))
    return await asyncio.to_thread(find_keys_in_facts, facts, contents.values())
