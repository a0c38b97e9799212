"""Every list and every number of a history as the program has it, beside the
reckoner's. Differences are told in a line each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random

from helix_desktop.engine import context_usage, request_building
from helix_desktop.engine.context_policy import policy_from_fact
from helix_desktop.engine.facts import Attachment, PartRef, Recorded, Stored, UserSaid
from helix_desktop.engine.message_blocks import EXCLUDED
from helix_desktop.engine.messages import Block
from helix_desktop.engine.state import request_digest
from helix_desktop.engine.state.moment import Moment
from helix_desktop.engine.view import ConversationState
from helix_desktop.engine.view_contents import content_for_model
from helix_desktop.gui import markdown_and_json_export
from helix_desktop.gui.inspector import inspector_figures as inspector
from helix_desktop.gui.timeline.conversation_timeline import ConversationTimeline
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from helix_desktop.gui.transcript.transcript_item import TranscriptItemKind
from tests.reckoner import figures, places, request
from tests.reckoner.histories import History
from tests.reckoner.journal import Conversation, conversation, settings
from tests.reckoner.moment import Item, Shown, moment, view

MOMENTS = 6  # of each history that are looked at in full, besides the last


@dataclass(frozen=True)
class Difference:
    where: str
    program: object
    reckoner: object

    def __str__(self) -> str:
        return f"{self.where}: {self.program} in the program, {self.reckoner} by the reckoner"


def differences(history: History) -> Iterator[Difference]:
    """What differs, the first thing first. The state is taken after every fact, as
    while a conversation goes on.
    """
    facts = history.recorded()
    c = conversation(facts, history.contents)
    chance = Random(len(facts))
    looked_at = {len(facts), *chance.sample(range(len(facts)), min(MOMENTS, len(facts)))}
    state = ConversationState()
    for recorded in facts:
        state.advance_state(recorded)
        if recorded.seq in looked_at:
            known = conversation(
                facts[: recorded.seq], history.contents
            )  # a later import says more of earlier facts
            yield from _moment(f"while it went on, at {recorded.seq}", state, known)
    yield from _figures(state, c)
    for n in sorted(looked_at):
        yield from _moment(f"of the past, at {n}", state.past_moment(n), c)
    yield from _chat_and_timeline(state, facts, c, chance)


def _unequal(where: str, program: object, reckoner: object) -> Iterator[Difference]:
    if program != reckoner:
        yield Difference(where, program, reckoner)


# --- a moment


def _moment(where: str, state: Moment, c: Conversation) -> Iterator[Difference]:
    n = state.seq
    now = moment(c, n)
    branch = state.branch
    yield from _unequal(f"messages {where}", branch.order, list(now.messages))
    yield from _unequal(f"folds {where}", list(branch.folds), list(now.folds))
    yield from _unequal(f"folds in force {where}", set(branch.live), now.in_force)
    yield from _unequal(f"pins {where}", set(branch.pins), now.pinned)
    yield from _unequal(f"exclusions {where}", set(branch.exclusions), now.excluded)
    yield from _unequal(f"undo bars {where}", set(branch.barred), now.bars)
    yield from _unequal(
        f"the view {where}", [_item(each.blocks) for each in branch.items], [*map(_told, view(now))]
    )
    yield from _unequal(f"settings {where}", _settings(state), _settings_of(c, n))
    yield from _unequal(f"the meter {where}", _meter(state), places.meter(c, n))
    yield from _unequal(
        f"the factor {where}", state.billed_per_counted_token(), places.main_factor(c, n)
    )
    yield from _unequal(
        f"what can be recalled {where}", state.count_recallable_tokens(), places.recallable(c, n)
    )
    yield from _unequal(f"sums {where}", _sums(state), _sums_of(c, n))
    yield from _unequal(
        f"the digest of the request {where}", _digest(state, c), request.digest(c, n)
    )
    for said in (0, *(seq for seq in now.messages if isinstance(now.messages[seq], UserSaid))):
        price = _rounded(places.next_message(c, n, said))
        yield from _unequal(
            f"the next message instead of {said} {where}", _next(state, said), price
        )
    listed = [(each.tokens, round(each.cost, 9)) for each in inspector.list_view_blocks(state)]
    yield from _unequal(
        f"parts listed {where}",
        listed,
        [(count, round(cost, 9)) for count, cost in places.parts(c, n)],
    )
    money = state.savings_until_moment().paid_without
    if abs(money - (reckoned := figures.money_without_folds(c, n, places.prices))) > 1e-9:
        yield Difference(f"money without folds {where}", money, reckoned)


Line = tuple[PartRef | None, int, str, bool]


def _item(blocks: Iterable[Block]) -> list[Line]:
    """Part, tokens, fold and whether a note stands there, of each block of an item."""
    return [
        (
            block.source if isinstance(block.source, PartRef) else None,
            block.tokens,
            block.fold,
            EXCLUDED
            in (getattr(block.content, "text", ""), getattr(block.content, "arguments", "")[10:-2]),
        )
        for block in blocks
    ]


def _told(item: Item) -> list[Line]:
    return [_line(each) for each in item.shown]


def _line(each: Shown) -> Line:
    return each.ref, each.tokens, each.fold.fact.fold if each.fold else "", each.how == "note"


def _settings(state: Moment) -> tuple[object, ...]:
    set_last = state.settings
    return (
        set_last.system.text,
        set_last.tools.tools,
        [*set_last.rules],
        dict(set_last.models),
        set_last.policy,
    )


def _settings_of(c: Conversation, n: int) -> tuple[object, ...]:
    found = settings(c, n)
    system = found.system.text if found.system else ""
    tools = found.tools.tools if found.tools else ()
    return (
        system,
        tools,
        [*found.rules.values()],
        {str(role): one for role, one in found.models.items()},
        found.policy,
    )


def _meter(state: Moment) -> tuple[dict[str, int], int]:
    meter = context_usage.measure_window(state, policy_from_fact(None))
    return {str(kind): tokens for kind, tokens in meter.parts.items()}, meter.used


def _sums(state: Moment) -> tuple[object, ...]:
    sums = state.savings_until_moment()
    return sums.steps, sums.sent, sums.without, sums.cache_read, sums.paid, sums.saved_share


def _sums_of(c: Conversation, n: int) -> tuple[object, ...]:
    sums = figures.sums(c, n)
    return sums.steps, sums.sent, sums.without, sums.cache_read, sums.paid, sums.saved


def _next(state: Moment, instead: int) -> places.Next | None:
    told = context_usage.estimate_next_message_cost(state, policy_from_fact(None), before=instead)
    if told is None:
        return None
    lasts = told.forever or told.warm_until > 0
    return _rounded(places.Next(told.reply, told.warm, told.cold, told.warm_until, lasts))


def _rounded(price: places.Next | None) -> places.Next | None:
    return price and replace(price, warm=round(price.warm, 9), cold=round(price.cold, 9))


def _digest(state: Moment, c: Conversation) -> str:
    """Of what would be sent now, with what its view refers to."""
    now = state.get_view()
    parts = [block.content for block in now.blocks]
    stored = [part.stored if isinstance(part, Attachment) else part for part in parts]
    held = {
        one: content_for_model(one, c.contents[one.digest])
        for one in stored
        if isinstance(one, Stored)
    }
    return request_digest.digest_of_request(request_building.build_request(now, held)).hex


# --- every fact


def _figures(state: ConversationState, c: Conversation) -> Iterator[Difference]:
    """What the view counts at every fact, with folds and without, and what each reply took."""
    ledger = state.record.ledger
    all_facts = range(len(c.facts) + 1)
    yield from _unequal(
        "tokens at every fact", [*ledger.shown], [figures.counted(c, n) for n in all_facts]
    )
    without = [figures.counted(c, n, folding=False) for n in all_facts]
    yield from _unequal("tokens without folds at every fact", [*ledger.whole], without)
    for n, _ in figures.replies(c, len(c.facts)):
        yield from _unequal(
            f"what the request of the reply {n} took", ledger.request_tokens(n), figures.sent(c, n)
        )
        then = state.past_moment(figures.saw(c, n))
        yield from _unequal(
            f"the inspector at the reply {n}", _meter(then), places.meter(c, figures.saw(c, n))
        )


# --- chat, timeline, export


def _chat_and_timeline(
    state: ConversationState, facts: list[Recorded], c: Conversation, chance: Random
) -> Iterator[Difference]:
    n = len(facts)
    yield from _unequal("rows of an export", _exported(facts), places.exported(c, n))
    for way, history in (("opened", state), ("while it went on", None)):
        story = ConversationTimeline(history)
        story.read_all_facts(facts)
        points = [*zip(story.seqs, story.points, strict=True)]
        yield from _unequal(
            f"points of the timeline, {way}",
            points,
            [(each.seq, each.figure) for each in places.timeline(c, n)],
        )
        yield from _unequal(f"rows of the timeline, {way}", _rows(story), places.fold_rows(c, n))
        items = TranscriptItems(history or ConversationState(), grouping=False)
        if history:
            items.add_many_facts(facts)
        else:
            for recorded in facts:
                items.show_fact(recorded)
        yield from _chat(way, items, c, chance)


def _exported(facts: list[Recorded]) -> list[tuple[str, str]]:
    exported: list[tuple[str, str]] = []
    for section in markdown_and_json_export.iterate_export_sections(facts, lambda _: None):
        compared = {"said": section.text, "fold": section.heading}
        exported.append((section.kind, compared.get(section.kind, "")))
    return exported


def _rows(story: ConversationTimeline) -> list[places.FoldRow]:
    seqs = {id(recorded.fact): recorded.seq for recorded in story.history.facts}
    return [
        places.FoldRow(
            tuple(seqs[id(fold)] for fold in event.made_folds),
            event.tokens_before_folds,
            event.tokens_after_folds,
            event.has_fold_in_force,
        )
        for event in story.events
        if event.made_folds
    ]


def _chat(
    way: str, items: TranscriptItems, c: Conversation, chance: Random
) -> Iterator[Difference]:
    n = len(c.facts)
    shown = [(item.fact_seq, item.kind.name.lower(), item.part) for item in items.all]
    yield from _unequal(f"items of the chat, {way}", shown, list(places.chat_items(c, n)))
    opened: set[int] = set()
    for _ in range(3):
        seen: list[int] = []
        rewinds: list[int] = []
        for index, item in enumerate(items.all):
            if not items.is_item_hidden(index):
                seen.append(item.fact_seq)
                if item.kind is TranscriptItemKind.REWOUND:
                    rewinds.append(index)
        reckoned = [seq for seq, _, _ in places.chat_seen(c, n, frozenset(opened))]
        what = f"what the chat shows with {opened or 'nothing'} opened, {way}"
        yield from _unequal(what, seen, reckoned)
        if not rewinds:
            break
        index = chance.choice(rewinds)
        items.toggle_rewound_items(index)
        opened ^= {items.all[index].fact_seq}
    for index in range(len(items.all)):
        yield from _item_of_chat(way, items, index, c)


def _item_of_chat(
    way: str, items: TranscriptItems, index: int, c: Conversation
) -> Iterator[Difference]:
    n = len(c.facts)
    item = items.all[index]
    where = f"item {index} of the chat (fact {item.fact_seq}), {way}"
    if item.kind is TranscriptItemKind.FOLD:
        live = items.history.branch.live
        struck = not any(fold.fold in live for fold in items.folds_of_line(index))
        yield from _unequal(f"{where} struck out", struck, places.struck(c, item.fact_seq, n))
    if item.kind is TranscriptItemKind.CALL:
        result = places.result(c, PartRef(item.fact_seq, item.part), n)
        returned = items.tool_call_state(index).returned_seq
        yield from _unequal(f"{where}, its result", returned, result)
    if item.kind is TranscriptItemKind.USER and not items.is_hidden_as_replaced(index):
        choice = items.answer_choice_of(index)
        shown = (choice.number, choice.answer_ends)
        yield from _unequal(f"{where}, answers", shown, places.answers(c, item.fact_seq, n))
