"""One number for one thing: every figure the window shows of a conversation is read at
each moment of a story, and compared.

Moments come while a reply streams, while pages read the conversation again and after a
fork, which is followed from then on. The facts go into a real journal, which makes the
forks, adds up the list's cost and is read by the command line at the end of a story.
The conversation of which there is a fork is often shown beside it, goes on there, and
is read there as well. The row of the Fleet window is read as if the conversation ran.
HELIX_STORIES=20 tells 20 stories of 25 moments, HELIX_FIRST_SEED=500 others than usual.

A reader of each place says what it shows as a table from the name of a thing to its
figure. Two places that name one thing must give it one figure.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication, QLabel

from helix_desktop import cli, program_folders
from helix_desktop.desktop import replay_process
from helix_desktop.engine import request_costs
from helix_desktop.engine.context_policy import preset_policy
from helix_desktop.engine.facts import (
    BroughtIn,
    ConversationStarted,
    DetailsKept,
    Fact,
    Folded,
    FoldFailed,
    FoldKind,
    ModelReplied,
    ModelRole,
    ModelSet,
    Origin,
    PartRef,
    Purpose,
    Recorded,
    Refolded,
    Span,
    Spent,
    Stop,
    Text,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Unfolded,
    Usage,
    UserSaid,
)
from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.engine.messages import ContextKind, TextDelta
from helix_desktop.engine.session_events import ConversationActivity, ReplyStreamed
from helix_desktop.engine.state.token_ledger import LEAST_DOLLARS, Savings
from helix_desktop.engine.view import ConversationState, build_state
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.common.fold_descriptions import fold_title
from helix_desktop.gui.common.policy_names import list_policy_choices
from helix_desktop.gui.common.savings_sentences import (
    describe_both_sums,
    describe_savings_of,
    share_of_line,
)
from helix_desktop.gui.context_meter import (
    context_kind_name,
    describe_meter,
    format_token_count,
    has_unknown_window,
)
from helix_desktop.gui.dialogs_and_notifications import (
    DescribedHistories,
    DialogsAndNotifications,
)
from helix_desktop.gui.fleet.fleet_rows import list_conversation_cells
from helix_desktop.gui.importing.import_dialog import ImportConversationsDialog
from helix_desktop.gui.inspector.inspector_figures import list_view_blocks
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.markdown_and_json_export import export_conversation_markdown
from helix_desktop.gui.replay_lab.preset_costs import describe_preset_cost
from helix_desktop.gui.replay_lab.replay_lab_dialog import ReplayLabDialog
from helix_desktop.gui.replay_lab.replay_lab_port import PolicyOutcome
from helix_desktop.gui.timeline import fold_sentences
from helix_desktop.gui.timeline.conversation_timeline import ConversationTimeline
from helix_desktop.gui.transcript.transcript_item import TranscriptItemKind
from helix_desktop.gui.views.boxes_view import BoxesView
from helix_desktop.gui.workbench_types import Workbench
from helix_desktop.histories.history_finding import FoundHistories
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.journal_file import JournalFile
from helix_desktop.workbench.conversation_list_rows import (
    ConversationListRows,
    _decode_meter,
    encode_meter,
)
from tests.gui import story
from tests.gui.fake_desk import FakeSession, FakeWorkbench, now
from tests.gui.fake_setup import FakeInstallation, FakeSetup

Seen = Iterator[tuple[str, str]]
COMPARED = ("Saved about ", "Shortening has ")
SAVINGS = (*COMPARED, "So far, shortening", "Without shortening, this conversation")
COUNTED_DIFFERENTLY = "These sizes are estimates; "
PAID_BEFORE = " before import or fork"
STORIES = int(os.environ.get("HELIX_STORIES", "4"))
FIRST_SEED = int(os.environ.get("HELIX_FIRST_SEED", "0"))
SEEDS = range(FIRST_SEED, FIRST_SEED + STORIES)
MOMENTS = 25
OWN_SUMMARIES = 3  # The number of the story's own one, which no other has.
NAMED_ROWS = {
    *(context_kind_name(kind) for kind in ContextKind), "Originals of shortened outputs", "Cost so far", "Sent",
    "Resent at a reduced price",
}  # fmt: skip


def shown_by_meter(chat: ChatPage) -> Seen:
    """The line below the meter, and its tooltip."""
    head, *kinds = chat.composer.context_button.accessibleDescription().splitlines()
    if not head.startswith("0 of 0 "):  # Nothing is shown where the window is unknown.
        yield "used of window", head.partition(" tokens")[0]
        yield "how full", head.partition(", ")[2]
    yield from counted_by_model(kinds)
    figures_of_kinds = [line for line in kinds if ": " in line]
    yield from (tuple(line.rsplit(": ", 1)) for line in figures_of_kinds)  # type: ignore[misc]  # a pair
    fill, _, cost = chat.composer._figures.text().partition(" · ")
    yield "how full", fill.removeprefix("≈ ")
    yield from in_cents(cost.removesuffix(" +"))


def in_cents(cost: str) -> Seen:
    if cost and not cost.endswith("5"):  # Half a cent may be rounded either way.
        yield "cost in cents", f"${float(cost.removeprefix('$')):.2f}"


def shown_by_boxes(text: str) -> Seen:
    """The panel of the meter, or the inspector: both say what is in the context in the
    same rows.
    """
    lines = text.splitlines()
    yield "used of window", lines[0].removeprefix("Context · ")
    for words, figure in (line.split("  ") for line in lines if line.count("  ") == 1):
        kind = "Summary" if words.startswith("Summary ") else words
        if words != kind:
            yield f"size of {words}", figure
        if (
            kind in NAMED_ROWS
        ):  # The largest blocks have names of their own: a call and its output share one.
            yield kind, figure
        if words == "Cost so far" and figure.startswith("$"):
            yield from in_cents(figure)
        if words == "Cost before import or duplication":
            yield "cost before", figure
    yield from counted_by_model(lines)
    said = [line for line in lines if line.startswith(SAVINGS)]
    yield from saved_as_said(said)


def counted_by_model(lines: Sequence[str]) -> Seen:
    """How far the model's own count is from the sizes of the parts."""
    for line in lines:
        if line.startswith(COUNTED_DIFFERENTLY):
            # The tooltip puts a colon where the boxes have a column of their own.
            yield "counted by the model", line.replace("  ", ": ")


def saved_as_said(sentences: Sequence[str]) -> Seen:
    """What a place says that shortening saved. Every place must say the same, or nothing."""
    yield "saved by shortening", "".join(sentences)


def shown_by_timeline(session: FakeSession) -> Seen:
    timeline = ConversationTimeline(build_state(session.state.facts))
    timeline.read_all_facts(session.state.facts)
    if timeline.seqs and timeline.seqs[-1] == session.state.seq:
        yield "tokens of the next request", f"{timeline.points[-1]:,}"
        yield from shown_by_newest_areas(timeline)
    for event in timeline.events:
        for fold in event.made_folds:
            yield f"fold {fold.fold}", f"{fold.tokens_before:,} → {fold.tokens:,}"
        if event.fold_kind is FoldKind.HANDOVER:
            title = fold_title(event.current_folds[0])
            yield f"size of {title}", format_token_count(event.tokens_after_folds)
    savings = describe_savings_of(timeline.history, session.context.cost_of_agents())
    yield from saved_as_said([savings] * bool(savings))
    if timeline.dollars and timeline.seqs[-1] == paid_last(session):
        heading = fold_sentences.describe_timeline(timeline, session.context.cost_of_agents())
        for part in heading.split(", "):
            if part.endswith(PAID_BEFORE):
                yield "cost before", part.removesuffix(PAID_BEFORE)
            elif part.startswith("$"):
                yield from in_cents(part)


def shown_by_newest_areas(timeline: ConversationTimeline) -> Seen:
    """How high each kind is drawn at the newest point, where the model counts no fewer than we do."""
    heights = [layer[-1] for layer in timeline.layers]
    counted = timeline.history.record.ledger.view_tokens_by_kind(timeline.history.seq)
    if sum(counted) > heights[-1]:
        return
    for kind, low, high in zip(ContextKind, [0, *heights], heights, strict=False):
        if high > low:
            yield context_kind_name(kind), format_token_count(high - low)


def paid_last(session: FakeSession) -> int:
    """The newest fact that was paid for."""
    return max(
        (each.seq for each in session.state.facts if isinstance(each.fact, ModelReplied | Spent)),
        default=0,
    )


class FileReading:
    """A journal's file as the list reads it, without its threads."""

    def __init__(self, file: JournalFile) -> None:
        self._file = file

    async def list_conversations(self) -> Any:
        return self._file.conversation_rows()

    async def numbers_of_last_facts_by_own_clock(self) -> Any:
        return self._file.numbers_of_last_facts_by_own_clock()

    async def read_facts(self, conversation: str, after: int = 0, limit: int = 0) -> Any:
        return self._file.read_recorded(conversation, after, limit)

    async def first_facts_without_meter(self) -> Any:
        return self._file.first_facts_without_meter()

    async def conversations_with_open_turn(self) -> Any:
        return self._file.conversations_maybe_in_turn()

    async def facts_about_cost(self, since: float) -> Any:
        return self._file.facts_about_cost(since)


class StoryJournal:
    """What is told, in the journal of a workspace."""

    def __init__(self) -> None:
        made = AllWorkspaces(
            program_folders.find_program_folders().workspaces_folder
        ).create_stored_workspace("story")
        self.workspace = made.id
        self._path = made.folder / "journal.sqlite3"
        self._file = JournalFile(self._path)

    def write_new_facts(self, session: FakeSession) -> None:
        known = self._row_of(session).last_seq if self._row_of(session) else 0
        self._file.append_all_or_nothing(
            session.id, [each.fact for each in session.state.facts[known:]]
        )

    def list_row(self, session: FakeSession) -> ConversationListRow:
        """As the list reads it."""
        self.write_new_facts(session)
        rows = ConversationListRows(FileReading(self._file))  # type: ignore[arg-type]  # it reads nothing else
        now(rows.read_all_rows(), name="rows")
        return next(row for row in rows if row.id == session.id)

    def _row_of(self, session: FakeSession) -> Any:
        return next((row for row in self._file.conversation_rows() if row.id == session.id), None)

    def fork(
        self, window: MainWindow, bench: FakeWorkbench, session: FakeSession, at: int, name: str
    ) -> FakeSession:
        """As a user forks: what was said until then is copied, and the fork is shown."""
        self.write_new_facts(session)
        bench.rows[name] = replace(bench.rows[session.id], id=name)
        bench.sessions[name] = FakeSession(
            name, self._file.copy_conversation(session.id, at, name), bench._heard
        )
        window.sides.show_session_or_new(bench.sessions[name])
        return bench.sessions[name]

    def printed_cost(self, session: FakeSession, capfd: pytest.CaptureFixture[str]) -> float:
        """`cost --json` of this conversation, as a script reads it."""
        self.write_new_facts(session)
        self._file.close()
        capfd.readouterr()
        assert (
            cli.main(
                ["cost", "--workspace", self.workspace, "--conversation", session.id, "--json"]
            )
            == 0
        )
        printed = json.loads(capfd.readouterr().out)
        self.printed_savings: dict[str, Any] = printed["savings"]
        imported = imported_seqs(session)
        cost: float = sum(
            request["cost"] for request in printed["requests"] if request["seq"] not in imported
        )
        return cost


def shown_by_list(session: FakeSession, journal: StoryJournal | None) -> Seen:
    """The row of the list, kept in the journal as text and read again, and what the
    journal adds up.
    """
    meter = session.context.next_request_meter()
    yield "tokens of the next request", f"{meter.used:,}"
    seq = session.state.seq
    stored = _decode_meter(encode_meter(meter, seq), seq)
    shown = describe_meter(list(stored.parts.items()), stored.window, is_estimate=meter.is_estimate)
    if not has_unknown_window(session.state):  # The list itself shows no meter.
        yield "used of window", shown.partition(" tokens")[0]
    if journal is not None and (row := journal.list_row(session)).cost:
        yield "cost in cents", f"${row.cost:.2f}"
        yield from shown_by_fleet(row)


def shown_by_fleet(row: ConversationListRow) -> Seen:
    """The row on the page of conversations in the Fleet window, while the conversation runs."""
    running = SimpleNamespace(running=ConversationActivity.THINKING)
    bench: Any = SimpleNamespace(
        id="w",
        name="Story",
        list_conversations=lambda: [row],
        sessions=SimpleNamespace(find_open_session=lambda _conversation: running),
        copies=SimpleNamespace(changed={}, overlaps={}),
    )
    ((*_, cost),) = list_conversation_cells([bench]).values()
    yield from in_cents(cost)


def shown_by_json(session: FakeSession) -> Seen:
    """`cost --json` and `conversation diff --json`, beside what the inspector counts."""
    requests = request_costs.explain_requests(session.state.facts, lambda _model: None)
    imported = imported_seqs(session)
    if paid := sum(request.cost for request in requests if request.seq not in imported):
        yield "cost in cents", f"${paid:.2f}"
    yield "tokens of the view", f"{session.state.past_moment(session.state.seq).counted_tokens:,}"
    yield "tokens of the view", f"{session.state.record.ledger.shown[-1]:,}"


def imported_seqs(session: FakeSession) -> set[int]:
    """The facts that another program recorded and paid for."""
    imported: set[int] = set()
    for recorded in session.state.facts:
        if isinstance(recorded.fact, BroughtIn):
            imported.update(range(recorded.fact.first, recorded.seq))
    return imported


def claims_without_a_basis(window: MainWindow, session: FakeSession) -> list[str]:
    """Sentences with a figure that nothing supports, in all words of the meter's panel, the
    inspector and the timeline's page.
    """
    places = {
        "panel": window.context_panel.figures.all_text(),
        "inspector": window.pages.inspector.view.all_text(),
        "timeline": words_of_timeline(session),
    }
    main = session.state.settings.model_for_role(ModelRole.MAIN)
    savings = session.state.savings_until_moment()
    found: list[str] = []
    for place, words in places.items():
        lines = words.splitlines()
        if any("100%" in line and "Shortening" in line for line in lines):
            found.append(f"{place}: all of it was saved")
        dollars_without_payment = [
            line for line in lines if line.startswith(COMPARED) and "$" in line
        ]
        if not savings.paid and dollars_without_payment:
            found.append(f"{place}: dollars, and nothing was paid")
        if main is not None and not main.window and "% full" in words:
            found.append(f"{place}: a share of a window that nobody knows")
        for line in lines:
            if line.startswith(COMPARED) and "as long as it fits" not in line:
                found.append(f"{place}: says not what it compares: {line}")
            sums = describe_both_sums(savings, session.context.cost_of_agents())
            if line.startswith(COMPARED) and not adds_up(line, sums):
                found.append(f"{place}: is not the difference of both sums: {line} {sums}")
    return found


UNITS = {"": Decimal(1), "K": Decimal(1_000), "M": Decimal(1_000_000)}
AMOUNT = r"(\d[\d.]*\d|\d)([KM]?)(?![\d%])"


def adds_up(sentence: str, sums: str) -> bool:
    """Whether what was saved, or cost more, is the difference of both sums of the tooltip, as
    exactly as it is shown.
    """
    number, unit = re.findall(AMOUNT, sentence)[0]
    changed = Decimal(number) * UNITS[unit]
    _requests, words_of_sums = sums.split(": ")
    amounts = re.findall(AMOUNT, words_of_sums)
    one_sum, other_sum = (Decimal(number) * UNITS[unit] for number, unit in amounts)
    last_place = UNITS[unit] / 10 ** len(number.partition(".")[2])
    difference = abs(one_sum - other_sum)
    return not difference or abs(changed - difference) <= last_place / 2


def sum_of_lines_fails(history: ConversationState) -> list[str]:
    """What a reader finds who adds up the lines of the timeline, and compares the sum with the head:
    the figures behind the words to the token, and their shares in the unit of the head.
    """
    timeline = ConversationTimeline(history)
    timeline.read_all_facts(history.facts)
    head = timeline.history.savings_until_moment()
    lines = sum(event.saved.tokens for event in timeline.folded_events)
    found: list[str] = []
    if lines != head.by_folds:
        found.append(f"the lines have {lines}, and their sum says {head.by_folds}")
    shares = 0.0
    for event in timeline.events:
        writing = fold_sentences._writing_paid_here(event)
        if event.made_folds:
            shares += share_of_line(head, event.saved.tokens, writing)
        elif head.is_saved_in_dollars:
            shares -= writing.cost
        else:
            shares -= writing.input
    whole = float(head.saved_tokens)
    if head.is_saved_in_dollars:
        whole = head.saved_dollars
    if are_lines_all_of_head(head) and abs(shares - whole) > 1e-6 * max(1.0, abs(whole)):
        found.append(f"the lines say {shares}, the head {whole}")
    return found


def are_lines_all_of_head(head: Savings) -> bool:
    """Where requests have saved nothing, no line says that it did."""
    saved_by_requests = float(head.saved_tokens + head.shortening)
    if head.is_saved_in_dollars:
        saved_by_requests = head.saved_dollars + head.paid_for_shortening
    return bool(head.by_folds) and saved_by_requests > 0


TAKEN = ("writing it took ", "the attempt took ")


def rows_as_read_fail(session: FakeSession) -> list[str]:
    """What a reader finds who adds up the figures of the rows as they stand there, and compares the
    sum with the amount of the head.
    """
    timeline = ConversationTimeline(build_state(session.state.facts))
    timeline.read_all_facts(session.state.facts)
    agents_cost = session.context.cost_of_agents()
    head = describe_savings_of(timeline.history, agents_cost)
    figures = timeline.history.savings_until_moment()
    if not head.startswith(COMPARED) or not are_lines_all_of_head(figures):
        return []
    fold_sentences.let_lines_add_up(timeline.events, agents_cost)
    lines = [fold_sentences.describe_event_briefly(event) for event in timeline.events]
    return rows_do_not_add_up(head, lines)


def rows_do_not_add_up(head: str, lines: Sequence[str]) -> list[str]:
    def read(words: str) -> tuple[Decimal, Decimal]:
        number, unit = re.findall(AMOUNT, words)[0]
        last_place = UNITS[unit] / 10 ** len(number.partition(".")[2])
        return Decimal(number) * UNITS[unit], last_place

    whole, coarsest = read(head)
    if head.startswith("Shortening has cost"):
        whole = -whole
    total = Decimal(0)
    counted: list[str] = []
    for line in lines:
        is_taken = line.startswith(TAKEN)
        if not (is_taken or line.startswith("saved ")):
            continue
        if ("$" in line) is not ("$" in head):
            return []  # What is next to nothing in dollars stands there in tokens.
        amount, last_place = read(line)
        total += -amount if is_taken else amount
        coarsest = max(coarsest, last_place)
        counted.append(line)
    # A row that is next to nothing has no figure.
    without_figure = len(lines) - len(counted)
    most = coarsest / 2
    if "$" in head:
        most += without_figure * Decimal(str(LEAST_DOLLARS))
    if abs(total - whole) <= most:
        return []
    return [f"the rows come to {total}, the head is {whole}: {head} {counted}"]


def words_of_timeline(session: FakeSession) -> str:
    """The heading and the rows, each on a line."""
    timeline = ConversationTimeline(build_state(session.state.facts))
    timeline.read_all_facts(session.state.facts)
    lines = [
        fold_sentences.describe_timeline(timeline, session.context.cost_of_agents()),
        describe_savings_of(timeline.history, session.context.cost_of_agents()),
    ]
    for event in timeline.events:
        lines.append(fold_sentences.describe_event_briefly(event))
    return "\n".join(lines)


def rows_that_took_something_back(
    before: dict[str, int], session: FakeSession
) -> tuple[dict[str, int], list[str]]:
    """In how many requests each row's text was shorter, and the rows that say fewer than before."""
    timeline = ConversationTimeline(build_state(session.state.facts))
    timeline.read_all_facts(session.state.facts)
    requests = {event.first_fold_id: event.saved.requests for event in timeline.folded_events}
    fewer = [fold for fold, count in requests.items() if count < before.get(fold, 0)]
    return requests, fewer


def shown_by_export(session: FakeSession) -> Seen:
    """The folds in the order of the facts, as Markdown and `--json` say them."""
    names = [each.fact.fold for each in session.state.facts if isinstance(each.fact, Folded)]
    text = export_conversation_markdown("", session.state.facts, lambda _digest: "")
    said = re.findall(r"^\*[a-z]+: ([\d,]+ → [\d,]+) tokens\*$", text, re.MULTILINE)
    yield from ((f"fold {name}", figures) for name, figures in zip(names, said, strict=True))


def shown_by_chips(chat: ChatPage, session: FakeSession) -> Seen:
    """The tokens on the line of each call, and of the same output in the inspector's list."""
    column = chat.transcript.view.column
    items = chat.transcript.view.items
    for index, item in enumerate(items.all):
        if item.kind is TranscriptItemKind.CALL and not items.is_item_hidden(index):
            words = " ".join(
                placed.chip.text
                for box in column.lay_out_fully(index).boxes
                for placed in getattr(box, "_chips", ())
            )
            for figure in re.findall(r"([\d.]+[KM]?) tokens", words):
                yield (
                    f"output of {index}, once" if "→" in words else f"output of item {index}",
                    figure,
                )
    by_seq = {
        block.block.source.seq: block
        for block in list_view_blocks(session.state)
        if isinstance(block.block.source, PartRef)
    }
    for recorded in session.state.facts:
        block = by_seq.get(recorded.seq)
        if isinstance(recorded.fact, ToolReturned) and block is not None and not block.block.fold:
            yield (
                f"output of item {items.item_of_fact(recorded.seq)}",
                format_token_count(block.tokens),
            )


def shown_by_fold_lines(chat: ChatPage) -> Seen:
    """The size of each summary, on its line across the chat."""
    column = chat.transcript.view.column
    items = chat.transcript.view.items
    for index, item in enumerate(items.all):
        fold = item.source_fact
        if isinstance(fold, Folded) and fold.kind is FoldKind.HANDOVER:
            words = " ".join(box.text for box in column.lay_out_fully(index).boxes)
            for figure in re.findall(r"→ ([\d.]+[KM]?) tokens", words):
                yield f"size of {fold_title(fold)}", figure


def lay_out_all_boxes(view: BoxesView) -> None:
    """What is laid out in slices, at once: on a busy machine one slice holds only the first box."""
    while view._slices.isActive():
        view._continue_box_layout()


class StoryReplays(FakeInstallation):
    """Replays of a story's conversation: what the simulation says is made up, and put on the scale
    of what the conversation really sent as for a real replay.
    """

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    async def replay_policies(
        self,
        bench: Workbench,
        conversations: Sequence[str],
        policies: Sequence[str],
        window: int,
        report: Callable[[int, int], None],
    ) -> Sequence[PolicyOutcome]:
        held = [
            replay_process._measure_conversation(await bench.read_conversation_facts(conversation))
            for conversation in conversations
        ]
        simulated: list[PolicyOutcome] = []
        for name in policies:
            sent = self._chance.randrange(1_000, 900_000)
            billed = round(sent * self._chance.uniform(0.1, 1.0))
            peak = self._chance.uniform(0.05, 1.4)
            simulated.append(PolicyOutcome(name, billed, peak, 0.9, sent=sent))
        return replay_process._adjust_to_what_happened(simulated, held, window)


def open_lab(
    window: MainWindow,
    bench: FakeWorkbench,
    session: FakeSession,
    journal: StoryJournal,
    chance: random.Random,
) -> ReplayLabDialog:
    """What other settings would have cost, once its answer is there."""
    # An open conversation tells the list how large its window is.
    window_size = session.context.next_request_meter().window
    row = replace(journal.list_row(session), window=window_size)
    savings = describe_savings_of(session.state, session.context.cost_of_agents())
    lab = ReplayLabDialog(
        bench,
        [row],
        list_policy_choices(),
        StoryReplays(chance).replay_policies,
        FakeSetup(),
        window.background_runner,
        window,
    )
    lab.show_savings(savings)
    for _ in range(200):
        if lab._bar.isHidden() and lab._sent_requests is not None:
            return lab
        QApplication.processEvents()
    raise AssertionError("The comparison did not answer.")


def is_window_unknown(session: FakeSession) -> bool:
    main = session.state.settings.model_for_role(ModelRole.MAIN)
    return main is not None and not main.window


def words_of_lab(lab: ReplayLabDialog) -> list[str]:
    return [label.text() for label in lab.findChildren(QLabel) if label.text()]


def shown_by_lab(lab: ReplayLabDialog, session: FakeSession) -> Seen:
    """The line of the setting with which the conversation was held, and what is said above it."""
    words = words_of_lab(lab)
    yield from saved_as_said([line for line in words if line.startswith(SAVINGS)])
    meter = session.context.next_request_meter()
    yield "context window", format_token_count(meter.window)
    for size in re.findall(r"context window of ([\d.]+[KM]?) tokens", "\n".join(words)):
        yield "context window", size
    for cost in lab._costs.values():
        if not cost.is_baseline or not cost.fits:
            continue
        shown = describe_preset_cost(cost)
        if shown.startswith("$"):
            yield from in_cents(shown)
            yield "cost in cents", f"${session.state.savings_until_moment().paid:.2f}"


def claims_of_lab(lab: ReplayLabDialog, session: FakeSession) -> list[str]:
    """What the comparison says without a basis."""
    words = words_of_lab(lab)
    found: list[str] = []
    if not session.state.savings_until_moment().paid and any("$" in line for line in words):
        found.append(f"lab: dollars, and nothing was paid: {words}")
    is_window_named = any("in a context window of" in line for line in words)
    if is_window_unknown(session) and is_window_named:
        found.append(f"lab: a window that nobody knows: {words}")
    for policy, button in lab._adopting.items():
        too_long = not lab._costs[policy].fits
        if too_long and button.isEnabled():
            found.append(f"lab: offers what is too long: {policy}")
    return found


def disagreements(
    window: MainWindow,
    session: FakeSession,
    journal: StoryJournal | None = None,
    lab: ReplayLabDialog | None = None,
) -> dict[str, set[str]]:
    """Of all places, at this moment."""
    found: dict[str, set[str]] = defaultdict(set)
    inspector = window.pages.inspector
    panel = window.context_panel
    inspector._show_chosen_step()
    panel.show_context_of(session, session.context.estimate_next_message(()))
    for view in (inspector.view, panel.figures):
        lay_out_all_boxes(view)
    boxes = list(shown_by_boxes(panel.figures.all_text()))
    boxes += shown_by_boxes(inspector.view.all_text())
    for name, figure in itertools.chain(
        boxes, shown_of_conversation(window.chat, session, journal)
    ):
        found[name].add(figure)
    if lab is not None:
        for name, figure in shown_by_lab(lab, session):
            found[name].add(figure)
    for chat in window.sides.sides:
        if chat is not window.chat and (beside := session_beside(window)) is not None:
            for name, figure in shown_of_conversation(chat, beside, journal):
                found[f"beside: {name}"].add(figure)
    return {name: figures for name, figures in found.items() if len(figures) > 1}


def shown_of_conversation(
    chat: ChatPage, session: FakeSession, journal: StoryJournal | None
) -> Seen:
    """What needs no place of its own in the window: it is the same on either side of
    two conversations.
    """
    yield from shown_by_meter(chat)
    yield from shown_by_timeline(session)
    yield from shown_by_export(session)
    yield from shown_by_chips(chat, session)
    yield from shown_by_fold_lines(chat)
    yield from shown_by_list(session, journal)
    yield from shown_by_json(session)


def session_beside(window: MainWindow) -> FakeSession | None:
    """The conversation on the side that has not the focus."""
    others: list[Any] = [chat.session for chat in window.sides.sides if chat is not window.chat]
    return next(filter(None, others), None)


def next_facts(session: FakeSession, chance: random.Random, number: int) -> tuple[Fact, ...]:
    """Something that may happen to a conversation."""
    facts = session.state.facts
    folds = [each.fact.fold for each in facts if isinstance(each.fact, Folded)]
    outputs = [each for each in facts if isinstance(each.fact, ToolReturned)]
    happens = ["turn", "turn", "spend", "model", "unknown model", "failed summary", "import"]
    if outputs:
        happens += ["fold", "summary"]
    if folds:
        happens += ["undo", "redo"]
    happened = chance.choice(happens)
    if happened in ("fold", "summary"):
        return facts_of_fold(happened, chance.choice(outputs), chance, number)
    if happened == "turn":
        return facts_of_turn(chance, number, session)
    if happened == "import":
        return facts_of_import(session, chance, number)
    one_fact: dict[str, Callable[[], Fact]] = {
        "undo": lambda: Unfolded(chance.choice(folds)),
        "redo": lambda: Refolded(chance.choice(folds)),
        "spend": lambda: Spent(
            Purpose.OTHER, story.MODEL, Usage(input=900, output=90, cost=chance.random())
        ),
        "model": lambda: ModelSet(
            ModelRole.MAIN,
            story.MODEL,
            chance.choice([32_000, 128_000, 1_000_000]),
            8_000,
            3.0,
            15.0,
        ),
        # Neither its window nor its price is known.
        "unknown model": lambda: ModelSet(
            ModelRole.MAIN, "other/unknown", chance.choice([0, 32_000])
        ),
    }
    if happened == "failed summary":
        why = "a/m, using its large context window: it was busy"
        usage = Usage(40_000, output=9, cost=chance.uniform(0.05, 0.2))
        return (
            Spent(Purpose.HANDOVER, story.MODEL, usage),
            FoldFailed(FoldKind.HANDOVER, why),
        )
    return (one_fact[happened](),)


def facts_of_fold(
    happened: str, output: Recorded, chance: random.Random, number: int
) -> tuple[Fact, ...]:
    """An output that is reduced to one line, or a summary up to it."""
    assert isinstance(output.fact, ToolReturned)
    name = f"new-{number}"
    if happened == "fold":
        cover = PartRef(output.seq)
        tokens = output.fact.tokens
        return (Folded(name, FoldKind.MARKER, cover, "[CACHED]", 31, tokens, batch=name),)
    return (
        Spent(
            Purpose.HANDOVER,
            story.MODEL,
            Usage(input=40_000, output=900, cost=chance.uniform(0.05, 0.2)),
        ),
        Folded(
            name,
            FoldKind.HANDOVER,
            Span(chance.randrange(2, output.seq + 1), output.seq),
            "## Summary\nSo far.",
            chance.randrange(50, 3_000),
            chance.randrange(3_000, 90_000),
            number=OWN_SUMMARIES + number + 1,
            model=story.MODEL,
            why="requested by the user",
            details=DetailsKept(9, 2, 6, 1),
        ),
    )


def facts_of_turn(
    chance: random.Random, number: int, session: FakeSession | None = None
) -> tuple[Fact, ...]:
    """A turn. Without `session`, what its request took has nothing to do with its text."""
    size = chance.randrange(40, 60_000)
    billed = chance.randrange(1_000, 120_000)
    if session is not None and chance.random() < 0.5:
        billed = round(session.state.counted_tokens * chance.uniform(0.9, 1.4)) + 480
    called = story.call(100 + number, "read_file", path=f"src/{number}.rs")
    return (
        UserSaid((Text("Go on.", 3),)),
        story.reply(Text("I look.", 4), called, tokens=billed),
        ToolReturned(called.id, story.stored("ok\n"), size, head="ok\n"),
        ModelReplied((Text("Done.", 2),), story.MODEL, chance.choice(list(Stop))),
        TurnEnded(TurnEnd.DONE),
    )


def facts_of_import(session: FakeSession, chance: random.Random, number: int) -> tuple[Fact, ...]:
    """A turn that another program recorded and paid for. Not every program says what it cost."""
    paid_elsewhere = chance.choice([0.0, chance.randrange(1, 400) / 1_000])
    said, reply, *rest = facts_of_turn(chance, number)
    assert isinstance(reply, ModelReplied)
    recorded_reply = replace(reply, usage=replace(reply.usage, cost=paid_elsewhere))
    origin = Origin("claude-code", "session", "file")
    brought_in = BroughtIn(origin, "run", session.state.seq + 1, cost=paid_elsewhere)
    return (said, recorded_reply, *rest, brought_in)


def pass_a_moment(
    window: MainWindow, session: FakeSession, chance: random.Random, number: int
) -> None:
    """Facts, words of a reply that are no fact yet, or pages that read the conversation
    again and are not done.
    """
    match chance.choice(["facts", "facts", "facts", "stream", "read again"]):
        case "facts":
            session.append(*next_facts(session, chance, number))
        case "stream":
            session.set_running(ConversationActivity.THINKING)
            session.tell(
                ReplyStreamed(session.id, TextDelta("I look at " * chance.randrange(1, 400)))
            )
        case "read again":
            window.showing.set_shown_conversation(session)
    if (beside := session_beside(window)) is not None and chance.random() < 0.4:
        beside.append(*next_facts(beside, chance, number))
    for chat in window.sides.sides:
        chat.bridge.emit_waiting_events()
    for _ in range(chance.randrange(3)):
        QApplication.processEvents()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_figure_of_a_conversation_is_the_same_wherever_it_is_shown(
    window: MainWindow,
    bench: FakeWorkbench,
    session: FakeSession,
    seed: int,
    capfd: pytest.CaptureFixture[str],
) -> None:
    chance = random.Random(seed)
    journal = StoryJournal()
    window.toggle_side_panel()
    window.pages.inspector._show_chosen_step()
    lay_out_all_boxes(window.pages.inspector.view)
    assert len(dict(shown_by_boxes(window.pages.inspector.view.all_text()))) > 4, (
        "the crawler must see them"
    )
    requests_of_rows: dict[str, int] = {}
    for number in range(MOMENTS):
        assert disagreements(window, session, journal) == {}, f"moment {number}"
        assert claims_without_a_basis(window, session) == [], f"moment {number}"
        if number % 5 == 0 or is_window_unknown(session):
            lab = open_lab(window, bench, session, journal, chance)
            said_by_lab = disagreements(window, session, journal, lab)
            assert said_by_lab == {}, f"moment {number}, with the comparison of settings"
            assert claims_of_lab(lab, session) == [], f"moment {number}"
            lab.reject()
        requests_of_rows, fewer = rows_that_took_something_back(requests_of_rows, session)
        assert fewer == [], f"moment {number}"
        assert sum_of_lines_fails(session.state) == [], f"moment {number}"
        assert rows_as_read_fail(session) == [], f"moment {number}"
        if chance.random() < 0.15:
            at = chance.randrange(2, session.state.seq + 1)
            origin = session
            session = journal.fork(window, bench, session, at, f"fork-{number}")
            requests_of_rows = {}
            if chance.random() < 0.7:
                window.sides.go_to_conversation(origin.id, beside=True)
                window.sides.go_to_other_side()
                assert session_beside(window) is origin
        else:
            pass_a_moment(window, session, chance, number)
    assert disagreements(window, session, journal) == {}, "at the end"
    printed = journal.printed_cost(session, capfd)
    savings = session.state.savings_until_moment()
    assert printed == pytest.approx(savings.paid)
    assert journal.printed_savings == {
        "compared_with": "a summary only when the window is full",
        "tokens": savings.sent,
        "tokens_without": savings.without,
        "cost": pytest.approx(savings.paid),
        "cost_without": pytest.approx(savings.paid_without),
    }


def test_the_crawler_finds_a_place_that_says_something_else(
    window: MainWindow, session: FakeSession
) -> None:
    window.toggle_side_panel()
    window.chat.composer._figures.setText("99% full · $7.77")
    assert set(disagreements(window, session)) == {"how full", "cost in cents"}


def test_the_crawler_finds_a_window_that_nobody_knows_in_the_comparison_of_settings(
    window: MainWindow, bench: FakeWorkbench, session: FakeSession
) -> None:
    session.append(ModelSet(ModelRole.MAIN, "other/unknown", 0))
    lab = open_lab(window, bench, session, StoryJournal(), random.Random(0))
    assert claims_of_lab(lab, session) == []
    assert any("tokens are assumed" in line for line in words_of_lab(lab))
    lab._compared_label.setText("Each line is in a context window of 128K tokens.")
    assert len(claims_of_lab(lab, session)) == 1
    lab.reject()


def test_the_crawler_reads_the_size_of_a_summary_in_every_place(
    window: MainWindow, session: FakeSession
) -> None:
    window.toggle_side_panel()
    inspector = window.pages.inspector
    inspector._show_chosen_step()
    lay_out_all_boxes(inspector.view)
    for seen in (
        shown_by_boxes(inspector.view.all_text()),
        shown_by_timeline(session),
        shown_by_fold_lines(window.chat),
    ):
        assert dict(seen)["size of Summary 3"] == "8.6K"


def test_the_crawler_reads_the_conversation_on_the_other_side(
    window: MainWindow, session: FakeSession
) -> None:
    window.sides.go_to_conversation("flaky", beside=True)
    window.sides.go_to_other_side()
    assert window.chat.session is session
    assert disagreements(window, session) == {}
    (other,) = (chat for chat in window.sides.sides if chat is not window.chat)
    other.composer._figures.setText("99% full · $7.77")
    assert "beside: how full" in disagreements(window, session)


def test_of_an_agent_that_keeps_its_own_context_nothing_is_counted_or_offered(
    window: MainWindow, session: FakeSession, tmp_path: Path
) -> None:
    """The side panel said "Context 17 tokens", "Sent 6" and "This setting never shortens anything.",
    with "Shorten now…" and "Set the price…" below, and the comparison of settings opened.
    """
    window.toggle_side_panel()
    session.state = build_state(())
    session.append(ConversationStarted(acp_agent="Echo agent"))
    session.append(preset_policy("none").to_policy_fact())
    session.append(ModelSet(ModelRole.MAIN, "Echo agent", 50_000))
    session.append(UserSaid((Text("Hello", 6),)))
    session.append(ModelReplied((Text("Yes", 11),), "Echo agent", Stop.END, Usage(6, output=11)))
    window.sides.show_session_or_new(session)
    inspector = window.pages.inspector
    inspector.inspect_conversation(session)
    inspector._show_chosen_step()
    lines = [
        "Context",
        "Echo agent keeps its own context. What it sends to its model is not known here.",
    ]
    assert inspector.view.all_text().splitlines() == lines
    paid = Usage(900, output=11, cost=0.25)
    session.append(ModelReplied((Text("Again", 2),), "Echo agent", Stop.END, paid))
    inspector._show_chosen_step()
    assert inspector.view.all_text().splitlines()[:3] == [*lines, "Cost so far  $0.250"]
    assert inspector.slider.isHidden()
    window.window_actions["policy"].trigger()
    assert not window.context_panel.isVisible()
    front = DialogsAndNotifications(window, FakeSetup(), FakeInstallation(), tmp_path, now)
    front.open_replay_lab()
    assert "decides itself what it sends" in window.notices.shown_text
    assert not window.findChildren(ReplayLabDialog)


def test_the_crawler_reads_the_row_of_the_fleet() -> None:
    assert list(shown_by_fleet(ConversationListRow("a", "Title", 1.0, cost=1.234))) == [
        ("cost in cents", "$1.23")
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_welcome_counts_what_the_import_dialog_lists(
    window: MainWindow, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    installation = FakeInstallation()
    histories = installation.of_others
    front = DialogsAndNotifications(window, FakeSetup(), installation, tmp_path / "tour", now)
    for moment in range(MOMENTS):
        histories.groups = [
            FoundHistories(chance.choice(["claude-code", "codex", "pi"]), Path(f"/{moment}/{number}.jsonl"), f"/home/me/{number}",
                           chance.choice([1, 1, 7, 1_204]), chance.randrange(1 << 30), 0.0, 1_768_000_000.0 - number)
            for number in range(chance.randrange(1, 30))
        ]  # fmt: skip
        front._show_histories_on_welcome(
            [DescribedHistories(group, histories.details) for group in histories.groups]
        )
        front.open_import_dialog()
        (dialog,) = (
            each for each in window.findChildren(ImportConversationsDialog) if each.isVisible()
        )
        places = (
            window.welcome._found.text(),
            dialog._message_label.text(),
            dialog.import_button.text(),
        )
        whole = sum(each.conversations for each in histories.groups)
        assert {re.sub(r"^\D*([\d,]+).*", r"\1", words) for words in places} == {f"{whole:,}"}
        dialog.reject()


def test_the_crawler_finds_sums_that_do_not_add_up() -> None:
    saved = "Saved about $0.082 (70%), compared with sending everything as long as it fits."
    assert adds_up(saved, "3 requests: $0.035, instead of about $0.117")
    assert not adds_up(saved, "3 requests: $0.036, instead of about $0.117")
    lost = "Shortening has cost about 5.7K tokens more so far than sending everything."
    assert adds_up(lost, "13 requests: 40.8K tokens, instead of about 35.1K tokens")
    assert not adds_up(lost, "13 requests: 40.8K tokens, instead of about 35.2K tokens")


def test_the_crawler_finds_rows_that_a_reader_cannot_add_up_to_the_head() -> None:
    head = "Saved about 245.8K tokens (33%), compared with sending everything as long as it fits."
    rows = [
        "saved about 200.3K tokens in 9 requests",
        "4.1K → 300 tokens",
        "saved about 45.7K tokens in 2 requests",
        "saved about 12 tokens in 1 request",
    ]
    assert len(rows_do_not_add_up(head, rows)) == 1
    rows[0] = "saved about 200.1K tokens in 9 requests"
    assert rows_do_not_add_up(head, rows) == []


def test_the_crawler_finds_lines_that_do_not_add_up_to_the_head(session: FakeSession) -> None:
    assert sum_of_lines_fails(session.state) == []
    run = session.state.record.ledger.fold_savings.runs["fold-2"][0]
    run.counts = not run.counts
    found = sum_of_lines_fails(session.state)
    assert found[0].startswith("the lines have ")
    assert found[1].startswith("the lines say ")
