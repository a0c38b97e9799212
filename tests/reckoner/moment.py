"""A moment: messages, calls, turns, folds, bars, pins and exclusions on the way to a
fact, and the view of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

from helix_desktop.engine.facts import (
    Attachment,
    Cover,
    DetailsKept,
    DocumentEdited,
    Excluded,
    Fact,
    Folded,
    Included,
    ModelReplied,
    PartRef,
    Pinned,
    Reasoning,
    Refolded,
    Span,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnded,
    Unfolded,
    Unpinned,
    UserSaid,
)
from tests.reckoner.journal import Conversation, way

NOTE = "[Taken out of the context by the user]"
NOTE_TOKENS = 8
IMAGE_TOKENS = 1600

Message = UserSaid | ModelReplied | ToolReturned


@dataclass(frozen=True)
class Fold:
    """A fold that had an effect. `fact`: as worded now. `left`: the parts it leaves
    word for word, settled when it was made.
    """

    seq: int
    fact: Folded
    left: frozenset[PartRef]

    @property
    def cover(self) -> Cover:
        return self.fact.cover


@dataclass
class Moment:
    messages: dict[int, Message] = field(default_factory=dict)  # by number, in order
    waiting: list[PartRef] = field(default_factory=list)
    ids: dict[PartRef, str] = field(default_factory=dict)  # of calls, in requests
    answers: dict[PartRef, int] = field(default_factory=dict)  # the result of a call
    words: list[int] = field(default_factory=list)  # of the last turn
    running: bool = False
    folds: dict[str, Fold] = field(default_factory=dict)  # by name, the oldest first
    over: dict[PartRef, list[str]] = field(
        default_factory=dict
    )  # folds over a part, the oldest first
    wide: list[str] = field(default_factory=list)  # folds over a span, the oldest first
    in_force: set[str] = field(default_factory=set)
    bars: set[Cover] = field(default_factory=set)
    pinned: set[Cover] = field(default_factory=set)
    excluded: set[Cover] = field(default_factory=set)


@lru_cache(maxsize=256)
def moment(c: Conversation, n: int, *, folding: bool = True) -> Moment:
    """The state at n, not to be changed; without `folding` as if no fold had ever had an effect."""
    now = Moment()
    for m in way(c, n):
        fact = c[m]
        if fact is not None and (folding or not isinstance(fact, Folded)):
            _happen(now, m, fact)
    return now


def _happen(now: Moment, n: int, fact: Fact) -> None:
    match fact:
        case UserSaid():
            _say(now, n, fact)
        case ModelReplied():
            _reply(now, n, fact)
        case ToolReturned():
            _return(now, n, fact)
        case TurnEnded():
            now.running = False
        case Folded() | DocumentEdited():
            _word(now, n, fact)
        case Unfolded() | Refolded():
            _toggle(now, fact)
        case Pinned() | Unpinned():
            _mark(now.pinned, fact.ref, on=isinstance(fact, Pinned))
        case Excluded() | Included():
            if not (isinstance(fact, Excluded) and _takes_reasoning(now, fact.ref)):
                _mark(now.excluded, fact.ref, on=isinstance(fact, Excluded))
        case _:
            pass


# --- messages, calls and turns


def _say(now: Moment, n: int, fact: UserSaid) -> None:
    now.messages[n] = fact
    if fact.steering and now.running:
        now.words.append(n)
    else:
        now.words = [n]
        now.running = True


def _reply(now: Moment, n: int, fact: ModelReplied) -> None:
    now.messages[n] = fact
    now.running = True
    calls = [
        (PartRef(n, i), part) for i, part in enumerate(fact.parts) if isinstance(part, ToolCall)
    ]
    now.waiting = [ref for ref, _ in calls]
    for ref, call in calls:
        free = call.id and call.id not in now.ids.values()
        now.ids[ref] = call.id if free else f"call-{ref.seq}-{ref.part}"


def _return(now: Moment, n: int, fact: ToolReturned) -> None:
    for ref in now.waiting:
        if _call(now, ref).id == fact.call:
            now.messages[n] = fact
            now.waiting.remove(ref)
            now.answers[ref] = n
            return


def _call(now: Moment, ref: PartRef) -> ToolCall:
    reply = now.messages[ref.seq]
    assert isinstance(reply, ModelReplied)
    part = reply.parts[ref.part]
    assert isinstance(part, ToolCall)
    return part


# --- parts


def parts(now: Moment, seq: int) -> list[PartRef]:
    message = now.messages[seq]
    number = 1 + len(message.images) if isinstance(message, ToolReturned) else len(message.parts)
    return [PartRef(seq, i) for i in range(number)]


def sort_of(message: Message, part: int) -> str:
    """text, attachment, image, reasoning, call or output."""
    if isinstance(message, ToolReturned):
        return "image" if part else "output"
    match message.parts[part]:
        case Attachment(stored=stored):
            return "image" if stored.media_type.startswith("image/") else "attachment"
        case Reasoning():
            return "reasoning"
        case ToolCall():
            return "call"
        case _:
            return "text"


def tokens_of(message: Message, part: int) -> int:
    if isinstance(message, ToolReturned):
        return tokens_beside_output(message.images[part - 1]) if part else message.tokens
    if is_blank(message, part):
        return 0
    tokens = message.parts[part].tokens
    return tokens or (IMAGE_TOKENS if sort_of(message, part) == "image" else 0)


def tokens_beside_output(stored: Stored) -> int:
    """A picture costs the same whatever is in it, a document what its text has, and a file that is
    neither is not sent.
    """
    kind = stored.media_type.split("/")[0]
    return {"image": IMAGE_TOKENS, "text": stored.size // 4}.get(kind, 0)


def is_blank(message: Message, part: int) -> bool:
    if isinstance(message, ToolReturned):
        return False
    found = message.parts[part]
    return isinstance(found, Text) and not found.text.strip()


# --- pins and exclusions


def _mark(marks: set[Cover], cover: Cover, *, on: bool) -> None:
    if on:
        marks.add(cover)
    else:
        marks.discard(cover)


def holds(cover: Cover, ref: PartRef) -> bool:
    return cover == ref if isinstance(cover, PartRef) else cover.first <= ref.seq <= cover.last


def _marked(marks: set[Cover], ref: PartRef) -> bool:
    return any(holds(cover, ref) for cover in marks)


def is_pinned(now: Moment, ref: PartRef) -> bool:
    return _marked(now.pinned, ref)


def is_excluded(now: Moment, ref: PartRef) -> bool:
    """If one part of reasoning is excluded, all reasoning of the reply is."""
    group = [ref]
    if sort_of(now.messages[ref.seq], ref.part) == "reasoning":
        group = reasoning(now, ref.seq)
    return any(_marked(now.excluded, each) for each in group)


def reasoning(now: Moment, seq: int) -> list[PartRef]:
    return [ref for ref in parts(now, seq) if sort_of(now.messages[seq], ref.part) == "reasoning"]


def _takes_reasoning(now: Moment, cover: Cover) -> bool:
    """Would an exclusion take out reasoning of a reply that came after the running
    turn's first word?
    """
    if not now.running:
        return False
    later = [seq for seq in now.messages if seq > (now.words[0] if now.words else 0)]
    return any(holds(cover, ref) for seq in later for ref in reasoning(now, seq))


# --- folds


def held(now: Moment, span: Span) -> list[int]:
    """The messages on the way that lie in the span."""
    return [seq for seq in now.messages if span.first <= seq <= span.last]


def _word(now: Moment, n: int, fact: Folded | DocumentEdited) -> None:
    if isinstance(fact, Folded):
        if _folds(now, n, fact):
            now.folds[fact.fold] = Fold(n, fact, _left(now, fact))
            now.in_force.add(fact.fold)
            same = (
                now.over.setdefault(fact.cover, []) if isinstance(fact.cover, PartRef) else now.wide
            )
            same.append(fact.fold)
    elif fact.fold in now.folds:
        old = now.folds[fact.fold]
        worded = replace(old.fact, text=fact.text, tokens=fact.tokens, details=DetailsKept())
        now.folds[fact.fold] = replace(old, fact=worded)


def _toggle(now: Moment, fact: Unfolded | Refolded) -> None:
    name = fact.fold
    if isinstance(fact, Unfolded) and name in now.in_force:
        now.in_force.remove(name)
        now.bars.add(now.folds[name].cover)
    elif isinstance(fact, Refolded) and _may_return(now, name):
        now.in_force.add(name)
        now.bars.discard(now.folds[name].cover)


def _may_return(now: Moment, name: str) -> bool:
    return name in now.folds and name not in now.in_force and nests(now, now.folds[name].cover)


def _folds(now: Moment, n: int, fact: Folded) -> bool:
    """Does the fold have an effect?"""
    if fact.fold in now.folds or not _covers(now, n, fact.cover) or not nests(now, fact.cover):
        return False
    kept = behind(now, fact.cover, _left(now, fact))
    return 0 < fact.tokens + sum(each.tokens for each in kept) <= shown_for(now, fact.cover)


def _covers(now: Moment, n: int, cover: Cover) -> bool:
    if isinstance(cover, PartRef):
        return cover.seq in now.messages and cover in parts(now, cover.seq)
    return 0 < cover.first <= cover.last < n and bool(held(now, cover))


def _left(now: Moment, fact: Folded) -> frozenset[PartRef]:
    """What the fold leaves word for word, besides the pinned parts."""
    if isinstance(fact.cover, PartRef):
        return frozenset()
    inside = [ref for seq in held(now, fact.cover) for ref in parts(now, seq)]
    words = now.words if now.running else []
    return frozenset(
        ref for ref in inside if ref.seq in words or (ref in now.bars and not fact.panic)
    )


def spans(now: Moment) -> list[tuple[Span, Fold]]:
    """The spans in force, the oldest first."""
    folds = [now.folds[name] for name in now.wide if name in now.in_force]
    return [(fold.cover, fold) for fold in folds if isinstance(fold.cover, Span)]


def nests(now: Moment, cover: Cover) -> bool:
    if isinstance(cover, PartRef):
        return True
    return all(_fit(cover, other) for other, _ in spans(now))


def _fit(a: Span, b: Span) -> bool:
    apart = a.last < b.first or b.last < a.first
    inside = b.first <= a.first and a.last <= b.last
    around = a.first <= b.first and b.last <= a.last
    return apart or inside or around


def shown_for(now: Moment, cover: Cover) -> int:
    """What the view counts for the part now, or for all items that overlap the span."""
    if isinstance(cover, PartRef):
        return sum(each.tokens for each in _item(now, cover.seq).shown if each.ref == cover)
    mine = set(held(now, cover))
    return sum(each.tokens for item in view(now) if mine & set(item.seqs) for each in item.shown)


# --- the view


@dataclass(frozen=True)
class Shown:
    """A part, or the text of a document (`ref` None). `how`: whole, note, document, or
    the kind of the fold over the part.
    """

    ref: PartRef | None
    sort: str
    how: str
    tokens: int
    fold: Fold | None = None


@dataclass(frozen=True)
class Item:
    """A message, or a document with what stands behind it. `seqs`: the messages it stands for."""

    seqs: tuple[int, ...]
    shown: tuple[Shown, ...]
    fold: Fold | None = None


def view(now: Moment) -> list[Item]:
    items: list[Item] = []
    behind_span = 0
    for seq in now.messages:
        if seq <= behind_span:
            continue
        item = _item(now, seq)
        items.append(item)
        if item.fold and isinstance(item.fold.cover, Span):
            behind_span = item.fold.cover.last
    return items


def _item(now: Moment, seq: int) -> Item:
    """The item that a message is in."""
    found = _outermost(now, seq)
    return _document(now, *found) if found else Item((seq,), _shown(now, parts(now, seq)))


def _outermost(now: Moment, seq: int) -> tuple[Span, Fold] | None:
    """Of the spans in force around this message the widest; of the same span the younger fold."""
    around = [(span, fold) for span, fold in spans(now) if span.first <= seq <= span.last]
    return max(around, default=None, key=lambda each: (each[0].last - each[0].first, each[1].seq))


def _document(now: Moment, span: Span, fold: Fold) -> Item:
    out = any(
        isinstance(e, Span) and e.first <= span.first and span.last <= e.last for e in now.excluded
    )
    text = () if out else (Shown(None, "document", "document", fold.fact.tokens, fold),)
    return Item(tuple(held(now, span)), text + behind(now, span, fold.left), fold)


def behind(now: Moment, cover: Cover, left: frozenset[PartRef]) -> tuple[Shown, ...]:
    """What stands behind a document: what the fold left word for word and the pinned
    parts. Nothing for a part.
    """
    if isinstance(cover, PartRef):
        return ()
    inside = [ref for seq in held(now, cover) for ref in parts(now, seq)]
    return _shown(now, [ref for ref in inside if ref in left or is_pinned(now, ref)])


def _shown(now: Moment, refs: list[PartRef]) -> tuple[Shown, ...]:
    found = [part_shown(now, ref) for ref in refs]
    return tuple(each for each in found if each is not None)


def part_shown(now: Moment, ref: PartRef) -> Shown | None:
    """A part as it is shown without spans; None: it is not."""
    message = now.messages[ref.seq]
    sort = sort_of(message, ref.part)
    if is_excluded(now, ref):
        return Shown(ref, sort, "note", NOTE_TOKENS) if sort in ("call", "output") else None
    if is_blank(message, ref.part):
        return None
    folds = [now.folds[name] for name in now.over.get(ref, []) if name in now.in_force]
    if folds and not is_pinned(now, ref):
        return Shown(ref, sort, str(folds[-1].fact.kind), folds[-1].fact.tokens, folds[-1])
    return Shown(ref, sort, "whole", tokens_of(message, ref.part))
