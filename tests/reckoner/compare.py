"""Every list and every number of a history as the program has it, beside the reckoner's. Differences are told in a line each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random

from helix_desktop.engine import budget, laws
from helix_desktop.engine.blocks import Block
from helix_desktop.engine.contents import shown
from helix_desktop.engine.facts import Attachment, PartRef, Recorded, Stored, UserSaid
from helix_desktop.engine.history import sent
from helix_desktop.engine.history.moment import Moment
from helix_desktop.engine.parts import EXCLUDED
from helix_desktop.engine.policy import from_fact
from helix_desktop.engine.view import State
from helix_desktop.gui import export
from helix_desktop.gui.inspector import figures as inspector
from helix_desktop.gui.timeline.story import Story
from helix_desktop.gui.transcript.item import ItemKind
from helix_desktop.gui.transcript.projection import Items
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
    """What differs, the first thing first. The state is taken after every fact, as while a conversation goes on."""
    facts = history.recorded()
    c = conversation(facts, history.contents)
    chance = Random(len(facts))
    looked_at = {len(facts), *chance.sample(range(len(facts)), min(MOMENTS, len(facts)))}
    state = State()
    for recorded in facts:
        state.advance(recorded)
        if recorded.seq in looked_at:
            known = conversation(facts[: recorded.seq], history.contents)  # a later import says more of earlier facts
            yield from _moment(f"while it went on, at {recorded.seq}", state, known)
    yield from _figures(state, c)
    for n in sorted(looked_at):
        yield from _moment(f"of the past, at {n}", state.at(n), c)
    yield from _chat_and_timeline(state, facts, c, chance)


def _unequal(where: str, program: object, reckoner: object) -> Iterator[Difference]:
    if program != reckoner:
        yield Difference(where, program, reckoner)


# --- a moment --------------------------------------------------------------------------------------------------------


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
    yield from _unequal(f"the view {where}", [_item(each.blocks) for each in branch.items], [*map(_told, view(now))])
    yield from _unequal(f"settings {where}", _settings(state), _settings_of(c, n))
    yield from _unequal(f"the meter {where}", _meter(state), places.meter(c, n))
    yield from _unequal(f"the factor {where}", state.factor(), places.main_factor(c, n))
    yield from _unequal(f"what can be recalled {where}", state.branch.recallable, places.recallable(c, n))
    yield from _unequal(f"sums {where}", _sums(state), _sums_of(c, n))
    yield from _unequal(f"the digest of the request {where}", _digest(state, c), request.digest(c, n))
    for said in (0, *(seq for seq in now.messages if isinstance(now.messages[seq], UserSaid))):
        price = _rounded(places.next_message(c, n, said))
        yield from _unequal(f"the next message instead of {said} {where}", _next(state, said), price)
    listed = [(each.tokens, round(each.cost, 9)) for each in inspector.parts(state)]
    yield from _unequal(
        f"parts listed {where}", listed, [(count, round(cost, 9)) for count, cost in places.parts(c, n)]
    )
    money = budget.savings(state).paid_without
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
            EXCLUDED in (getattr(block.content, "text", ""), getattr(block.content, "arguments", "")[10:-2]),
        )
        for block in blocks
    ]


def _told(item: Item) -> list[Line]:
    return [_line(each) for each in item.shown]


def _line(each: Shown) -> Line:
    return each.ref, each.tokens, each.fold.fact.fold if each.fold else "", each.how == "note"


def _settings(state: Moment) -> tuple[object, ...]:
    set_last = state.settings
    return (set_last.system.text, set_last.tools.tools, [*set_last.rules], dict(set_last.models), set_last.policy)


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
    meter = budget.meter(state, from_fact(None))
    return {str(kind): tokens for kind, tokens in meter.parts.items()}, meter.used


def _sums(state: Moment) -> tuple[object, ...]:
    sums = budget.savings(state)
    return sums.steps, sums.sent, sums.without, sums.cache_read, sums.paid, sums.share


def _sums_of(c: Conversation, n: int) -> tuple[object, ...]:
    sums = figures.sums(c, n)
    return sums.steps, sums.sent, sums.without, sums.cache_read, sums.paid, sums.saved


def _next(state: Moment, instead: int) -> places.Next | None:
    told = budget.next_message(state, from_fact(None), before=instead)
    if told is None:
        return None
    lasts = told.forever or told.warm_until > 0
    return _rounded(places.Next(told.reply, told.warm, told.cold, told.warm_until, lasts))


def _rounded(price: places.Next | None) -> places.Next | None:
    return price and replace(price, warm=round(price.warm, 9), cold=round(price.cold, 9))


def _digest(state: Moment, c: Conversation) -> str:
    """Of what would be sent now, with what its view refers to."""
    now = state.view()
    parts = [block.content for block in now.blocks]
    stored = [part.stored if isinstance(part, Attachment) else part for part in parts]
    held = {one: shown(one, c.contents[one.digest]) for one in stored if isinstance(one, Stored)}
    return sent.digest_of(laws.request(now, held)).hex


# --- every fact ------------------------------------------------------------------------------------------------------


def _figures(state: State, c: Conversation) -> Iterator[Difference]:
    """What the view counts at every fact, with folds and without, and what each reply took."""
    ledger, all_facts = state.record.ledger, range(len(c.facts) + 1)
    yield from _unequal("tokens at every fact", [*ledger.shown], [figures.counted(c, n) for n in all_facts])
    without = [figures.counted(c, n, folding=False) for n in all_facts]
    yield from _unequal("tokens without folds at every fact", [*ledger.whole], without)
    for n, _ in figures.replies(c, len(c.facts)):
        yield from _unequal(f"what the request of the reply {n} took", ledger.sent(n), figures.sent(c, n))
        then = state.at(figures.saw(c, n))
        yield from _unequal(f"the inspector at the reply {n}", _meter(then), places.meter(c, figures.saw(c, n)))


# --- chat, timeline, export ------------------------------------------------------------------------------------------


def _chat_and_timeline(state: State, facts: list[Recorded], c: Conversation, chance: Random) -> Iterator[Difference]:
    n = len(facts)
    yield from _unequal("rows of an export", _exported(facts), places.exported(c, n))
    for way, history in (("opened", state), ("while it went on", None)):
        story = Story(history)
        story.extend(facts)
        points = [*zip(story.seqs, story.points, strict=True)]
        yield from _unequal(
            f"points of the timeline, {way}", points, [(each.seq, each.figure) for each in places.timeline(c, n)]
        )
        yield from _unequal(f"rows of the timeline, {way}", _rows(story), places.fold_rows(c, n))
        items = Items(history or State(), grouping=False)
        if history:
            items.extend(facts)
        else:
            for recorded in facts:
                items.advance(recorded)
        yield from _chat(way, items, c, chance)


def _exported(facts: list[Recorded]) -> list[tuple[str, str]]:
    told = export.told(facts, lambda _: None)
    return [(kind, {"said": text, "fold": head}.get(kind, "")) for head, kind, text in told]


def _rows(story: Story) -> list[places.FoldRow]:
    seqs = {id(recorded.fact): recorded.seq for recorded in story.history.facts}
    return [
        places.FoldRow(tuple(seqs[id(fold)] for fold in event.made), event.before, event.after, event.live)
        for event in story.events
        if event.made
    ]


def _chat(way: str, items: Items, c: Conversation, chance: Random) -> Iterator[Difference]:
    n = len(c.facts)
    shown = [(item.seq, item.kind.name.lower(), item.part) for item in items.all]
    yield from _unequal(f"items of the chat, {way}", shown, [*places.chat_items(c, n)])
    opened: set[int] = set()
    for _ in range(3):
        seen = [item.seq for index, item in enumerate(items.all) if not items.hidden(index)]
        reckoned = [seq for seq, _, _ in places.chat_seen(c, n, frozenset(opened))]
        yield from _unequal(f"what the chat shows with {opened or 'nothing'} opened, {way}", seen, reckoned)
        rewinds = [i for i, item in enumerate(items.all) if item.kind is ItemKind.REWOUND and not items.hidden(i)]
        if not rewinds:
            break
        index = chance.choice(rewinds)
        items.open_rewound(index)
        opened ^= {items.all[index].seq}
    for index, item in enumerate(items.all):
        where = f"item {index} of the chat (fact {item.seq}), {way}"
        if item.kind is ItemKind.FOLD:
            struck = not any(items.folded(fold.fold) for fold in items.batch(index))
            yield from _unequal(f"{where} struck out", struck, places.struck(c, item.seq, n))
        if item.kind is ItemKind.CALL:
            result = places.result(c, PartRef(item.seq, item.part), n)
            yield from _unequal(f"{where}, its result", items.call(index).returned_seq, result)
        if item.kind is ItemKind.USER and not items.set_aside(index):
            choice = items.answers(index)
            yield from _unequal(f"{where}, answers", (choice.number, choice.ends), places.answers(c, item.seq, n))
