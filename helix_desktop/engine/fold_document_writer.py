"""Writes the document that replaces a span, the second of a fold's three phases. The
conversation continues.

It tries in turn: the fast model, a model with a long window, writing in pieces,
truncation. The next is tried if one fails, hangs, or returns too little. What a model
wrote is otherwise never rejected: it is shortened, completed, and given the details it
left out.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import field, replace
from typing import Any, TypeVar

from helix_desktop.engine import (
    conversation_details,
    facts,
    request_building,
    span_text_and_detail_sources,
)
from helix_desktop.engine.ask_model import (
    FailedTries,
    ModelInquiry,
    append_question,
    build_material_request,
)
from helix_desktop.engine.changes.turn_changes import printable_path
from helix_desktop.engine.changes.undo_notes_for_model import (
    UNDID,
    UNDID_PARTLY,
    UNDO,
    UndoneFiles,
    name_changes_of_fact,
    read_undone_files,
)
from helix_desktop.engine.context_policy import Policy
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.conversation_details import (
    UNSEEN,
    Detail,
    DetailCollector,
    DetailSource,
    describe_change,
    sort_details,
)
from helix_desktop.engine.conversation_spending import ConversationSpending
from helix_desktop.engine.details_entry import format_details_entry, parse_details_entry
from helix_desktop.engine.interpreter_pauses import InterpreterPauses
from helix_desktop.engine.messages import RetryDelay, View
from helix_desktop.engine.ports import (
    Clock,
    ContentCache,
    EntryOrigin,
    HistoryKeepingModelClient,
    ModelClient,
    TokenCounter,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.span_text_and_detail_sources import (
    SpanText,
    details_of_stored_entries,
    read_detail_sources,
    read_span_texts,
)
from helix_desktop.engine.state.branch import ConversationBranch
from helix_desktop.engine.state.fold_covers import covers_overlap
from helix_desktop.engine.state.view_items import ViewItem
from helix_desktop.engine.state_of_work import describe_state_of_work
from helix_desktop.engine.strategies import added_strategies, handover, truncation
from helix_desktop.engine.strategies.all_strategies import STRATEGIES
from helix_desktop.engine.strategies.fold_document import (
    DocumentPlan,
    FoldDocument,
    build_fold_document,
)
from helix_desktop.engine.strategies.fold_strategy import FoldPlan, FoldSituation
from helix_desktop.engine.view import ConversationState
from helix_desktop.engine.view_contents import ViewContents
from helix_desktop.errors import ModelFailed
from helix_desktop.fast_dataclass import dataclass

MOST_DOCUMENT_TOKENS = 6_000  # A document that replaces history never has more tokens than this.
WINDOW_DIVISOR = 8  # A document takes at most one eighth of the window.
FRAME_TOKENS = 260  # The tokens for a document's header and headings.
MOST_ANSWER_TOKENS = 4_000  # The maximum for a document; a quarter of the window may be less.
LEAST_DOCUMENT_TOKENS = 400  # A document of fewer tokens would say too little to be useful.
PIECES_AT_ONCE = 4  # A model is asked about so many pieces of a long history at the same time.
ITEMS_BETWEEN_PAUSES = 2_000  # Other tasks run after so many items of a long history.
QUESTION_TOKENS = 250  # Asking for a summary takes about so many.
TOKENS_AROUND_MATERIAL = 600  # The question and the system prompt, with some to spare.
LEAST_MATERIAL_TOKENS = 500
MATERIAL_SHARE = 0.95  # The rest is kept free, because tokens are only estimated.
MOST_TOKENS_FOR_STRATEGY = 500_000  # An extension is given all texts of a span at once.
SHORTEST_WAIT = 0.1  # Seconds. So often at most is it looked whether a model has gone silent.
LONGEST_ANSWER_TOKEN = 8  # In characters. Longer answers are cut before they are counted.
PART_NOTE = "This is a part of the conversation. The other parts are summarized separately.\n\n"
MERGE_NOTE = "These are summaries of consecutive parts of the conversation, oldest first. Make one of them.\n\n"
LOST_PART = "[No summary of this part could be written. recall_history finds its messages.]"
ENTRY = "details of a conversation"

EVERY_WAY = slice(None)

Models = Callable[[facts.ModelRole], ModelClient | None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DocumentMaterial:
    """Everything that the writer needs, read in phase one. `seq`: the newest fact at that time."""

    plan: FoldPlan
    situation: FoldSituation
    branch: ConversationBranch
    items: tuple[ViewItem, ...]
    view: View
    seq: int
    shown: int  # How many tokens of the view the span takes up now.
    kept: int  # How many of the span's tokens stay in the view alongside the document.
    # How many tokens the document replaces. The view gets shorter by these, less the document's.
    leaving: int
    todo: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class WrittenDocument:
    """The result of phase two: a fold, to be appended if the covered facts are unchanged."""

    fold: facts.Folded
    material: DocumentMaterial


@dataclass(frozen=True, slots=True)
class WritingAttempt:
    """One way to get the text. `role` is the role of the model whose window limits it."""

    name: str
    client: ModelClient
    role: facts.ModelRole
    way: str  # How the writer is shown the history: as "prefix", "transcript" or "pieces".


@dataclass(frozen=True, slots=True)
class DocumentOfStrategy:
    """A document whose text an extension wrote. `author`: what stands in place of the model."""

    document: FoldDocument
    author: str


@dataclass(frozen=True, slots=True)
class _WritingTask:
    """What is the same for every attempt to write one document."""

    material: DocumentMaterial
    document_plan: DocumentPlan  # What the document contains besides the model's text.
    question: str  # What the model is asked.
    inquiry: ModelInquiry  # Asks a model and records what that cost.
    seconds: float  # How long a model may take for an answer.

    @property
    def purpose(self) -> facts.Purpose:
        """What the costs of the requests are recorded under."""
        return facts.Purpose(self.material.plan.kind.value)


class NoDocumentWritten(ModelFailed):
    """No attempt produced a document that saves anything."""


def gather_material(plan: FoldPlan, situation: FoldSituation) -> DocumentMaterial:
    """Collect what the span shows. Nothing is awaited, so nothing can change meanwhile."""
    branch = situation.branch
    items = tuple(branch.items_in_span(plan.span))
    return DocumentMaterial(
        plan=plan,
        situation=situation,
        branch=branch,
        items=items,
        view=situation.state.get_view(),
        seq=situation.state.seq,
        shown=sum(item.tokens for item in items),
        kept=branch.count_tokens_kept_beside_fold(plan.span, panic=plan.panic),
        leaving=branch.count_tokens_replaced_by_fold(plan.span, panic=plan.panic),
        todo=branch.todo,
    )


def reason_not_to_fold(material: DocumentMaterial) -> str:
    """Return why a document could not be shorter than what it replaces, or an empty string."""
    if document_limit_tokens(material) >= LEAST_DOCUMENT_TOKENS:
        return ""
    return f"There is too little to shorten: the text would replace {material.shown:,} tokens and be about as long."


def document_limit_tokens(material: DocumentMaterial) -> int:
    """Return the most tokens that a document may have so that the fold still saves enough."""
    policy = material.situation.policy
    window = material.situation.meter.window
    most_left = int(material.shown * (1 - policy.progress))
    saves_enough = most_left - material.kept - FRAME_TOKENS
    share_of_window = max(window // WINDOW_DIVISOR, LEAST_DOCUMENT_TOKENS)
    return min(saves_enough, MOST_DOCUMENT_TOKENS, share_of_window)


def is_material_current(material: DocumentMaterial, state: ConversationState) -> bool:
    """Whether the covered facts are still shown as they were read. Later markers do not count."""
    span = material.plan.span
    if not state.branch.would_fold_nest(span):
        return False
    if state.branch is not material.branch and not _has_same_items(material, state):
        return False
    later_facts = state.facts[material.seq :]
    return not any(_changes_material(recorded.fact, material) for recorded in later_facts)


def _has_same_items(material: DocumentMaterial, state: ConversationState) -> bool:
    """Whether a rewind has left the covered messages as they were: it went back to after them."""
    span = material.plan.span
    if not state.branch.has_message(span.last):
        return False
    spans_now = [(item.first, item.last) for item in state.branch.items_in_span(span)]
    spans_as_read = [(item.first, item.last) for item in material.items]
    return spans_now == spans_as_read


def _changes_material(fact: facts.Fact, material: DocumentMaterial) -> bool:
    """Whether a later fact changes what the document should have said."""
    if isinstance(fact, facts.Forgotten):
        return True
    changed_messages = _messages_shown_otherwise(fact, material.branch)
    if changed_messages is None:
        return False
    return covers_overlap(changed_messages, material.plan.span)


def _messages_shown_otherwise(fact: facts.Fact, branch: ConversationBranch) -> facts.Cover | None:
    """Return the messages, or the part of one, that are shown otherwise after a fact."""
    if isinstance(fact, (facts.Pinned, facts.Unpinned, facts.Excluded, facts.Included)):
        return fact.ref
    # A fold of one part, such as a marker, does not count.
    if isinstance(fact, facts.Folded) and isinstance(fact.cover, facts.Span):
        return fact.cover
    if isinstance(fact, (facts.Unfolded, facts.Refolded, facts.DocumentEdited)):
        changed_fold = branch.folds.get(fact.fold)
        if changed_fold is not None:
            return changed_fold.cover
    return None


@dataclass(slots=True)
class FoldDocumentWriter:
    """Has a model write the documents that replace older messages of one conversation."""

    conversation: Conversation
    cache: ContentCache
    tokens: TokenCounter
    clock: Clock
    models: Models
    contents: ViewContents
    spending: ConversationSpending
    list_added_strategies: Callable[[], Sequence[added_strategies.AddedFoldStrategy]] = (
        added_strategies.no_added_strategies
    )
    # Called when a request failed and will be sent once more, and when the model is at work again.
    notify_retry: Callable[[], object] = lambda: None
    # The event loop's time when a model was asked or last sent something.
    heard_at: float = math.inf
    # The requests that failed since then, when the next one is sent, and what ends the pauses
    # until then: pieces of a document are asked about at the same time.
    _failed: FailedTries = field(default_factory=FailedTries)
    _next_try_at: float = -math.inf
    _ends_of_pauses: list[Callable[[], object]] = field(default_factory=list)
    # While somebody waits for the document: done at the next failure, which changes how long.
    _next_failure: asyncio.Future[None] | None = None
    # When the last piece of a document was written. Each one has the whole time limit.
    _piece_done_at: float = -math.inf
    # When a model last wrote a word, unless it has written far more than it was asked for.
    _wrote_at: float = -math.inf

    async def write_document(
        self,
        material: DocumentMaterial,
        fold_name: str,
        seconds: float,
        ways: slice = EVERY_WAY,
    ) -> WrittenDocument:
        """Have a model write the text that replaces older messages. Return the fold of
        the first way that works. Raises NoDocumentWritten if none does.

        There are several ways: which model writes, and how it is shown the messages. `ways`:
        which of them to try; past the last one, the last one.
        """
        self.heard_at = math.inf
        self.forget_failed_tries()
        self._piece_done_at = -math.inf
        self._wrote_at = -math.inf
        start_time = self.clock.steady_time()
        reason = reason_not_to_fold(material)
        if reason:
            raise NoDocumentWritten(reason)

        limit = document_limit_tokens(material)
        document_plan = await self._plan_document(material, fold_name, limit)
        added = await self._write_by_added_strategies(material, document_plan)
        if added is not None:
            seconds_taken = self.clock.steady_time() - start_time
            fold = self._build_document_fold(
                material, document_plan, added.document, added.author, seconds_taken
            )
            return WrittenDocument(fold, material)

        inquiry = self.spending.build_model_inquiry(
            self._note_activity, self._note_failed_try, self._remember_time_of_words
        )
        question = await self._build_question(material, document_plan.state)
        task = _WritingTask(material, document_plan, question, inquiry, seconds)
        all_attempts = list(self._writing_attempts(material))
        failures = []
        for attempt in all_attempts[ways] or all_attempts[-1:]:
            try:
                document = await self._try_to_write(attempt, task)
            except ModelFailed as error:
                failures.append(f"{attempt.name}: {error.what}")
                continue
            seconds_taken = self.clock.steady_time() - start_time
            model = attempt.client.model_name
            fold = self._build_document_fold(
                material, document_plan, document, model, seconds_taken
            )
            return WrittenDocument(fold, material)
        raise NoDocumentWritten(_explain_failures(failures))

    async def _try_to_write(self, attempt: WritingAttempt, task: _WritingTask) -> FoldDocument:
        """Have a model write the document in one way. Raises ModelFailed if the text is no use."""
        if attempt.way == "prefix":
            text = await self._ask_over_own_context(attempt, task)
        else:
            text = await self._ask_over_transcript(attempt, task)
        document = await self._build_document(attempt, task, text)
        if document.tokens > task.document_plan.limit + FRAME_TOKENS:
            raise ModelFailed("the text was too long")
        return document

    async def _write_by_added_strategies(
        self, material: DocumentMaterial, document_plan: DocumentPlan
    ) -> "DocumentOfStrategy | None":
        """Return the document of the first added strategy that writes one, or None.

        Its text is treated like a model's: it is shortened, and gets the details that it lacks.
        """
        plan = material.plan
        # Only a model can follow what the user asks a summary to keep.
        is_offered = plan.kind is added_strategies.OFFERED_KIND and not plan.wish
        if not is_offered or plan.panic or material.shown > MOST_TOKENS_FOR_STRATEGY:
            return None
        writing_strategies = [one for one in self.list_added_strategies() if one.writes]
        if not writing_strategies:
            return None
        messages: list[added_strategies.MessageToFold] = []
        passages = read_span_texts(material.branch, material.items, self.cache)
        for item in material.items:
            passage = await anext(passages)
            role = added_strategies.role_of_item(item)
            messages.append(added_strategies.MessageToFold(item.last, role, passage.text))
        for strategy in writing_strategies:
            text = await strategy.write_summary(tuple(messages))
            if not text:
                continue
            sections = handover.split_handover_sections(text)
            document = await asyncio.to_thread(
                build_fold_document, document_plan, sections, self.tokens
            )
            if document.tokens <= document_plan.limit + FRAME_TOKENS:
                return DocumentOfStrategy(document, strategy.author)
        return None

    async def _plan_document(
        self, material: DocumentMaterial, fold: str, limit: int, number: int | None = None
    ) -> DocumentPlan:
        """Collect all that a document contains besides what a model writes."""
        details, entries = await self._gather_details(material)
        if number is None:
            number = material.branch.handovers + 1
        state = ""
        if STRATEGIES[material.plan.kind].sections:
            state = await describe_state_of_work(material.situation.state, self.cache)
        return DocumentPlan(
            fold_plan=material.plan,
            fold=fold,
            number=number,
            details=details,
            entry=entries[0],
            critical=min(material.situation.policy.critical_tokens, limit // 2),
            limit=limit,
            index=entries[1:],
            state=state,
        )

    async def _build_question(self, material: DocumentMaterial, state: str) -> str:
        """Return what a model is asked: the strategy's question, what the user has undone, and
        what is said already (`state`) and need not be written.
        """
        limit = document_limit_tokens(material)
        tail = material.situation.policy.tail_steps
        paragraphs = [STRATEGIES[material.plan.kind].question(material.plan, limit, tail)]
        files = await read_undone_files(material.situation.state, self.cache)
        undone = files.describe_undos(files.after_agent)
        if undone:
            paragraphs.append(
                f"{undone} What was undone is not done: do not report it as completed work."
            )
        if state:
            paragraphs.append(f"This stands above your text, so do not repeat it:\n{state}")
        return "\n".join(paragraphs)

    async def wait_and_return_why_given_up(
        self, work: asyncio.Task[T], policy: Policy, seconds: float
    ) -> str:
        """Wait for a document as long as a turn may. Return an empty string once it is written,
        or why it is given up: it took too long, or no model said anything for too long.

        A slow model may write for many minutes. As long as words come, it is waited for: the limit
        is the time without a word of the document.
        """
        loop = asyncio.get_running_loop()
        start_time = loop.time()
        most_seconds = seconds + self.seconds_added_for_document()
        most_silence = policy.panic_silence + round(self.seconds_of_silent_reading())
        while not work.done():
            # Each piece of a document has the whole time, and after each word it begins anew.
            last_progress = max(start_time, self._piece_done_at, self._wrote_at)
            if self._failed.why:
                # A server that answers with an error usually has the same answer for the message: it
                # is waited for, so that the agent keeps what it knows, but not as long as one that
                # reads and writes.
                end_of_tries = last_progress + seconds
                if max(loop.time(), self._next_try_at) >= end_of_tries:
                    return _as_one_reason(self._failed.describe_tries(loop.time() - self.heard_at))
                seconds_left = end_of_tries - loop.time()
                silence_left = math.inf
            else:
                seconds_left = last_progress + most_seconds - loop.time()
                # As long as no model has been asked, the silence may last for ever.
                end_of_silence = max(start_time, self.heard_at) + most_silence
                silence_left = end_of_silence - loop.time()
            if seconds_left <= 0:
                seconds_waited = loop.time() - start_time
                return f"the summary was not finished within {seconds_waited:.0f} seconds"
            if silence_left <= 0:
                return f"there was no response for {most_silence:g} seconds"
            # A model may be asked or speak meanwhile, so no wait is longer than a silence.
            longest_silence = max(most_silence, SHORTEST_WAIT)
            longest_wait = min(seconds_left, silence_left, longest_silence)
            self._next_failure = loop.create_future()
            awaited: list[asyncio.Future[Any]] = [work, self._next_failure]
            await asyncio.wait(awaited, timeout=longest_wait, return_when=asyncio.FIRST_COMPLETED)
        return ""

    def seconds_of_silent_reading(self) -> float:
        """Return how long the main model may read the whole conversation in silence."""
        used = self.conversation.current_meter().used
        return self.conversation.speed.reading_seconds(used, is_local=self._is_model_local())

    def seconds_added_for_document(self) -> float:
        """Return how long the main model may take for a summary, beside the usual limit."""
        used = self.conversation.current_meter().used
        return self.conversation.speed.document_seconds(used, is_local=self._is_model_local())

    def _is_model_local(self) -> bool:
        chosen = self.conversation.state.settings.model_for_role(facts.ModelRole.MAIN)
        return chosen is not None and chosen.is_free

    def _note_activity(self) -> None:
        """Remember that a model was asked, or has sent something."""
        self.heard_at = asyncio.get_running_loop().time()
        had_failed = bool(self._failed.why)
        self.forget_failed_tries()
        if had_failed:
            self.notify_retry()

    def _remember_time_of_words(self) -> None:
        self._wrote_at = asyncio.get_running_loop().time()

    def _note_failed_try(self, delay: RetryDelay) -> None:
        self._failed.add_failed_try(delay.why)
        if delay.wake is not None:
            self._ends_of_pauses.append(delay.wake)
        now = asyncio.get_running_loop().time()
        next_try_at = now + delay.seconds
        if now < self._next_try_at <= next_try_at:
            return  # Another piece is asked about sooner, which is what counts and is told.
        self._next_try_at = next_try_at
        if self._next_failure is not None and not self._next_failure.done():
            self._next_failure.set_result(None)
        self.notify_retry()

    def describe_next_try(self) -> tuple[str, float]:
        """Return why the model is asked again, which is empty while it is at work, and in how many
        seconds.
        """
        if not self._failed.why:
            return "", 0.0
        seconds_left = self._next_try_at - asyncio.get_running_loop().time()
        return self._failed.why, max(0.0, seconds_left)

    def forget_failed_tries(self) -> None:
        self._failed.clear()
        self._ends_of_pauses.clear()
        self._next_try_at = -math.inf

    def end_pauses_between_tries(self) -> None:
        """End the pauses before failed requests are sent again."""
        self._next_try_at = -math.inf
        for end_pause in self._ends_of_pauses:
            end_pause()
        self._ends_of_pauses.clear()

    async def write_truncation(self, material: DocumentMaterial, fold: str) -> WrittenDocument:
        """Write a document without a model, short enough that the next request fits."""
        most_tokens = min(document_limit_tokens(material), _free_tokens_after_fold(material))
        limit = max(most_tokens, LEAST_DOCUMENT_TOKENS)
        plan = await self._plan_document(material, fold, limit, number=0)
        sections = truncation.fill_truncation_sections(material.todo)
        document = await asyncio.to_thread(build_fold_document, plan, sections, self.tokens)
        written_fold = self._build_document_fold(material, plan, document, model="", seconds=0.0)
        return WrittenDocument(written_fold, material)

    async def _gather_details(
        self, material: DocumentMaterial
    ) -> tuple[list[Detail], tuple[Digest, ...]]:
        """Collect the details that must not be lost from the messages that the document replaces.

        Return those that the document may name, and the stored entries that have all of them:
        one, and a second one for names that the model has never seen. Earlier documents hand
        theirs on.
        """
        merged, unseen = await self._collect_details(material)
        undone_files = await read_undone_files(material.situation.state, self.cache)
        details = _without_undone_work(merged, undone_files)

        named_in_document = []
        for detail in details:
            if detail.is_critical or detail.kind == "stored":
                named_in_document.append(detail)
        if not unseen:
            only_entry = await self._store_details_entry(details)
            return named_in_document, (only_entry,)
        # Names that the model never saw have an entry of their own, which the main one names.
        index_entry = await self._store_details_entry(unseen)
        main_entry = await self._store_details_entry(details, index_entry)
        return named_in_document, (main_entry, index_entry)

    async def _collect_details(
        self, material: DocumentMaterial
    ) -> tuple[list[Detail], list[Detail]]:
        """Return the details of all that the document replaces, and apart from them the names
        that the model has never seen.

        Messages are read in batches, so that the texts of a long history are never all in memory.
        """
        earlier_details, seqs_to_read = await self._read_earlier_documents(material)
        collector = DetailCollector()
        inherited = collector.inherit_details(earlier_details)
        for start in range(0, len(seqs_to_read), span_text_and_detail_sources.BATCH):
            batch = seqs_to_read[start : start + span_text_and_detail_sources.BATCH]
            sources = await read_detail_sources(material.branch, batch, self.cache)
            stored_entries = list(details_of_stored_entries(material.branch, batch))
            await asyncio.to_thread(_collect_with_pauses, collector, sources, stored_entries)
        for change in await self._read_recorded_changes(material, inherited):
            collector.add_detail(change)
        return await asyncio.to_thread(
            _merge_and_split_details, inherited, collector, material.todo
        )

    async def _read_earlier_documents(
        self, material: DocumentMaterial
    ) -> tuple[list[Detail], list[int]]:
        """Return the details that earlier documents in the span have, and the numbers of the
        messages that must be read, since no earlier document has their details.
        """
        inherited: list[Detail] = []
        seqs_to_read: list[int] = []
        for number, item in enumerate(material.items):
            if number % ITEMS_BETWEEN_PAUSES == 0:
                await asyncio.sleep(0)
            if not item.fold:
                seqs_to_read.append(item.first)
                continue
            details = await self._read_details_of_earlier_document(material.branch, item)
            if details is None:
                seqs_to_read += material.branch.messages_of_item(item)
            else:
                inherited += details
        return inherited, seqs_to_read

    async def _read_recorded_changes(
        self, material: DocumentMaterial, inherited: Sequence[Detail]
    ) -> list[Detail]:
        """Return what the steps of the span did to files, where an earlier document has it not."""
        inherited_changes: set[tuple[str, int]] = set()
        for detail in inherited:
            if detail.kind == "written":
                inherited_changes.add((detail.text, detail.seq))
        changes_by_seq = _file_changes_in_span(material)
        digests = {fact.difference.digest for fact in changes_by_seq.values()}
        contents = await self.cache.read_contents(digests)
        names: dict[str, str] = {}
        details: list[Detail] = []
        for seq, fact in changes_by_seq.items():
            content = contents.get(fact.difference.digest)
            if content is None:  # It is damaged, or the user had it forgotten.
                continue
            for change in name_changes_of_fact(fact, content, names):
                verb = describe_change(before=change.before, after=change.after)
                text = f"{verb} {printable_path(names[change.path])}"
                if (text, seq) not in inherited_changes:
                    details.append(Detail("written", text, seq))
        return details

    async def _store_details_entry(self, details: Sequence[Detail], *index: Digest) -> Digest:
        """Store a list of details as an entry. `index`: an entry with more of them."""
        text = await asyncio.to_thread(format_details_entry, details, *index)
        content = text.encode("utf-8", "replace")
        stored = await self.cache.store_content(content, EntryOrigin("handover", ENTRY))
        return stored.digest

    def _read_passages(self, material: DocumentMaterial) -> AsyncIterator[SpanText]:
        items = material.branch.items_in_span(material.plan.span)
        return read_span_texts(
            material.branch, items, self.cache, dated=STRATEGIES[material.plan.kind].dated
        )

    async def _read_details_of_earlier_document(
        self, branch: ConversationBranch, item: ViewItem
    ) -> Sequence[Detail] | None:
        """Return the details in the entries of an item's fold, or None for a lost entry."""
        fold = branch.folds.get(item.fold)
        if fold is None or not fold.entries:
            return None
        contents = await self.cache.read_contents(fold.entries)
        if fold.entries[0] not in contents:
            return None
        details: list[Detail] = []
        for entry in fold.entries:
            if entry in contents:
                text = contents[entry].decode("utf-8", "replace")
                details += await asyncio.to_thread(parse_details_entry, text)
        return details

    def _build_document_fold(
        self,
        material: DocumentMaterial,
        document_plan: DocumentPlan,
        document: FoldDocument,
        model: str,
        seconds: float,
    ) -> facts.Folded:
        """Return the fact that puts a document in place of the span that it covers."""
        plan = material.plan
        number = 0
        if plan.kind is facts.FoldKind.HANDOVER:
            number = document_plan.number
        entries = [document_plan.entry]
        entries += document_plan.index
        return facts.Folded(
            fold=document_plan.fold,
            kind=plan.kind,
            cover=plan.span,
            text=document.text,
            tokens=document.tokens,
            tokens_before=material.leaving,
            batch=document_plan.fold,
            entries=tuple(entries),
            details=document.kept,
            number=number,
            model=model,
            seconds=seconds,
            why=plan.why,
            asked=plan.wish,
            panic=plan.panic,
        )

    def _writing_attempts(self, material: DocumentMaterial) -> Iterator[WritingAttempt]:
        """Yield the ways to try, the policy's choice first. The main model can replace the fast."""
        main = self.models(facts.ModelRole.MAIN)
        if main is not None and _may_write_behind_history(main, material):
            name = f"{main.model_name}, using this conversation's context"
            yield WritingAttempt(name, main, facts.ModelRole.MAIN, "prefix")

        quick = self.models(facts.ModelRole.FAST)
        quick_role = facts.ModelRole.FAST
        if quick is None:
            quick = main
            quick_role = facts.ModelRole.MAIN
        if quick is not None and self._fits_in_one_part(material, quick_role):
            name_in_one_part = f"{quick.model_name}, with the text in one part"
            yield WritingAttempt(name_in_one_part, quick, quick_role, "transcript")
        yield from self._attempts_of_long_model(material, quick)
        if quick is None:
            return
        name_in_parts = f"{quick.model_name}, with the text in several parts"
        yield WritingAttempt(name_in_parts, quick, quick_role, "pieces")
        if main is not None and main.model_name != quick.model_name:
            yield self._attempt_of_main_model_apart(material, main)

    def _attempts_of_long_model(
        self, material: DocumentMaterial, quick: ModelClient | None
    ) -> Iterator[WritingAttempt]:
        """Yield how the model with a large window writes, unless it is the quick one again."""
        long = self.models(facts.ModelRole.LONG)
        if long is None or (quick is not None and long.model_name == quick.model_name):
            return
        if self._fits_in_one_part(material, facts.ModelRole.LONG):
            name = f"{long.model_name}, using its large context window"
            yield WritingAttempt(name, long, facts.ModelRole.LONG, "transcript")

    def _attempt_of_main_model_apart(
        self, material: DocumentMaterial, main: ModelClient
    ) -> WritingAttempt:
        """Return how the main model writes without its own context, in place of the fast model."""
        role = facts.ModelRole.MAIN
        if self._fits_in_one_part(material, role):
            name = f"{main.model_name}, with the text in one part"
            return WritingAttempt(name, main, role, "transcript")
        name = f"{main.model_name}, with the text in several parts"
        return WritingAttempt(name, main, role, "pieces")

    def _fits_in_one_part(self, material: DocumentMaterial, role: facts.ModelRole) -> bool:
        return material.shown <= self._material_room_tokens(material.situation, role)

    async def _ask_over_transcript(self, attempt: WritingAttempt, task: _WritingTask) -> str:
        """Return a model's summary of the messages, which it gets as a text.

        If that is too long for one request, the model summarizes pieces of it, then pieces of
        the summaries, until one is left.
        """
        material = task.material
        answer_limit = _summary_limit_tokens(attempt, task)
        material_limit = self._material_room_tokens(material.situation, attempt.role)

        async def ask_about(piece: str) -> str:
            request = build_material_request(piece, task.question, task.purpose, answer_limit)
            answer = await task.inquiry.ask_for_text(attempt.client, request, task.seconds)
            self._piece_done_at = asyncio.get_running_loop().time()
            # Two of them always fit into one request, so each round of merging leaves fewer.
            return self._cut_answer(_require_text(answer), material_limit // 2)

        note = ""
        if attempt.way == "pieces":
            note = PART_NOTE
        pieces = _split_and_join_passages(self._read_passages(material), material_limit)
        texts = await _ask_several_at_once(ask_about, note, pieces)
        while len(texts) > 1:
            pieces = _split_and_join_passages(self._build_passages(texts), material_limit)
            texts = await _ask_several_at_once(ask_about, MERGE_NOTE, pieces)
        return "".join(texts)

    def _cut_answer(self, answer: str, most_tokens: int) -> str:
        text = answer[: MOST_ANSWER_TOKENS * LONGEST_ANSWER_TOKEN]
        token_count = self.tokens.count_tokens(text)
        # The beginning may have more tokens for its length than the rest, such as Chinese.
        while token_count > most_tokens:
            text = text[: len(text) * most_tokens // token_count]
            token_count = self.tokens.count_tokens(text)
        return text

    async def _ask_over_own_context(self, attempt: WritingAttempt, task: _WritingTask) -> str:
        """Ask the main model behind what it was sent already, which is in its cache."""
        view = task.material.view
        if _has_own_history(attempt.client):
            # A connected agent's model gets the question as the agent's next message.
            view = View(())
        contents = await self.contents.read_view_contents(view)
        request_so_far = request_building.build_request(view, contents)
        answer_limit = _summary_limit_tokens(attempt, task)
        request = append_question(request_so_far, task.question, task.purpose, answer_limit)
        text = await task.inquiry.ask_for_text(attempt.client, request, task.seconds)
        _require_text(text)
        is_short = self.tokens.count_tokens(text) < LEAST_DOCUMENT_TOKENS
        if is_short and not handover.has_handover_heading(text):
            # Instead of a summary, the model wrote the next message of the conversation.
            raise ModelFailed("The model's reply was not a summary.")
        return text

    async def _build_passages(self, texts: Sequence[str]) -> AsyncIterator[SpanText]:
        for text in texts:
            yield SpanText(text, self.tokens.count_tokens(text))

    async def _build_document(
        self, attempt: WritingAttempt, task: _WritingTask, text: str
    ) -> FoldDocument:
        """Build the document from what a model wrote (`text`).

        Some kinds of documents have sections. Those that are missing are asked for once more;
        what is missing even then is filled from the collected details.
        """
        sections = {"": text}
        if STRATEGIES[task.material.plan.kind].sections:
            sections = handover.split_handover_sections(text)
            missing = handover.find_missing_sections(sections)
            if missing:
                sections |= await self._ask_for_sections(missing, attempt, task, text)
        return await asyncio.to_thread(
            build_fold_document, task.document_plan, sections, self.tokens
        )

    async def _ask_for_sections(
        self, names: Sequence[str], attempt: WritingAttempt, task: _WritingTask, text: str
    ) -> dict[str, str]:
        """Ask the model for sections that its text does not have. Return those that it writes."""
        question = handover.missing_sections_question(names)
        answer_limit = _answer_limit_tokens(task.material.situation, attempt.role)
        request = build_material_request(text, question, task.purpose, answer_limit)
        try:
            answer = await task.inquiry.ask_for_text(attempt.client, request, task.seconds)
        except ModelFailed:
            return {}
        written_sections = {}
        for name, section_text in handover.split_handover_sections(answer).items():
            if name in names and section_text:
                written_sections[name] = section_text
        return written_sections

    def _material_room_tokens(self, situation: FoldSituation, role: facts.ModelRole) -> int:
        """Return how many tokens of material fit a role's window beside question and answer."""
        window = _role_window_tokens(situation, role)
        billed_tokens = window - _answer_limit_tokens(situation, role) - TOKENS_AROUND_MATERIAL
        counted_tokens = billed_tokens / max(situation.meter.factor, 1.0)
        return max(LEAST_MATERIAL_TOKENS, int(counted_tokens * MATERIAL_SHARE))


def _has_own_history(client: ModelClient) -> bool:
    return isinstance(client, HistoryKeepingModelClient) and client.has_own_history


def _may_write_behind_history(main: ModelClient, material: DocumentMaterial) -> bool:
    """Whether the main model writes a document as the next message of the conversation itself."""
    plan = material.plan
    if plan.panic or not STRATEGIES[plan.kind].main_writes(material.situation, plan.span):
        return False
    return _has_room_behind_history(main, material)


def _has_room_behind_history(main: ModelClient, material: DocumentMaterial) -> bool:
    """Whether the question and a document fit behind the conversation as it is.

    A connected agent is asked in any case: what it sends is not the conversation that is kept here.
    """
    if _has_own_history(main):
        return True
    meter = material.situation.meter
    needed_tokens = round((QUESTION_TOKENS + LEAST_DOCUMENT_TOKENS) * meter.factor)
    return meter.used + needed_tokens <= meter.window


def _role_window_tokens(situation: FoldSituation, role: facts.ModelRole) -> int:
    settings = situation.state.settings
    chosen = settings.model_for_role(role) or settings.model_for_role(facts.ModelRole.MAIN)
    if chosen is not None and chosen.window > 0:
        return chosen.window
    return situation.policy.window


def _answer_limit_tokens(situation: FoldSituation, role: facts.ModelRole) -> int:
    return min(MOST_ANSWER_TOKENS, _role_window_tokens(situation, role) // 4)


def _summary_limit_tokens(attempt: WritingAttempt, task: _WritingTask) -> int:
    """Return how many tokens a model may write. A document that is half as long again as
    allowed can still be shortened.
    """
    answer_limit = _answer_limit_tokens(task.material.situation, attempt.role)
    return min(answer_limit, task.document_plan.limit * 3 // 2)


def _explain_failures(failures: Sequence[str]) -> str:
    if not failures:
        return "No model is available to write the summary."
    reasons = [_as_one_reason(failure.rstrip(".")) for failure in failures]
    return "; ".join(reasons)


def _as_one_reason(sentence: str) -> str:
    """Return a sentence, of a server perhaps, without what separates one reason from another."""
    return sentence.replace(";", ",")


def _file_changes_in_span(material: DocumentMaterial) -> dict[int, facts.FilesChanged]:
    """Return the changes that the steps of the span made, by their numbers, without undos."""
    span = material.plan.span
    changes: dict[int, facts.FilesChanged] = {}
    for recorded in material.situation.state.facts_on_path():
        is_in_span = span.first <= recorded.seq <= span.last
        fact = recorded.fact
        if is_in_span and isinstance(fact, facts.FilesChanged) and fact.by != UNDO:
            changes[recorded.seq] = fact
    return changes


def _free_tokens_after_fold(material: DocumentMaterial) -> int:
    """Return how many tokens the document may have so that the next request fits."""
    meter = material.situation.meter
    state = material.situation.state
    room_tokens = int((meter.window - meter.reserve) / meter.factor)
    tokens_beside_document = state.counted_tokens - material.shown + material.kept
    return room_tokens - tokens_beside_document - FRAME_TOKENS


def _collect_with_pauses(
    collecting: DetailCollector, sources: Sequence[DetailSource], stored: Sequence[Detail]
) -> None:
    collecting.collect_from_sources(sources, between=InterpreterPauses().sleep_after_long_stretch)
    for detail in stored:
        collecting.add_detail(detail)


def _merge_and_split_details(
    inherited: Sequence[Detail], collector: DetailCollector, todo: Sequence[tuple[str, str]]
) -> tuple[list[Detail], list[Detail]]:
    """Merge all details. Return apart from them the names that the model never saw.
    Slow, so to be run in a thread.
    """
    merged = conversation_details.merge_details_and_replace_todos(
        inherited, collector.finish_collecting(), todo
    )
    shown_details = [detail for detail in merged if detail.kind != UNSEEN]
    shown_texts = {detail.text for detail in shown_details}
    unseen_details = []
    for detail in merged:
        if detail.kind == UNSEEN and detail.text not in shown_texts:
            unseen_details.append(detail)
    return shown_details, unseen_details


def _without_undone_work(details: Sequence[Detail], files: UndoneFiles) -> list[Detail]:
    """Leave out files that were written and undone since, and say what is undone now."""
    valid_details = []
    for detail in details:
        is_undone = detail.kind == "written" and files.is_undone(detail.text)
        is_said_before = detail.text.startswith((UNDID, UNDID_PARTLY))  # By an earlier document.
        if not is_undone and not is_said_before:
            valid_details.append(detail)
    undos = files.describe_undos(files.after_agent)
    if not undos:
        return valid_details
    valid_details.append(Detail("decision", undos, files.last_seq))
    return sort_details(valid_details)


def _require_text(text: str) -> str:
    """Return a model's answer, or raise ModelFailed if it has no text."""
    if not text.strip():
        raise ModelFailed("The model's reply was empty.")
    return text


async def _ask_several_at_once(
    ask: Callable[[str], Awaitable[str]], note: str, pieces: AsyncIterator[str]
) -> list[str]:
    """Ask about each piece, several at the same time, and return the texts in order.

    If only some requests fail, a note stands in their places, as the others are worth having.
    """
    answers: list[str | BaseException] = []
    batch: list[str] = []
    async for piece in pieces:
        batch.append(note + piece)
        if len(batch) == PIECES_AT_ONCE:
            answers += await _gather_answers(ask, batch)
            batch = []
    answers += await _gather_answers(ask, batch)
    failures = [answer for answer in answers if isinstance(answer, ModelFailed)]
    if failures and len(failures) == len(answers):
        raise failures[0]
    texts: list[str] = []
    for answer in answers:
        if isinstance(answer, str):
            texts.append(answer)
        else:
            texts.append(LOST_PART)
    return texts


async def _gather_answers(
    ask: Callable[[str], Awaitable[str]], batch: Sequence[str]
) -> list[str | BaseException]:
    """Return the answers, and models' failures in their places. Other errors are raised."""
    answers = await asyncio.gather(*map(ask, batch), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, ModelFailed):
            raise answer
    return answers


async def _split_and_join_passages(
    passages: AsyncIterator[SpanText], most_tokens: int
) -> AsyncIterator[str]:
    """Yield the transcript in pieces of up to `most_tokens`, split between messages if possible."""
    texts_of_piece: list[str] = []
    tokens_left = most_tokens
    async for passage in passages:
        for part in _split_passage(passage, most_tokens):
            if part.tokens > tokens_left and texts_of_piece:
                yield "\n\n".join(texts_of_piece)
                texts_of_piece = []
                tokens_left = most_tokens
            texts_of_piece.append(part.text)
            tokens_left -= part.tokens
    if texts_of_piece:
        yield "\n\n".join(texts_of_piece)


def _split_passage(passage: SpanText, most_tokens: int) -> Iterator[SpanText]:
    """Yield a message as it is, or in parts of equal length if it has too many tokens."""
    if passage.tokens <= most_tokens:
        yield passage
        return
    part_count = math.ceil(passage.tokens / most_tokens)
    part_length = math.ceil(len(passage.text) / part_count)
    tokens_of_part = passage.tokens // part_count
    for start in range(0, len(passage.text), part_length):
        text = passage.text[start : start + part_length]
        yield replace(passage, text=text, tokens=tokens_of_part)
