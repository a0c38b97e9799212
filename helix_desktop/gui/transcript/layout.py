"""Items to boxes. Each item is a generator, so a long one is laid out in slices and never holds the window up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from helix_desktop.engine import exact
from helix_desktop.engine.blocks import Kind
from helix_desktop.engine.facts import (
    Attachment,
    Folded,
    ModelReplied,
    PartRef,
    Reasoning,
    Stored,
    TodoSet,
    ToolReturned,
    TurnEnded,
    UserSaid,
)
from helix_desktop.gui.meter import short
from helix_desktop.gui.shared.figures import lasted, size
from helix_desktop.gui.shared.folds import colour_kind, sentence
from helix_desktop.gui.transcript.bars import CallBox, ChipsBox, FoldBox, HeadBox
from helix_desktop.gui.transcript.boxes import Box, Formula, Key, More, Picture, Toggle, Words, note
from helix_desktop.gui.transcript.cards import CardBox, card_of, retrying
from helix_desktop.gui.transcript.code import AT_ONCE, FIRST_LINES, CodeBox
from helix_desktop.gui.transcript.groups import Group
from helix_desktop.gui.transcript.harmless import harmless, printed
from helix_desktop.gui.transcript.highlight import language_of
from helix_desktop.gui.transcript.hover_bar import NameBox
from helix_desktop.gui.transcript.intents import OpenChanges, OpenConversation, OpenEntry, OpenFold, OpenPicture, TryNow
from helix_desktop.gui.transcript.item import CallState, Item, ItemKind, text_of
from helix_desktop.gui.transcript.markdown import Paragraph, Span, coded
from helix_desktop.gui.transcript.page import Page
from helix_desktop.gui.transcript.prose import prose
from helix_desktop.gui.transcript.tool_lines import CallLine, Chip, Look, about, call_line, called
from helix_desktop.gui.words import count, numeral, tr
from helix_desktop.values import dataclass

LIMIT = 48_000
USER_LIMIT = 4_000
MORE = 48_000
NESTED = 40
LONGEST_ARGUMENTS = 20_000


@dataclass(frozen=True, slots=True)
class At:
    """What is to be laid out: an item of a page, or, of an answer, its chunks from `start` on."""

    page: Page
    index: int
    item: Item
    start: int


def boxes(page: Page, index: int, start: int = 0) -> Iterator[Box]:
    """The boxes of an item, from the top. `start`: of an answer, only those of the chunks from there on."""
    item = page.items.all[index]
    return _MAKERS[item.kind](At(page, index, item, start))


def _prose(page: Page, item: Item, start: int, limit: int, *, breaks: bool = False) -> Iterator[Box]:
    """Markdown as boxes. `limit` is how much is shown without being asked."""

    def key_of(chunk: int) -> Key:
        return page.key("lines", item.seq, item.part, chunk)

    def lines(key: Key) -> int:
        return FIRST_LINES + page.opened.get(key, 0)

    def drawn(latex: str, display: bool) -> Formula | None:  # noqa: FBT001
        size = page.ink.theme.zoom * (17 if display else 15)
        return page.contents.formula(latex, display=display, size=size, colour=page.ink.colour("text").name())

    text = text_of(item)[:limit]
    at_once = AT_ONCE if item.kind is ItemKind.LIVE_REPLY else 0  # what is written just now must not flicker
    return prose(
        page.ink, page.width, text, start=start, breaks=breaks, key_of=key_of, lines=lines, at_once=at_once, drawn=drawn
    )


def _user(at: At) -> Iterator[Box]:
    """The surface it stands on has its own margin."""
    for number, box in enumerate(_said(at)):
        box.gap = box.gap if number else 0.0
        yield box


def _said(at: At) -> Iterator[Box]:
    page, item = at.page, at.item
    fact = item.fact
    if not isinstance(fact, UserSaid):
        return
    text = text_of(item)
    limit = USER_LIMIT + page.amount(("limit", item.seq, 0))
    if text.strip():
        yield from _prose(page, item, 0, limit, breaks=True)
        yield from _rest(page, item, len(text), limit)
    for number, part in enumerate(fact.parts):
        if isinstance(part, Attachment):
            yield from _attachment(page, part, page.items.shown_as(PartRef(item.seq, number)))


def _attachment(page: Page, part: Attachment, fold: Folded | None) -> Iterator[Box]:
    """Of one that a fold stands for, the tokens that go to the model come first."""
    gap = float(page.ink.px(8))
    figures = tr("{n} tokens", n=short(part.tokens)) if part.tokens else size(part.stored.size)
    if fold is not None:
        figures = tr("{n} of {all} tokens", n=short(fold.tokens), all=short(part.tokens))
    chip = Chip(f"{harmless(part.name)} · {figures}", want=OpenEntry(part.stored.digest))
    if part.stored.media_type.startswith("image/"):
        yield from _picture(page, part.stored, part.name)
    yield ChipsBox(page.ink, page.width, [chip], gap=gap)


def _picture(page: Page, stored: Stored, name: str) -> Iterator[Box]:
    gap = float(page.ink.px(8))
    image = page.contents.image(stored)
    if image is not None:
        yield Picture(page.ink, page.width, image, harmless(name), gap=gap, act=OpenPicture(stored, name))
    elif trouble := page.contents.trouble(stored.digest):
        yield note(page.ink, page.width, trouble, gap=gap, colour="danger")


def _reply(at: At) -> Iterator[Box]:
    page, item, start = at.page, at.item, at.start
    if item.head and start == 0:
        yield NameBox(page.ink, page.width, page.items.writer(at.index), page.items.answers(at.index))
    text = text_of(item)
    limit = LIMIT + page.amount(("limit", item.seq, item.part))
    first = start == 0
    for box in _prose(page, item, start, limit):
        if first:
            box.gap = float(page.ink.px(3)) if item.head else 0.0
            first = False
        yield box
    yield from _rest(page, item, len(text), limit)


def _rest(page: Page, item: Item, length: int, limit: int) -> Iterator[Box]:
    if length > limit:
        words = tr("Show more ({rest} characters)", rest=numeral(length - limit))
        act = Toggle(page.key("limit", item.seq, item.part), MORE)
        yield More(page.ink, page.width, words, act, gap=float(page.ink.px(7)))


def _group(at: At) -> Iterator[Box]:
    """The line of a group, on its first item. It is followed by that item where that is to be seen."""
    group = at.page.items.group(at.index)
    if group is not None:
        act = Toggle(at.page.key("group", at.index))
        yield HeadBox(at.page.ink, at.page.width, group_words(group), act, opened=group.opened)


def group_words(group: Group) -> str:
    """`7 tool calls · 12 s`, and what did not go well."""
    words = [count(group.done + group.failed, "{n} tool call", "{n} tool calls")]
    if group.seconds >= 0.1:
        words.append(lasted(group.seconds))
    if group.failed:
        words.append(count(group.failed, "{n} failed", "{n} failed"))
    return " · ".join(words)


def _behind(at: At) -> bool:
    """Whether the item itself stands behind the line that is on it."""
    group = at.page.items.group(at.index)
    return group is not None and not group.opened and at.index in group.quiet


def _reasoning(at: At) -> Iterator[Box]:
    page, item = at.page, at.item
    yield from _group(at)
    if _behind(at):
        return
    fact = item.fact
    part = fact.parts[item.part] if isinstance(fact, ModelReplied) else None
    tokens = part.tokens if isinstance(part, Reasoning) else 0
    key = ("open", item.seq, item.part)
    opened = page.open(key)
    words = tr("Reasoning · {n} tokens", n=short(tokens)) if tokens else tr("Reasoning")
    gap = float(page.ink.px(6)) if page.items.group(at.index) else 0.0
    yield HeadBox(page.ink, page.width, words, Toggle(page.key(*key)), opened=opened, gap=gap)
    if opened:
        yield from _muted(page, text_of(item), LIMIT)


def _live_reasoning(at: At) -> Iterator[Box]:
    page, index, item = at.page, at.index, at.item
    key = ("live", index)
    opened = page.open(key, default=True)
    yield HeadBox(page.ink, page.width, tr("Reasoning…"), Toggle(page.key(*key)), opened=opened)
    if opened:
        yield from _muted(page, item.text[-600:], 600)


def _muted(page: Page, text: str, limit: int) -> Iterator[Box]:
    for piece in harmless(text[:limit]).strip().split("\n"):
        if piece.strip():
            cut = [piece[i : i + 4_000] for i in range(0, len(piece), 4_000)]
            for each in cut:
                yield note(page.ink, page.width, each, gap=float(page.ink.px(4)))


def _call(at: At) -> Iterator[Box]:
    page, index, item = at.page, at.index, at.item
    yield from _group(at)
    if _behind(at):
        return
    state = page.items.call(index)
    key = ("open", item.seq, item.part)
    opened = page.open(key)
    gap = float(page.ink.px(6)) if page.items.group(index) else 0.0
    yield CallBox(page.ink, page.width, call_line(state, page.now()), Toggle(page.key(*key)), gap=gap)
    if state.returned is not None:
        for stored in state.returned.images:
            yield from _picture(page, stored, tr("picture"))
    if opened:
        yield from _call_body(page, item, state)


def _call_body(page: Page, item: Item, state: CallState) -> Iterator[Box]:
    gap = float(page.ink.px(6))
    arguments = _arguments(state.call.arguments)
    if arguments:
        more = page.key("arguments", item.seq, item.part)
        lines = 12 + page.opened.get(more, 0)
        yield CodeBox(page.ink, page.width, arguments, "json", gap=gap, more=more, lines=lines)
    if state.call.keep:
        yield note(
            page.ink, page.width, tr("The agent asked for: {words}", words=harmless(state.call.keep[:400])), gap=gap
        )
    if state.decided is not None and state.decided.why:
        yield note(page.ink, page.width, harmless(state.decided.why[:1000]), gap=gap)
    if state.returned is None:
        if state.shown:
            last = "\n".join(printed(state.shown[-16_000:]).rstrip("\n").split("\n")[-24:])
            yield CodeBox(page.ink, page.width, last, gap=gap)
        return
    yield from _output(page, item, state, state.returned)
    if state.returned.child:
        yield from _child(page, state.returned.child)


def _output(page: Page, item: Item, state: CallState, returned: ToolReturned) -> Iterator[Box]:
    gap = float(page.ink.px(6))
    stored = returned.output
    whole = len(returned.head.encode("utf-8", "replace")) >= stored.size
    text = returned.head if whole else page.contents.text(stored)
    if text is None:
        trouble = page.contents.trouble(stored.digest)
        yield note(
            page.ink, page.width, trouble or tr("Loading output…"), gap=gap, colour="danger" if trouble else "muted"
        )
        return
    if text.strip():
        more = page.key("lines", item.seq, item.part)
        lines = 40 + page.opened.get(more, 0)
        language = language_of(about(state.call.arguments), stored.media_type)
        yield CodeBox(page.ink, page.width, printed(text.rstrip("\n")), language, gap=gap, more=more, lines=lines)
    elif not returned.images:
        yield note(page.ink, page.width, tr("No output."), gap=gap)
    words = tr("Open the full output in the cache ({size})", size=size(stored.size))
    yield More(page.ink, page.width, words, OpenEntry(stored.digest), gap=float(page.ink.px(2)))


def _child(page: Page, conversation: str) -> Iterator[Box]:
    items = page.contents.child(conversation)
    if items is None:
        yield note(page.ink, page.width, tr("Loading the sub-agent's conversation…"), gap=6.0)
        return
    by = float(page.ink.px(18))
    inner = page.nested(items, by, (*page.prefix, conversation))
    first = max(0, len(items.all) - NESTED)
    words = tr("Open the sub-agent's conversation ({n} items)", n=len(items.all))
    yield More(page.ink, page.width, words, OpenConversation(conversation), gap=6.0)
    for index in range(first, len(items.all)):
        for number, box in enumerate(boxes(inner, index)):
            box.left += by
            box.nested = True
            box.gap += float(page.ink.px(6)) if number == 0 else 0.0
            yield box


def _arguments(text: str) -> str:
    """The arguments as indented JSON; empty where the line says it all."""
    if len(text) <= 60 or (text.count('":') <= 1 and len(text) < 200):
        return ""
    if len(text) > LONGEST_ARGUMENTS:
        return exact.shown(text[:LONGEST_ARGUMENTS]) + "…"
    try:
        return exact.shown(json.dumps(json.loads(text), indent=2, ensure_ascii=False).replace("\\n", "\n"))
    except (ValueError, RecursionError):
        return exact.shown(text)


def _live_call(at: At) -> Iterator[Box]:
    page, index = at.page, at.index
    name, arguments = page.items.live_call(index)
    right = tr("writing… {n} characters", n=numeral(len(arguments)))
    line = CallLine(called(name, arguments), Look.RUNNING, (), right)
    yield CallBox(page.ink, page.width, line, Toggle(page.key("live", index)))


def _fold(at: At) -> Iterator[Box]:
    page, index, item = at.page, at.index, at.item
    folds = page.items.batch(index)
    fact = folds[0] if folds else item.fact
    if not isinstance(fact, Folded):
        return
    before, after = sum(each.tokens_before for each in folds), sum(each.tokens for each in folds)
    undone = not any(page.items.folded(each.fold) for each in folds)
    words = sentence(fact, len(folds), before, after) + (" · " + tr("undone") if undone else "")
    yield FoldBox(page.ink, page.width, words, colour_kind(fact.kind), OpenFold(fact.fold), undone=undone)


def _changes(at: At) -> Iterator[Box]:
    page, item = at.page, at.item
    yield FoldBox(page.ink, page.width, item.text, Kind.CONVERSATION, OpenChanges(item.seq), undone=False)


def _note(at: At) -> Iterator[Box]:
    page, item = at.page, at.item
    paragraph = Paragraph(coded(harmless(item.text[:4_000])))
    yield Words(page.ink, page.width, paragraph, font=page.ink.small, colour="muted")


def _error(at: At) -> Iterator[Box]:
    page, item = at.page, at.item
    cause = item.fact.cause if isinstance(item.fact, TurnEnded) else ""
    title, ways = card_of(cause)
    ways = ways if page.items.can_go_on(at.index) else ()
    yield CardBox(page.ink, page.width, title, harmless(item.text[:4_000]), ways, failed=True)


def _plan(at: At) -> Iterator[Box]:
    page, item = at.page, at.item
    if not isinstance(item.fact, TodoSet):
        return
    key = ("open", item.seq, 0)
    opened = page.open(key, default=True)
    done = sum(1 for _, state in item.fact.items if state == "done")
    words = tr("Plan · {done} of {all} done", done=done, all=len(item.fact.items))
    yield HeadBox(page.ink, page.width, words, Toggle(page.key(*key)), opened=opened)
    signs = {"done": "☑", "doing": "◐", "open": "☐"}
    for text, state in item.fact.items[:100] if opened else ():
        paragraph = Paragraph((Span(harmless(text[:1000])),), indent=1, marker=signs.get(state, "☐"))
        colour = "muted" if state == "done" else "text"
        yield Words(page.ink, page.width, paragraph, gap=float(page.ink.px(3)), colour=colour)


def _rewound(at: At) -> Iterator[Box]:
    page, index = at.page, at.index
    first, last, opened = page.items.away(index)
    what = count(last - first + 1, "{n} earlier item hidden by a rewind", "{n} earlier items hidden by a rewind")
    act = Toggle(page.key("rewound", index))
    yield HeadBox(page.ink, page.width, what, act, opened=opened)


def _waiting(at: At) -> Iterator[Box]:
    page, item = at.page, at.item
    title = retrying(page.items.until - page.now())
    yield CardBox(page.ink, page.width, title, harmless(item.text[:1000]), ((tr("Try now"), TryNow()),), failed=False)


_MAKERS: dict[ItemKind, Callable[[At], Iterator[Box]]] = {
    ItemKind.USER: _user,
    ItemKind.REPLY: _reply,
    ItemKind.LIVE_REPLY: _reply,
    ItemKind.REASONING: _reasoning,
    ItemKind.LIVE_REASONING: _live_reasoning,
    ItemKind.CALL: _call,
    ItemKind.LIVE_CALL: _live_call,
    ItemKind.CHANGES: _changes,
    ItemKind.FOLD: _fold,
    ItemKind.NOTE: _note,
    ItemKind.PLAN: _plan,
    ItemKind.REWOUND: _rewound,
    ItemKind.WAITING: _waiting,
    ItemKind.ERROR: _error,
}
