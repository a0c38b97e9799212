"""Where it is shown: the request in outline, the chat, the timeline, the inspector, and the digest of a request."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from helix_desktop.engine.facts import (
    Folded,
    FoldKind,
    ModelReplied,
    PartRef,
    Refolded,
    Rewound,
    ToolReturned,
    ToolSpec,
    Unfolded,
    UserSaid,
)
from tests.reckoner.figures import PER_MESSAGE, counted, factor, main_model, saw, sent
from tests.reckoner.journal import Conversation, before, settings, way
from tests.reckoner.moment import NOTE, Item, Moment, Shown, moment, view

# --- the request in outline ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A part of a request. `text` is None where the definition or the contents do not give it. `id`: of a call or a result."""

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
        Outline(_who(now, item), item.seqs, _lines(c, now, item), item.fold.fact.fold if item.fold else "")
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


# --- the chat --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A fact in the chat, with what is hidden behind it where it is a `Rewound`."""

    seq: int
    hidden: tuple[Row, ...] = ()
    struck: bool = False
    results: tuple[int, ...] = ()  # of a reply's calls, in order; 0: none is shown


def chat(c: Conversation, n: int) -> tuple[Row, ...]:
    return _rows(c, 1, n, n)


def _rows(c: Conversation, first: int, last: int, n: int) -> tuple[Row, ...]:
    """The facts from first to last, by the way to the last; the others are behind the rewinds among them."""
    rows, expected = [], first
    for m in way(c, last):
        if m >= first:
            rows.append(Row(m, _rows(c, expected, m - 1, n), _struck(c, m, n), results(c, m, n)))
            expected = m + 1
    return tuple(rows)


def _batch(c: Conversation, fold: Folded, n: int) -> list[tuple[int, Folded]]:
    """The facts up to n of the batch of this fold; of a fold without one, itself."""
    folds = [(m, each) for m, each in c.until(n) if isinstance(each, Folded)]
    return [(m, each) for m, each in folds if (each.batch == fold.batch if fold.batch else each is fold)]


def _in_force(now: Moment, seq: int) -> bool:
    return any(now.folds[name].seq == seq for name in now.in_force)


def _struck(c: Conversation, m: int, n: int) -> bool:
    fact = c[m]
    if not isinstance(fact, Folded):
        return False
    now = moment(c, n)
    return not any(_in_force(now, seq) for seq, _ in _batch(c, fact, n))


def results(c: Conversation, m: int, n: int) -> tuple[int, ...]:
    """The result that each call of the reply m shows at n: both are on the way, or the call is not."""
    fact = c[m]
    if not isinstance(fact, ModelReplied):
        return ()
    calls = [PartRef(m, i) for i, part in enumerate(fact.parts) if hasattr(part, "arguments")]
    if not calls:
        return ()
    if m in way(c, n):
        return tuple(moment(c, n).answers.get(ref, 0) for ref in calls)
    found: dict[PartRef, int] = {}
    for seq, later in c.until(n):
        if isinstance(later, ToolReturned) and seq > m:
            found = {**moment(c, seq).answers, **found}
    return tuple(found.get(ref, 0) for ref in calls)


# --- the timeline ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    seq: int
    figure: int


def figure(c: Conversation, n: int) -> int:
    """What the view counts at n, times the main model's factor then."""
    return round(counted(c, n) * main_factor(c, n))


def main_factor(c: Conversation, n: int) -> float:
    main = main_model(c, n)
    return factor(c, main.model if main else "", n)


def timeline(c: Conversation, n: int) -> list[Point]:
    points: list[Point] = []
    for m, fact in c.until(n):
        if isinstance(fact, ModelReplied):
            points.append(Point(m, sent(c, m)))
        elif isinstance(fact, Folded):
            points += _fold_points(c, m, fact, n, points)
        elif isinstance(fact, Unfolded | Refolded | Rewound):
            points.append(Point(m, figure(c, m)))
    return points


def _fold_points(c: Conversation, m: int, fact: Folded, n: int, points: list[Point]) -> list[Point]:
    batch = [seq for seq, _ in _batch(c, fact, n)]
    if m != batch[0]:
        return []
    at = Point(m, figure(c, batch[-1]))
    earlier = Point(before(c, m), figure(c, before(c, m)))
    differs = not points or points[-1].figure != earlier.figure
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
            after = sum(worded.get(seq, each.tokens) for seq, each in batch)
            total = sum(each.tokens_before for _, each in batch)
            rows.append(FoldRow(seqs, total, after, any(_in_force(now, seq) for seq in seqs)))
    return rows


# --- the inspector ---------------------------------------------------------------------------------------------------

KINDS = {"tools": "system", "each message": "conversation", "text": "conversation", "attachment": "conversation"}


def kinds(c: Conversation, n: int) -> dict[str, int]:
    """The view's tokens at n by the finest kinds: settings, sorts of parts, kinds of folds, notes, and the 4 of each message."""
    found = Counter(settings(c, n).tokens())
    for item in view(moment(c, n)):
        found["each message"] += PER_MESSAGE if item.shown else 0
        for each in item.shown:
            found[_kind(each)] += each.tokens
    return {kind: tokens for kind, tokens in found.items() if tokens}


def _kind(each: Shown) -> str:
    if each.fold:
        return str(each.fold.fact.kind)
    return "note" if each.how == "note" else each.sort


def inspector(c: Conversation, reply: int) -> tuple[dict[str, int], int]:
    """The kinds of the moment a reply saw, by the main model's factor then, and what is used. `KINDS` says which go together."""
    n = saw(c, reply)
    groups: Counter[str] = Counter()
    for kind, tokens in kinds(c, n).items():
        groups[KINDS.get(kind, kind)] += tokens
    by = main_factor(c, n)
    rounded = {kind: round(tokens * by) for kind, tokens in groups.items()}
    return rounded, sum(rounded.values())


# --- the digest of a request -----------------------------------------------------------------------------------------

Piece = str | bytes


def request_digest(
    system: str, effort: str, tools: Iterable[ToolSpec], messages: Iterable[tuple[str, Sequence[Sequence[Piece]]]]
) -> str:
    """`messages`: role and parts, each part its pieces in the order of the definition, `text` or another word first."""
    pieces: list[Piece] = ["request 1", system, effort]
    for tool in tools:
        pieces += ["tool", tool.name, tool.description, tool.schema]
    for role, parts in messages:
        pieces += ["message", role, *(piece for part in parts for piece in part)]
    digest = hashlib.sha256()
    for piece in pieces:
        data = piece.encode() if isinstance(piece, str) else piece
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()
