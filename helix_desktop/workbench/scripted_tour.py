"""The tour without a window: a real session of the built-in scripted model on a small folder, and a report of it.

Every figure of the report is computed from the journal and the cache after the session, so it adds up with them.
"""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import (
    Folded,
    FoldKind,
    ModelReplied,
    Recorded,
    Spent,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Unfolded,
    UserSaid,
)
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import Event, FactAppended, QuestionAsked
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.workbench.open_workbench import Workbench

MODEL = "demo/demo"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TourReport:
    """`sent` and `without` in tokens; `folds` by kind; `recalled` names the entries that came back, whole and equal."""

    conversation: str
    turns: int
    steps: int
    calls: dict[str, int]
    sent: int
    without: int
    saved: float
    folds: dict[str, int]
    folded_tokens: int
    shown_tokens: int
    details: dict[str, int]
    recalls: int
    recalled: tuple[str, ...]
    entries: int
    bytes: int
    undo_identical: bool
    facts: int


class ClockWithoutPauses:
    """The real clock without the demonstration's pauses for human readers."""

    def current_time(self) -> float:
        return time.time()

    async def sleep_seconds(self, seconds: float) -> None:
        await asyncio.sleep(0)


def create_tour_folder(folder: Path) -> None:
    """A small project: some code, a table, a long log. The same on every machine."""
    numbers = random.Random(1953)  # noqa: S311 - a sample, not a secret
    (folder / "src").mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(
        "# Base pairs\n\nCounts base pairs in sequences. The table of samples is in samples.csv.\n", encoding="utf-8"
    )
    functions = [f"def count_{name}(sequence):\n    return sequence.count({name!r})\n" for name in "ACGT"]
    (folder / "src" / "pairs.py").write_text("\n\n".join(functions), encoding="utf-8")
    rows = ["sample,length,content"] + [f"s{i},{numbers.randint(200, 900)},{numbers.random():.3f}" for i in range(400)]
    (folder / "samples.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    lines = [f"{i:05d} read {numbers.randint(1, 99999):05d} quality {numbers.randint(10, 40)}" for i in range(2_500)]
    lines[1_777] = "01777 ERROR adapter not trimmed in s177"
    (folder / "run.log").write_text("\n".join(lines) + "\n", encoding="utf-8")


async def run_tour_session(bench: Workbench, say: Say) -> TourReport:
    """The session: a tour of the tools, more large outputs, a handover, a recall behind it, an undo and a redo. What is allowed
    for it, and that its questions are answered, ends with it.
    """
    mode = bench.permission_mode
    await bench.choose_model_for_role(MODEL)
    await bench.choose_permission_mode("allow all")
    session = await bench.start_conversation("Tour")
    leave = session.subscribe_to_events(lambda event: _answer_tour_event(session, event, say))
    try:
        return await _build_tour_report(bench, session, identical=await _undo_and_redo(session))
    finally:
        leave()
        await bench.choose_permission_mode(mode)


async def _undo_and_redo(session: Session) -> bool:
    """Whether the view was, after an undo, what it had been before."""
    for words in (
        "Never change a file outside of src/. Show me what you can do in this folder.",
        "Read run.log",
        "Large output",
        "Read samples.csv",
        "Search ERROR",
    ):
        await _run_tour_turn(session, words)
    before = session.conversation.current_view()
    await session.start_fold(FoldKind.HANDOVER, wish="keep the error in run.log")
    handover = next((fold for fold in _folds_of_tour(session) if fold.kind is FoldKind.HANDOVER), None)
    if handover is None:
        raise HelixError("The tour's handover didn't complete.", remedy="Run helix-desktop doctor to find out why.")
    await session.undo_fold(handover.fold)
    identical = session.conversation.current_view().blocks == before.blocks
    await session.redo_fold(handover.fold)
    behind = next(fold for fold in _folds_of_tour(session) if fold.kind is FoldKind.EXCERPT)
    await _run_tour_turn(session, f"Recall {behind.entries[0].hex}")
    await _run_tour_turn(session, "Find adapter not trimmed")
    return identical


async def _run_tour_turn(session: Session, words: str) -> None:
    session.send_message((Text(words),))
    await session.wait_until_idle()
    end = session.all_facts[-1].fact
    if isinstance(end, TurnEnded) and end.reason is not TurnEnd.DONE:
        raise HelixError(f"The tour stopped at “{words[:40]}”: {end.why or end.reason.value}")


def _answer_tour_event(session: Session, event: Event, say: Say) -> None:
    """Questions are answered yes: the folder is the tour's own."""
    if isinstance(event, QuestionAsked):
        session.answer_question(event.number, PermissionAnswer(allowed=True))
    elif isinstance(event, FactAppended):
        match event.recorded.fact:
            case UserSaid(parts=(Text(text), *_)):
                say(f"you: {text[:80]}")
            case ModelReplied(parts=parts):
                for call in (part for part in parts if isinstance(part, ToolCall)):
                    say(f"  {call.name} {call.arguments[:90]}")
            case Folded(kind=kind, tokens_before=before, tokens=after):
                say(f"  {kind.value}: {before:,} → {after:,} tokens")
            case Unfolded():
                say("  undone, and done again")
            case _:
                pass


def _folds_of_tour(session: Session) -> Sequence[Folded]:
    return [recorded.fact for recorded in session.all_facts if isinstance(recorded.fact, Folded)]


async def _build_tour_report(bench: Workbench, session: Session, *, identical: bool) -> TourReport:
    facts = await bench.read_conversation_facts(session.id)
    folds = [recorded.fact for recorded in facts if isinstance(recorded.fact, Folded)]
    saved, counted = session.total_savings(), Counter(fold.kind.value for fold in folds)
    calls = Counter(
        part.name
        for r in facts
        if isinstance(r.fact, ModelReplied)
        for part in r.fact.parts
        if isinstance(part, ToolCall)
    )
    handovers = [fold.details for fold in folds if fold.kind is FoldKind.HANDOVER]
    digests = {
        recorded.fact.output.digest: recorded.fact.output.size
        for recorded in facts
        if isinstance(recorded.fact, ToolReturned)
    }
    return TourReport(
        conversation=session.id,
        turns=sum(isinstance(recorded.fact, TurnEnded) for recorded in facts),
        steps=saved.steps,
        calls=dict(calls),
        sent=_count_sent_tokens(facts),
        without=saved.without,
        saved=round(saved.saved_share, 4),
        folds=dict(counted),
        folded_tokens=sum(fold.tokens_before for fold in folds),
        shown_tokens=sum(fold.tokens for fold in folds),
        details={name: sum(getattr(one, name) for one in handovers) for name in ("found", "kept", "added", "entry")},
        recalls=calls[ToolName.RECALL],
        recalled=tuple(
            [digest.hex for fold in folds for digest in fold.entries if await _is_recalled_whole(bench, digest)]
        ),
        entries=len(digests),
        bytes=sum(digests.values()),
        undo_identical=identical,
        facts=len(facts),
    )


def _count_sent_tokens(facts: Sequence[Recorded]) -> int:
    """Tokens of all requests: the steps' own and those of summaries and compactions."""
    return sum(r.fact.usage.input for r in facts if isinstance(r.fact, ModelReplied | Spent))


async def _is_recalled_whole(bench: Workbench, digest: Digest) -> bool:
    """Whether what a fold names comes back with the bytes of its hash."""
    entry = await bench.workspace.cache.describe_entry(digest)
    content = await bench.workspace.cache.read_range(digest, 0, entry.stored.size)
    return await asyncio.to_thread(Digest.of_content, content) == digest


def tour_report_as_markdown(report: TourReport) -> str:
    rows = [
        ("turns / steps", f"{report.turns} / {report.steps}"),
        ("tool calls", ", ".join(f"{name} {count}" for name, count in sorted(report.calls.items()))),
        ("tokens sent", f"{report.sent:,}"),
        ("tokens with a summary instead", f"{report.without:,}"),
        ("saved", f"{report.saved:.0%}"),
        ("folds", ", ".join(f"{kind} {count}" for kind, count in sorted(report.folds.items()))),
        ("folded", f"{report.folded_tokens:,} → {report.shown_tokens:,} tokens"),
        ("details in the handover", ", ".join(f"{name} {count}" for name, count in report.details.items())),
        ("recalled originals that match their hash", str(len(report.recalled))),
        ("outputs in the cache", f"{report.entries} entries, {report.bytes:,} bytes"),
        ("undoing the handover gave the same view", "yes" if report.undo_identical else "no"),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return (
        "# The tour of Helix Desktop\n\nThis session used the built-in model `demo`, which is a script and not a language model. "
        f"The tools, the cache, the journal and the folds are real.\n\n| | |\n|---|---|\n{table}\n"
    )


def tour_report_as_json(report: TourReport) -> str:
    return json.dumps(asdict(report), indent=1) + "\n"
