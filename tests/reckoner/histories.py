"""Histories made by chance, from a seed: most facts make sense, some do not, and each
is read from its stored form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from helix_desktop.engine.fact_encoding import decode_fact, encode_fact
from helix_desktop.engine.facts import (
    Attachment,
    BroughtIn,
    ConversationChanged,
    ConversationStarted,
    Cover,
    DocumentEdited,
    Excluded,
    Fact,
    FilesChanged,
    Folded,
    FoldFailed,
    FoldKind,
    Included,
    ModelReplied,
    ModelRole,
    ModelSet,
    Origin,
    PartRef,
    Pinned,
    PolicySet,
    Purpose,
    Reasoning,
    Recorded,
    Refolded,
    ReplyPart,
    Rewound,
    RulesSet,
    Span,
    Spent,
    Stop,
    Stored,
    SystemSet,
    Text,
    TodoSet,
    ToolCall,
    ToolReturned,
    ToolsOffered,
    ToolSpec,
    TurnEnd,
    TurnEnded,
    Unfolded,
    Unpinned,
    Usage,
    UserPart,
    UserSaid,
)
from helix_desktop.engine.sha256_digest import Digest

MODELS = ("m", "m", "claude-x", "other")
LONG = "long value " * 40
ARGUMENTS = (
    '{"path": "a.py"}',
    f'{{"path": "b.py", "text": "{LONG}", "more": "{LONG}"}}',
    "{broken",
    '["list"]',
    "",
)
ODD_ARGUMENTS = (
    ' {"path":"ä.py"}\n', '{"a": NaN}', '{"a": [-Infinity]}', '{"text": "two\nlines"}', '"{\\"path\\": \\"ä.py\\"}"',
    '"{\\"a\\": NaN}"', '"two\nlines"', '"[]"', "null", "7", " \n", '{"a": 1, "a": 2}', '{"a": 1e400}', "{} {}",
    '{"half": "\\ud83d"}', '"{\\"a\\": 1e400}"',
    f'{{"n": {list(range(200))}, "cached": "x"}}', f'{{"text": "{"ä" * 399}", "list": ["{"ä" * 70}"]}}',
    f'{{"text": "{"x" * 400}", "short": "{"x" * 401}", "o": {{"k": "{LONG}"}}}}', f'"{LONG}"', f"{{{LONG}",
)  # fmt: skip
NAMES = ("read", "read", "run", "tool name", "")
ODD_NAMES = ("naïve/tool", "x" * 63 + "é" + "y", "é", " ", "a-b_C9")
PICTURE = "image/png"
TYPES = (
    PICTURE, "image/jpeg", "image/gif", "image/webp", "image/svg+xml", "image/bmp", "application/octet-stream", "text/html", "",
)  # fmt: skip
CONTENTS = (
    b"words", b"", b" \n", b"\x00binary", b"x" * 4_095 + b"\0", b"x" * 4_096 + b"\0", b"caf\xe9 \xf0\x9f", "ä\r\n".encode(),
    b"\xef\xbb\xbfmark", b"\xed\xa0\x80",
)  # fmt: skip


@dataclass
class History:
    """Facts as they come. `open`: ids of calls that wait; `said`, `replies`, `folds`,
    `marks`: what later facts are about.
    """

    chance: Random
    facts: list[Fact] = field(default_factory=list)
    contents: dict[Digest, bytes] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    said: list[int] = field(default_factory=list)
    replies: list[int] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    folds: list[str] = field(default_factory=list)
    marks: list[Cover] = field(default_factory=list)
    calls: int = 0

    def add(self, fact: Fact) -> int:
        self.facts.append(decode_fact(encode_fact(fact)))
        seq = len(self.facts)
        if isinstance(fact, UserSaid | ModelReplied | ToolReturned):
            self.messages.append(seq)
        if isinstance(fact, UserSaid):
            self.said.append(seq)
        if isinstance(fact, ModelReplied):
            self.replies.append(seq)
            self.open = [part.id for part in fact.parts if isinstance(part, ToolCall)]
        return seq

    def often(self, share: float) -> bool:
        return self.chance.random() < share

    def stored(self, text: str, media_type: str = "text/plain") -> Stored:
        content = text.encode()
        self.contents[Digest.of_content(content)] = content
        return Stored(Digest.of_content(content), len(content), text.count("\n") + 1, media_type)

    def odd(self) -> Stored:
        """Content of any type."""
        content = self.chance.choice(CONTENTS)
        stored = Stored(Digest.of_content(content), len(content), 1, self.chance.choice(TYPES))
        self.contents[stored.digest] = content
        return stored

    def recorded(self) -> list[Recorded]:
        return [Recorded("c", seq, 1_000.0 + seq, fact) for seq, fact in enumerate(self.facts, 1)]


def history(seed: int, most: int = 60) -> History:
    """The same for the same seed."""
    made = History(Random(seed))
    wanted = made.chance.randint(4, most)
    for start in (_begin, _set_up):
        start(made)
    while len(made.facts) < wanted:
        made.chance.choices(MAKERS, WEIGHTS)[0](made)
    return made


# --- what is said and done


def _begin(h: History) -> None:
    h.add(
        ConversationStarted(
            "title" if h.often(0.5) else "", agent=h.chance.choice(("", "", "Codex", "pi"))
        )
    )


def _set_up(h: History) -> None:
    if h.often(0.8):
        h.add(SystemSet("You are tested.", 7))
        h.add(_model(h))


def _model(h: History, effort: str = "") -> ModelSet:
    prices = h.chance.choice([(0, 0, 0, 0), (3, 15, 0.3, 3.75), (2, 0, 0, 0), (0, 4, 1, 0)])
    lasts = h.chance.choice([0, 300])
    return ModelSet(
        ModelRole.MAIN,
        h.chance.choice(MODELS),
        9_000,
        100,
        *prices,
        effort=effort,
        cache_seconds=lasts,
    )


def _user(h: History) -> None:
    parts: list[UserPart] = [Text("please do it", h.chance.randint(1, 40))]
    if h.often(0.15):
        parts.append(Text("  \n", 2))
    if h.often(0.2):
        parts.append(
            Attachment("a.txt", h.stored(f"file {h.chance.random()}"), h.chance.randint(0, 300))
        )
    if h.often(0.1):
        parts.append(Attachment("a.png", h.stored("picture", PICTURE), h.chance.choice([0, 70])))
    if h.often(0.1):
        parts.append(Attachment("b.bin", h.odd(), h.chance.choice([0, 70])))
    by = h.chance.choice(["plan", "rules:a"]) if h.often(0.08) else ""
    h.add(UserSaid(tuple(parts if h.often(0.95) else parts[1:]), steering=h.often(0.25), by=by))


def _step(h: History) -> None:
    """A request, what was changed while it was prepared, the reply, and most of its results."""
    view = len(h.facts)
    while h.often(0.15):
        h.chance.choice([_pin, _exclude, _set, _fold, _undo])(h)
    saw = view if len(h.facts) > view or h.often(0.3) else 0
    if h.often(0.03):
        saw = h.chance.randint(0, len(h.facts) + 5)
    _reply(h, saw)
    while h.open and h.often(0.85):
        _result(h)


def _reply(h: History, saw: int) -> None:
    parts: list[ReplyPart] = []
    if h.often(0.3):
        parts.append(Reasoning("hm", h.chance.randint(1, 50), "signed", "p"))
    if h.often(0.6):
        parts.append(Text(h.chance.choice(["I say", "I say", " "]), h.chance.randint(1, 60)))
    if h.often(0.1):
        parts.append(Reasoning("more", 5, "", "p"))
    parts += [_call(h) for _ in range(h.chance.choice([0, 1, 1, 2, 3]))]
    stop = Stop.CALLS if h.calls else Stop.END
    if h.often(0.15):
        stop = h.chance.choice([Stop.CUT, Stop.STOPPED, Stop.LENGTH, Stop.FILTERED])
    seconds = h.chance.choice([0.0, 2.5])
    h.add(
        ModelReplied(tuple(parts), h.chance.choice(MODELS), stop, _usage(h), saw, seconds=seconds)
    )
    if stop is Stop.CUT and h.often(0.6):
        h.add(Excluded(Span(len(h.facts), len(h.facts))))


def _call(h: History) -> ToolCall:
    h.calls += 1
    name = f"c{h.calls}" if h.often(0.9) else h.chance.choice(["c1", "c2", ""])
    via = "call_tool" if h.often(0.1) else ""
    tool = h.chance.choice(NAMES if h.often(0.9) else ODD_NAMES)
    arguments = h.chance.choice(ARGUMENTS if h.often(0.7) else ODD_ARGUMENTS)
    return ToolCall(name, tool, arguments, h.chance.randint(1, 250), via=via)


def _usage(h: History) -> Usage:
    if h.often(0.3):
        return Usage()
    sent = h.chance.choice([h.chance.randint(1, 3_000), h.chance.randint(1, 60)])
    return Usage(sent, sent // 2, 0, h.chance.choice([0, 30]), 0, h.chance.choice([0.0, 0.25]))


def _result(h: History) -> None:
    known = (
        h.open.pop(h.chance.randrange(len(h.open)))
        if h.open and h.often(0.93)
        else f"c{h.chance.randint(0, 9)}"
    )
    text = f"output {h.chance.random()}" if h.often(0.95) else ""
    output = h.stored(text) if h.often(0.9) else h.odd()
    images = (
        (h.stored("picture", PICTURE),)
        if h.often(0.08)
        else (h.odd(), h.odd())
        if h.often(0.05)
        else ()
    )
    stopped = h.often(0.05)
    ok = not stopped and h.often(0.9)
    head = text if h.often(0.5) else ""
    h.add(
        ToolReturned(
            known,
            output,
            h.chance.randint(0, 900),
            ok,
            head=head,
            images=images,
            stopped=stopped,
            seconds=1.0,
        )
    )


def _end(h: History) -> None:
    h.add(
        TurnEnded(
            h.chance.choice([TurnEnd.DONE, TurnEnd.DONE, TurnEnd.STOPPED, TurnEnd.FAILED]), "why"
        )
    )


def _other(h: History) -> None:
    files = FilesChanged(
        h.stored("difference"), Digest.of_content(b"1"), Digest.of_content(b"2"), 1, names=("a.py",)
    )
    choices: list[Fact] = [
        TodoSet((("do", "open"),) if h.often(0.7) else ()),
        Spent(h.chance.choice(list(Purpose)), "m", _usage(h)),
        FoldFailed(FoldKind.HANDOVER, "it failed"),
        BroughtIn(Origin("codex", "s"), "run", _seq(h), undone=h.often(0.1)),
        files,
    ]
    h.add(h.chance.choice(choices))


# --- settings


def _set(h: History) -> None:
    choices: list[Fact] = [
        SystemSet(h.chance.choice(["", "system", "other"]), h.chance.randint(0, 30)),
        RulesSet(
            h.chance.choice("ab"), h.chance.choice(["", "tabs", "spaces"]), h.chance.randint(1, 9)
        ),
        ToolsOffered(
            (ToolSpec("read", "reads", "{}"),) * h.chance.randint(0, 2), h.chance.randint(0, 90)
        ),
        _model(h, h.chance.choice(["", "high"])),
        ModelSet(ModelRole.FAST, "fast", 9_000),
        PolicySet("layered"),
        ConversationChanged(title=h.chance.choice([None, "", "new"])),
    ]
    h.add(h.chance.choice(choices))


# --- folds, pins, exclusions, rewinds


def _seq(h: History) -> int:
    """Of a message, mostly of one of the last."""
    if not h.messages or h.often(0.04):
        return h.chance.randint(-1, len(h.facts) + 2)
    return h.chance.choice(h.messages[-8:] if h.often(0.7) else h.messages)


def _part(h: History) -> PartRef:
    seq = max(0, _seq(h))
    fact = h.facts[seq - 1] if 0 < seq <= len(h.facts) else None
    parts = 1 if isinstance(fact, ToolReturned) else len(getattr(fact, "parts", ()))
    return PartRef(
        seq, h.chance.randrange(parts) if parts and h.often(0.95) else h.chance.randint(0, 2)
    )


def _span(h: History) -> Span:
    first, last = sorted((_seq(h), _seq(h)))
    return Span(first, last) if h.often(0.98) else Span(last, first)


def _cover(h: History) -> Cover:
    return _part(h) if h.often(0.5) else _span(h)


def _fold(h: History) -> None:
    """One fold, or a batch of folds over parts."""
    if h.often(0.2):
        kind = h.chance.choice([FoldKind.MARKER, FoldKind.EXCERPT])
        batch = f"batch-{len(h.facts) if h.often(0.9) else 1}"
        for _ in range(h.chance.randint(2, 4)):
            _folded(h, kind, _part(h), batch)
    elif h.often(0.4):
        _folded(h, h.chance.choice([FoldKind.MARKER, FoldKind.EXCERPT]), _part(h))
    else:
        _folded(h, h.chance.choice(list(FoldKind)[2:]), _span(h) if h.often(0.95) else _part(h))


def _folded(h: History, kind: FoldKind, cover: Cover, batch: str = "") -> None:
    name = f"{kind.value}-{len(h.facts) + 1}"
    tokens = h.chance.randint(1, 60) if h.often(0.85) else h.chance.choice([0, 150, 500])
    before = h.chance.randint(0, 900)
    panic = h.often(0.15)
    h.add(Folded(name, kind, cover, f"short {name}", tokens, before, batch, panic=panic))
    h.folds += [name] * (
        1 if tokens > 60 or isinstance(cover, PartRef) else 4
    )  # what is likely to have an effect


def _fold_name(h: History) -> str:
    return h.chance.choice(h.folds[-9:]) if h.folds and h.often(0.97) else "none-0"


def _undo(h: History) -> None:
    """Mostly with a redo behind it, soon or later."""
    name = _fold_name(h)
    h.add(Unfolded(name))
    while h.often(0.5):
        h.chance.choice([_fold, _step, _pin])(h)
    if h.often(0.5):
        h.add(Refolded(name))


def _redo(h: History) -> None:
    h.add(Refolded(_fold_name(h)))


def _edit(h: History) -> None:
    text, tokens = h.chance.choice([("worded anew", 6), ("", 0), ("much longer", 700)])
    h.add(DocumentEdited(_fold_name(h), text, tokens))


def _pin(h: History) -> None:
    _mark(h, Pinned, Unpinned)


def _exclude(h: History) -> None:
    _mark(h, Excluded, Included)


def _mark(h: History, on: Callable[[Cover], Fact], off: Callable[[Cover], Fact]) -> None:
    if h.marks and h.often(0.4):
        h.add(off(h.chance.choice(h.marks)))
    else:
        cover = _cover(h)
        h.marks.append(cover)
        h.add(on(cover))


def _rewind(h: History) -> None:
    if h.said and h.often(0.3):
        h.add(Rewound(h.chance.choice(h.said), again=True))
    else:
        back = h.chance.randint(0, min(len(h.facts), 12 if h.often(0.8) else 99))
        to = len(h.facts) - back if h.often(0.95) else h.chance.choice([-3, len(h.facts) + 9])
        h.add(Rewound(to, again=h.often(0.05)))
    back_to = getattr(h.facts[-1], "to", 0)
    if h.often(0.8):
        h.messages = [seq for seq in h.messages if seq <= back_to]
    h.open = []


def _fork(h: History) -> None:
    """Go on as a fork of what there is, or of its beginning."""
    at = h.chance.randint(max(1, len(h.facts) // 2), len(h.facts))
    del h.facts[at:]
    for numbers in (h.said, h.replies, h.messages):
        numbers[:] = [seq for seq in numbers if seq <= at]
    h.open = []
    h.add(ConversationStarted(forked_from="parent", forked_at=at))


MAKERS: list[Callable[[History], None]] = [
    _user, _step, _result, _end, _other, _set, _fold, _undo, _redo, _edit, _pin, _exclude, _rewind, _fork,
]  # fmt: skip
WEIGHTS = [8, 18, 3, 12, 3, 5, 20, 9, 5, 4, 6, 6, 4, 1]
