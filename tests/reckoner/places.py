"""Where it is shown: the request in outline, the chat, the timeline and the inspector."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from helix_desktop.engine.facts import (
    Cover,
    DocumentEdited,
    Excluded,
    Fact,
    FilesChanged,
    Folded,
    FoldFailed,
    FoldKind,
    Forgotten,
    Included,
    ModelReplied,
    ModelSet,
    PartRef,
    Reasoning,
    Refolded,
    Rewound,
    RulesSet,
    Span,
    Stop,
    SystemSet,
    Text,
    TodoSet,
    ToolReturned,
    ToolsOffered,
    TurnEnd,
    TurnEnded,
    Unfolded,
    UserSaid,
)
from tests.reckoner.figures import (
    PER_MESSAGE,
    agent_that_writes,
    brought_in,
    counted,
    factor,
    main_model,
    next_takes,
    replies,
    reply_at,
    saw,
    sent,
    takes_of,
    usual_reply,
)
from tests.reckoner.journal import Conversation, before, settings, way
from tests.reckoner.moment import NOTE, Item, Moment, Shown, moment, sort_of, view

# --- the request in outline


@dataclass(frozen=True)
class Line:
    """A part of a request. `text` is None where the definition or the contents do not
    give it. `id`: of a call or a result.
    """

    shown: Shown
    text: str | None
    id: str = ""


@dataclass(frozen=True)
class Outline:
    """A message or a document. `who`: user, model, tool or document; `fold`: of a document."""

    who: str
    seqs: tuple[int, ...]
    lines: tuple[Line, ...]
    fold: str = ""


def outline(c: Conversation, n: int) -> list[Outline]:
    """What a request at n would carry, in order."""
    now = moment(c, n)
    items = _steering_last(now, [item for item in view(now) if item.shown])
    return [
        Outline(
            _who(now, item),
            item.seqs,
            _lines(c, now, item),
            item.fold.fact.fold if item.fold else "",
        )
        for item in items
    ]


def _steering_last(now: Moment, items: list[Item]) -> list[Item]:
    """What was said while tools worked stands after the whole batch of their results."""
    placed: list[Item] = []
    for item in items:
        at = len(placed)
        while _who(now, item) == "tool" and at and _is_steering(now, placed[at - 1]):
            at -= 1
        placed.insert(at, item)
    return placed


def _is_steering(now: Moment, item: Item) -> bool:
    message = now.messages[item.seqs[0]]
    return item.fold is None and isinstance(message, UserSaid) and message.steering


def _who(now: Moment, item: Item) -> str:
    if item.fold:
        return "document"
    message = now.messages[item.seqs[0]]
    return {UserSaid: "user", ModelReplied: "model", ToolReturned: "tool"}[type(message)]


def _lines(c: Conversation, now: Moment, item: Item) -> tuple[Line, ...]:
    return tuple(Line(each, _text(c, now, each), _id(now, each)) for each in item.shown)


def _text(c: Conversation, now: Moment, each: Shown) -> str | None:
    if each.fold:
        return each.fold.fact.text
    if each.how == "note":
        return '{"note": "' + NOTE + '"}' if each.sort == "call" else NOTE
    assert each.ref is not None
    message = now.messages[each.ref.seq]
    if not isinstance(message, ToolReturned):
        part = message.parts[each.ref.part]
        return getattr(part, "arguments" if each.sort == "call" else "text", None)
    content = c.contents.get(message.output.digest) if each.sort == "output" else None
    return content.decode("utf-8", "replace") if content is not None else None


def _id(now: Moment, each: Shown) -> str:
    if each.ref is None:
        return ""
    if each.sort == "call":
        return now.ids[each.ref]
    asked = {result: call for call, result in now.answers.items()}
    return now.ids[asked[each.ref.seq]] if each.ref.seq in asked else ""


# --- the chat

NOTED = (Stop.LENGTH, Stop.FILTERED, Stop.CUT)
Entry = tuple[int, str, int]  # a fact, what is shown of it, and which part


@dataclass(frozen=True)
class Row:
    """A fact in the chat, with what is hidden behind it where it is a `Rewound`."""

    seq: int
    hidden: tuple[Row, ...] = ()


def chat(c: Conversation, n: int) -> tuple[Row, ...]:
    return _rows(c, 1, n)


def _rows(c: Conversation, first: int, last: int) -> tuple[Row, ...]:
    """The facts from first to last, by the way to the last; the others are behind the
    rewinds among them.
    """
    rows = []
    expected = first
    for m in way(c, last):
        if m >= first:
            rows.append(Row(m, _rows(c, expected, m - 1)))
            expected = m + 1
    return tuple(rows)


def chat_items(c: Conversation, n: int) -> list[Entry]:
    """What the chat has of each fact, in order."""
    found: list[Entry] = []
    stopped = 0  # A reply that was stopped, while nothing else has happened.
    for m, fact in c.until(n):
        if isinstance(fact, UserSaid) and found and found[-1][0] == stopped:
            found.append((stopped, "note", 0))
        if isinstance(fact, UserSaid | ModelReplied | TurnEnded | Rewound):
            stopped = 0
        if isinstance(fact, ModelReplied) and fact.parts and fact.stop is Stop.STOPPED:
            stopped = m
        found += _items(c, m, fact, found)
    return found


def _items(c: Conversation, m: int, fact: Fact, found: list[Entry]) -> list[Entry]:
    kind = ""
    match fact:
        case ModelReplied():
            return _items_of_reply(m, fact)
        case TurnEnded():
            return _items_of_end(c, m, fact)
        case UserSaid(by=by):
            kind = "note" if by else "user"
        case Folded() if _has_line(c, m, fact):
            kind = "fold"
        case TodoSet(items=items) if items:
            kind = "plan"
        case FoldFailed() | Forgotten():
            kind = "note"
        case Rewound(to=to, again=False):
            removed = [entry for entry in found if entry[0] > to]
            if any(not _is_note_of_stop(c, entry) for entry in removed):
                kind = "rewound"
    return [(m, kind, 0)] if kind else []


def _items_of_reply(m: int, reply: ModelReplied) -> list[Entry]:
    names = {"text": "reply", "reasoning": "reasoning", "call": "call"}
    items: list[Entry] = []
    for number, part in enumerate(reply.parts):
        if not _is_empty(part):
            items.append((m, names[sort_of(reply, number)], number))
    if reply.stop in NOTED:
        items.append((m, "note", 0))
    return items


def _items_of_end(c: Conversation, m: int, end: TurnEnded) -> list[Entry]:
    items: list[Entry] = []
    if end.reason is TurnEnd.FAILED:
        items.append((m, "error", 0))
    elif end.reason is not TurnEnd.DONE or end.why:
        items.append((m, "note", 0))
    if _changed_files(c, m):
        items.append((m, "changes", 0))
    return items


def _is_note_of_stop(c: Conversation, entry: Entry) -> bool:
    """Whether it says only how a turn ended: no line says that it was taken back."""
    seq, kind, _part = entry
    return kind == "note" and isinstance(c[seq], TurnEnded)


def _is_empty(part: object) -> bool:
    return isinstance(part, Text | Reasoning) and not part.text.strip()


def _has_line(c: Conversation, m: int, fact: Folded) -> bool:
    """The first of its batch that is no excerpt."""
    lines = [seq for seq, each in _batch(c, fact, m) if each.kind is not FoldKind.EXCERPT]
    return lines[:1] == [m]


def _changed_files(c: Conversation, n: int) -> bool:
    """Whether a tool changed files since a turn ended last."""
    for m in range(n - 1, 0, -1):
        fact = c[m]
        if isinstance(fact, TurnEnded):
            return False
        if isinstance(fact, FilesChanged) and fact.by != "undo":
            return True
    return False


def chat_seen(c: Conversation, n: int, opened: frozenset[int] = frozenset()) -> list[Entry]:
    """What is not hidden where the rewinds `opened` are."""
    seen = set(_seen(chat(c, n), opened))
    return [
        entry for entry in chat_items(c, n) if entry[0] in seen and not replaced(c, entry[0], n)
    ]


def _seen(rows: tuple[Row, ...], opened: frozenset[int]) -> Iterable[int]:
    for row in rows:
        yield from _seen(row.hidden, opened) if row.seq in opened else ()
        yield row.seq


def replaced(c: Conversation, n: int, last: int) -> bool:
    """A reply that broke off, was taken out at once, and was asked for again with success."""
    fact = c[n]
    if not isinstance(fact, ModelReplied) or fact.stop is not Stop.CUT:
        return False
    is_out = False
    others = 0
    for m, later in c.until(last):
        if m <= n:
            continue
        is_said_by_user = isinstance(later, UserSaid) and not later.by
        if is_said_by_user or isinstance(later, Rewound):
            break
        if isinstance(later, ModelReplied) and later.parts:
            on_one_way = m in way(c, last) or n not in way(c, last)
            return is_out and on_one_way
        if isinstance(later, ModelReplied):
            others += 1
        if later == Excluded(Span(n, n)) and not others:
            is_out = True
    return False


def _batch(c: Conversation, fold: Folded, n: int) -> list[tuple[int, Folded]]:
    """The facts up to n of the batch of this fold; of a fold without one, itself."""
    folds = [(m, each) for m, each in c.until(n) if isinstance(each, Folded)]
    return [
        (m, each) for m, each in folds if (each.batch == fold.batch if fold.batch else each is fold)
    ]


def _in_force(now: Moment, seq: int) -> bool:
    return any(now.folds[name].seq == seq for name in now.in_force)


def struck(c: Conversation, m: int, n: int) -> bool:
    fact = c[m]
    assert isinstance(fact, Folded)
    return not any(_in_force(moment(c, n), seq) for seq, _ in _batch(c, fact, n))


def result(c: Conversation, call: PartRef, n: int) -> int:
    """The result a call shows at n, 0 without: of its way, or where the call is not on
    the way, the newest.
    """
    if call.seq in way(c, n):
        return moment(c, n).answers.get(call, 0)
    return max(moment(c, m).answers.get(call, 0) for m in range(call.seq, n + 1))


def answers(c: Conversation, message: int, n: int) -> tuple[int, tuple[int, ...]]:
    """Which answer to a message is shown, from 1, and the newest fact of each; (0, ())
    where there is but one.
    """
    begins: list[int] = []
    if message < n and before(c, message + 1) == message:
        begins.append(message + 1)
    for m, fact in c.until(n):
        is_asked_again = isinstance(fact, Rewound) and fact.again and fact.to == message
        if is_asked_again and message < m - 1:
            begins.append(m)
    if len(begins) <= 1:
        return 0, ()
    for number, begin in enumerate(begins, 1):
        if begin in way(c, n):
            return number, tuple(_end(c, begin, n) for begin in begins)
    return 0, ()


def _end(c: Conversation, begin: int, n: int) -> int:
    """The newest fact with the beginning of an answer on its way, that is the newest of
    all or was left by a rewind.
    """
    left = [m - 1 for m, fact in c.until(n) if isinstance(fact, Rewound)] + [n]
    return max(m for m in left if m >= begin and begin in way(c, m))


# --- the timeline


@dataclass(frozen=True)
class Point:
    seq: int
    figure: int


def figure(c: Conversation, n: int) -> int:
    """What the main model bills for the view at n."""
    main = main_model(c, n)
    return next_takes(c, main.model if main else "", n)


def main_factor(c: Conversation, n: int) -> float:
    main = main_model(c, n)
    return factor(c, main.model if main else "", n)


@lru_cache(maxsize=1_000)
def timeline(c: Conversation, n: int) -> list[Point]:
    points: list[Point] = []
    for m, fact in c.until(n):
        if isinstance(fact, ModelReplied):
            points.append(Point(m, _figure_of_step(c, m, fact)))
        elif isinstance(fact, Folded):
            points += _fold_points(c, m, fact, n)
        elif isinstance(fact, Unfolded | Refolded | Rewound):
            points.append(Point(m, figure(c, m)))
    return points


def _figure_of_step(c: Conversation, m: int, reply: ModelReplied) -> int:
    """What a request took as reported. Of our own requests, a report of less than half of what was
    counted is not believed, and one without a report is estimated as the meter does.
    """
    reported = sent(c, m)
    count = counted(c, saw(c, m))
    is_believed = reply.usage.input != 0 and reported >= 0.5 * count
    if agent_that_writes(c, m) or is_believed:
        return reported
    return takes_of(c, reply.model, m, count)


def _fold_points(c: Conversation, m: int, fact: Folded, n: int) -> list[Point]:
    batch = [seq for seq, _ in _batch(c, fact, n)]
    if m != batch[0]:
        return []
    at = Point(m, figure(c, batch[-1]))
    earlier = Point(m, figure(c, before(c, m)))
    points = timeline(c, m - 1)  # as they were when it came
    differs = bool(points) and points[-1].figure != earlier.figure
    return [earlier, at] if fact.kind is not FoldKind.EXCERPT and differs else [at]


@dataclass(frozen=True)
class FoldRow:
    """A batch, or a fold without one."""

    seqs: tuple[int, ...]
    before: int
    after: int
    in_force: bool


def fold_rows(c: Conversation, n: int) -> list[FoldRow]:
    now = moment(c, n)
    worded = {fold.seq: fold.fact.tokens for fold in now.folds.values()}
    rows = []
    for m, fact in c.until(n):
        batch = _batch(c, fact, n) if isinstance(fact, Folded) else []
        if batch and batch[0][0] == m:
            seqs = tuple(seq for seq, _ in batch)
            in_force = [(seq, each) for seq, each in batch if _in_force(now, seq)]
            counted = batch
            if any(each.kind is batch[0][1].kind for _, each in in_force):
                counted = in_force
            after = sum(worded.get(seq, each.tokens) for seq, each in counted)
            total = sum(each.tokens_before for _, each in counted)
            rows.append(FoldRow(seqs, total, after, bool(in_force)))
    return rows


# --- the inspector

SYSTEM = "system and tools"
HANDOVER = "handover"
OBSERVATIONS = "observations"
CONVERSATION = "conversation"
OUTPUT = "tool outputs"


def kinds(c: Conversation, n: int) -> dict[str, int]:
    """The view's tokens at n: a part counts by its message, also folded or behind a
    document; the 4 are conversation.
    """
    now = moment(c, n)
    found = Counter({SYSTEM: sum(settings(c, n).tokens().values())})
    for item in view(now):
        found[CONVERSATION] += PER_MESSAGE if item.shown else 0
        for each in item.shown:
            found[_kind(now, each)] += each.tokens
    return found


def _kind(now: Moment, each: Shown) -> str:
    if each.ref is None:
        assert each.fold is not None
        return (
            HANDOVER
            if each.fold.fact.kind in (FoldKind.HANDOVER, FoldKind.TRUNCATION)
            else OBSERVATIONS
        )
    return OUTPUT if isinstance(now.messages[each.ref.seq], ToolReturned) else CONVERSATION


def meter(c: Conversation, n: int) -> tuple[dict[str, int], int]:
    """What the next request takes, and the kinds' shares of it by what they count. The ends of
    the shares are rounded down, so that they sum up to it.
    """
    used = figure(c, n)
    counts = kinds(c, n)
    whole = sum(counts.values()) or 1
    shares: dict[str, int] = {}
    so_far = 0
    for kind in (SYSTEM, HANDOVER, OBSERVATIONS, CONVERSATION, OUTPUT):
        end = so_far + counts[kind]
        shares[kind] = used * end // whole - used * so_far // whole
        so_far = end
    return shares, used


def recallable(c: Conversation, n: int) -> int:
    """What markers and excerpts in force stand for: once for each cover, the most that
    one of them says, and once for each entry that covers have in common. Not what was
    forgotten until then, on any branch.
    """
    gone = {
        entry for _, fact in c.until(n) if isinstance(fact, Forgotten) for entry in fact.entries
    }
    now = moment(c, n)
    most = Counter[Cover]()
    stored: dict[Any, Any] = {}
    for name in now.in_force:
        fold = now.folds[name]
        if fold.fact.kind in (FoldKind.MARKER, FoldKind.EXCERPT) and not (
            fold.fact.entries and gone.issuperset(fold.fact.entries)
        ):
            most[fold.cover] = max(most[fold.cover], fold.fact.tokens_before)
            if fold.fact.entries:
                stored[fold.cover] = fold.fact.entries[0]
    once: dict[Any, int] = {}
    for cover, tokens in most.items():
        original = stored.get(cover, cover)
        once[original] = max(once.get(original, 0), tokens)
    return sum(once.values())


def prices(model: ModelSet | None) -> tuple[float, float, float]:
    """Of cached tokens, of writing, of output; what is not known by the price of input,
    without which nothing is told.
    """
    if model is None or model.price_input <= 0:
        return 0.0, 0.0, 0.0
    plain = model.price_input
    return (
        model.price_cache_read or plain,
        model.price_cache_write or plain,
        model.price_output or plain * 5,
    )


@dataclass(frozen=True)
class Next:
    """What the next message costs in dollars with the last request in the provider's
    cache and without. `until`: when it goes, 0 where that is not known; `lasts`:
    something is there.
    """

    reply: int
    warm: float
    cold: float
    until: float
    lasts: bool


def next_message(c: Conversation, n: int, instead: int = 0) -> Next | None:
    """`instead`: of a message, which it replaces with all behind it."""
    main = main_model(c, n)
    reply = usual_reply(c, n)
    cached, writing, output = prices(main)
    if main is None or not writing:
        return None
    gone = sum(_tokens(item) for item in view(moment(c, n)) if instead and _begin(item) >= instead)
    takes = meter(c, n)[1]
    if instead:  # as it was billed before that message
        takes = takes_of(c, main.model, instead - 1, counted(c, n) - gone)
    front, asked = in_cache(c, n)
    old = min(front, takes)
    warm = old * cached + (takes - old) * writing + reply * output
    cold = takes * writing + reply * output
    until = asked + main.cache_seconds if old and main.cache_seconds else 0.0
    return Next(reply, warm / 1_000_000, cold / 1_000_000, until, old > 0)


def in_cache(c: Conversation, n: int) -> tuple[int, float]:
    """How much of the front of the next request the last one had already, and when that
    was asked.
    """
    main = main_model(c, n)
    last = -1
    for m, fact in replies(c, n):
        is_of_main = main is not None and fact.model == main.model
        if is_of_main and fact.usage.input > 0 and counted(c, saw(c, m)) > 0:
            last = m
    if last < 0 or brought_in(c, last, n):
        return 0, 0.0
    reply = reply_at(c, last)
    took = reply.usage.input
    asked = c.times[last - 1] - reply.seconds
    now = moment(c, n)
    first = _first_change(c, now, saw(c, last) + 1, n)
    if first is None:
        return took, asked
    if first <= 0:
        return 0, asked
    before = sum(settings(c, n).tokens().values())
    for item in view(now):
        if _begin(item) < first:
            before += _tokens(item)
    return min(took, round(before * main_factor(c, n))), asked


def _first_change(c: Conversation, now: Moment, begin: int, end: int) -> int | None:
    """The first place in the request that one of these facts has changed."""
    places = [_changes(now, c[m]) for m in range(begin, end + 1)]
    return min((place for place in places if place is not None), default=None)


def _changes(now: Moment, fact: Fact | None) -> int | None:
    """From which message on a request is another by this fact; 0: from its beginning."""
    match fact:
        case SystemSet() | RulesSet() | ToolsOffered():
            return 0
        case Rewound(to=to):
            return max(0, to) + 1
        case Folded(cover=cover) | Excluded(ref=cover) | Included(ref=cover):
            return max(1, cover.first if isinstance(cover, Span) else cover.seq)
        case Unfolded(fold=name) | Refolded(fold=name) | DocumentEdited(fold=name):
            return _changes(now, now.folds[name].fact) if name in now.folds else None
    return None


def _begin(item: Item) -> int:
    return (
        item.fold.cover.first if item.fold and isinstance(item.fold.cover, Span) else item.seqs[0]
    )


def _tokens(item: Item) -> int:
    return sum(each.tokens for each in item.shown) + (PER_MESSAGE if item.shown else 0)


def parts(c: Conversation, n: int) -> list[tuple[int, float]]:
    """Of all that is in the context, the tokens and what a request pays to read it from
    the provider's cache.
    """
    main = main_model(c, n)
    by = main_factor(c, n)
    texts = settings(c, n)
    alone = [texts.system.tokens] if texts.system and texts.system.text else []
    alone += [fact.tokens + 10 for _, fact in texts.rules.values()]
    counts = alone + [each.tokens for item in view(moment(c, n)) for each in item.shown]
    price, _, _ = prices(main)
    return [(count, count * by * price / 1_000_000) for count in counts]


# --- an export


def exported(c: Conversation, n: int) -> list[tuple[str, str]]:
    """All facts that say something, on any way: what kind of line, and its figures
    where it has some.
    """
    lines: list[tuple[str, str]] = []
    for _, fact in c.until(n):
        match fact:
            case UserSaid():
                lines.append(("user", ""))
            case ModelReplied(parts=parts):
                for part in parts:
                    if isinstance(part, Text) and not _is_empty(part):
                        lines.append(("said", part.text))
                    if isinstance(part, Reasoning) and not _is_empty(part):
                        lines.append(("code", ""))
            case ToolReturned():
                lines.append(("code", ""))
            case Folded(kind=kind, tokens=tokens, tokens_before=earlier):
                lines.append(("fold", f"{kind}: {earlier:,} → {tokens:,} tokens"))
            case _:
                pass
    return lines
