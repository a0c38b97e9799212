"""Plays a recorded session through the real engine.

What people, models and tools said comes from the recording, and folds come from a stand-in. A
request precedes every recorded reply, at its recorded time or ten seconds after the last one. What
the reply uses but the view no longer shows is recalled first, and billed.
"""

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from helix_desktop.engine import content_recall, facts, request_building
from helix_desktop.engine.automatic_folding import ConversationFolding
from helix_desktop.engine.context_policy import Policy
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.fold_economics import RelativePrices
from helix_desktop.engine.foreign_agent_facts import AgentFollower, AgentOutput
from helix_desktop.engine.messages import Request, ToolResult, View
from helix_desktop.engine.ports import (
    ContentCache,
    JournalPort,
    ModelClient,
    SearchIndex,
    TokenCounter,
)
from helix_desktop.engine.session_setup import AgentsCost, FoldServices, TurnLimits
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.engine.view_contents import ViewContents
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.recorded_session import (
    RecordedMessage,
    RecordedSession,
    reply_parts_from_message,
)
from helix_desktop.replay import prompt_cache_billing
from helix_desktop.replay.prompt_cache_billing import (
    HEAD_TOKENS,
    BillingLedger,
    CacheOfSession,
    Piece,
    RecallReason,
    cache_of_recording,
)
from helix_desktop.replay.replay_figures import ReplayFigures
from helix_desktop.replay.replay_observer import ReplayObserver
from helix_desktop.replay.simulated_clock import LoopClock
from helix_desktop.replay.simulated_recalls import (
    PublicNames,
    RecalledPage,
    RecallMode,
    group_by_round,
)
from helix_desktop.replay.stand_in_model import StandInModel, StandInRequest

T = TypeVar("T")
RECALLED = "recalled-"  # The ids of recalls that the replay adds for the agent begin with this.
SEARCHED = f"{RECALLED}search-"
# The names of the models: the one that the recording heard, and the one that folds.
MAIN = "recorded"
FAST = "stand-in"
SEARCHES = (ToolName.SEARCH_CACHE, ToolName.RECALL_HISTORY)
MODELS = {facts.ModelRole.MAIN: MAIN, facts.ModelRole.FAST: FAST}
SYSTEM = "You are the agent of a recorded session."
# In brackets, so that it is not taken for something that the user said.
NO_WORDS = "[no words are recorded]"
# This word is one token. Repeated, it stands for the text beside a recall.
WORD_WITH_CALL = "again "


@dataclass(frozen=True, slots=True)
class AnsweredRecall:
    """A recall that the replay adds for the agent, and what it brought."""

    tool: str
    arguments: dict[str, str]
    output: str


@dataclass(frozen=True, slots=True)
class ReplayTerms:
    """The settings of a replay."""

    policy: Policy  # How and when the conversation is shortened.
    window: int = 128_000
    prices: RelativePrices = RelativePrices(0.1, 1.25, 5.0)
    stand_in: str = "works"  # How the model behaves that writes summaries; see `KINDS`.
    head: int = HEAD_TOKENS  # The number of tokens in the system prompt and tools.
    # How the agent gets back what its reply uses but was not shown.
    recalls: RecallMode = RecallMode.NAMED
    # The share by which outputs would grow if no context were sent. A trial of compressed
    # prompts (arXiv 2603.23525) saw 3 % more output with a fifth kept, which is 0.0375 here.
    output_growth: float = 0.0
    # Whether price and lifetime of cached text are those that the recording's usage shows.
    is_cache_recorded: bool = True
    # Names that no agent must recall; by default, those of Python's own modules.
    public_names: PublicNames | None = None


@dataclass(frozen=True, slots=True)
class ReplayStores:
    """Where a replay records its conversation and stores its outputs."""

    journal: JournalPort
    cache: ContentCache
    index: SearchIndex


class SessionPlayer:
    """Plays one session under one policy. `play_session` returns its figures."""

    def __init__(
        self,
        recording: RecordedSession,
        terms: ReplayTerms,
        stores: ReplayStores,
        tokens: TokenCounter,
    ) -> None:
        self._recording = recording
        self._terms = terms
        self._stores = stores
        self._tokens = RememberingCounter(tokens)
        prompts = [message.text for message in recording.messages if message.role == "system"]
        self._system_text = "\n\n".join([SYSTEM, *prompts])
        self._system_tokens = terms.head + sum(map(self._tokens.count_tokens, prompts))
        self._cache = CacheOfSession(terms.prices)
        if terms.is_cache_recorded:
            self._cache = cache_of_recording(recording.messages, terms.prices)
        self._ledger = self._open_ledger()
        self._times = prompt_cache_billing.request_times(recording.messages)
        self._recalled = 0
        self._recall_requests = 0
        self._words_with_recall = _build_average_text_with_calls(recording.messages, self._tokens)
        self._plain_tokens = self._system_tokens  # The number of tokens in a request without folds.
        self._contents = ViewContents(stores.cache)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waited = 0.0
        self._waited_now = 0.0
        self._longest_admission = 0.0

    def _open_ledger(self) -> BillingLedger:
        return self._cache.open_ledger(self._terms.window)

    async def play_session(
        self, on_message: Callable[[int], None] = lambda _: None
    ) -> ReplayFigures:
        """Play the whole session, and report each message's number for a progress bar."""
        self._conversation = await Conversation.open(self._stores.journal, "replay")
        self._watching = ReplayObserver(
            self._conversation,
            self._stores.cache,
            (MAIN, FAST),
            self._tokens,
            self._terms.public_names,
        )
        self._folding = self._build_folding()
        self._following = AgentFollower(
            self._conversation,
            self._folding,
            self._stores.cache,
            self._tokens,
            waiting=self._await_and_add_wait_time,
            stored=self._watching.remember_output_text,
        )
        first_facts = self._build_first_facts()
        await self._conversation.append_facts(*first_facts)
        try:
            await self._play_messages(on_message)
            await self._folding.aclose()
            return await self._collect_figures()
        finally:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _build_folding(self) -> ConversationFolding:
        """Return the engine's own folding, which shortens the conversation, with stand-ins for
        the models that it asks.
        """
        clients: dict[facts.ModelRole, ModelClient] = {}
        for role, name in MODELS.items():
            clients[role] = StandInModel(
                name,
                kind=self._terms.stand_in,
                tokens=self._tokens,
                heard=self._bill_fold_request,
                fits=self._fits_in_window,
            )
        services = FoldServices(
            self._stores.cache,
            self._tokens,
            LoopClock(),
            clients.get,
            self._spawn,
            TurnLimits,
            # Nobody pays for a replay, and it starts no other agents.
            lambda: (0.0, 0.0),
            AgentsCost,
        )
        return ConversationFolding(self._conversation, services)

    def _spawn(self, coroutine: Coroutine[Any, Any, T], /, *, name: str) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _build_first_facts(self) -> list[facts.Fact]:
        """Return the settings of the conversation: prompt, policy and models with their prices."""
        price = self._cache.prices
        if self._cache.for_an_hour:
            # The prices in a model's settings are those for five minutes.
            price = replace(price, write=price.write / facts.HOUR_WRITE)
        system = facts.SystemSet(self._system_text, self._system_tokens)
        no_tools = facts.ToolsOffered((), 0)
        policy = self._terms.policy.to_policy_fact()
        first_facts: list[facts.Fact] = [system, no_tools, policy]
        for role, name in MODELS.items():
            # An input token costs 1, and all other prices are relative to that.
            chosen_model = facts.ModelSet(
                role,
                name,
                window=self._terms.window,
                max_output=0,
                price_input=1.0,
                price_output=price.output,
                price_cache_read=price.read,
                price_cache_write=price.write,
            )
            first_facts.append(chosen_model)
        return first_facts

    async def _play_messages(self, on_message: Callable[[int], None]) -> None:
        """Play all messages. Outputs that follow each other are played together, as they came."""
        batch: list[RecordedMessage] = []
        for number, message in enumerate(self._recording.messages, 1):
            if batch and message.role != "tool":
                await self._play_outputs(batch)
                batch = []
            if message.role == "user":
                await self._play_user_message(message)
            elif message.role == "assistant":
                await self._play_reply(message)
            elif message.role == "tool":
                batch.append(message)
            self._note_played_message(message)
            on_message(number)
        if batch:
            await self._play_outputs(batch)
        await self._end_played_turn()

    def _note_played_message(self, message: RecordedMessage) -> None:
        """Let the observer know the message, and count it for a request without folds."""
        count_tokens = self._tokens.count_tokens
        self._watching.observe_recorded_message(message, count_tokens(message.text))
        if message.role != "system":  # It is counted from the start.
            self._plain_tokens += prompt_cache_billing.count_output_tokens(message, count_tokens)

    async def _play_user_message(self, message: RecordedMessage) -> None:
        await self._end_played_turn()
        words = message.text or NO_WORDS
        await self._following.record_user_message((facts.Text(words),))

    async def _end_played_turn(self) -> None:
        if await self._following.end_agent_turn():
            self._waited = max(self._waited, self._waited_now)
            self._waited_now = 0.0

    async def _play_reply(self, message: RecordedMessage) -> None:
        """Play a recorded reply at its time, as if the agent had just got it.

        First comes the request that it answers: what is due is folded (shortened), what the
        reply needs is recalled, and then the request is billed. Then the reply is recorded.
        """
        loop = asyncio.get_running_loop()
        seconds_until_reply = next(self._times) - loop.time()
        await asyncio.sleep(max(0.0, seconds_until_reply))
        view, request = await self._fold_and_build_next_request()
        await self._watching.observe_step(view, request, message)
        pages = await self._watching.pages_recalled_before_reply(view, message, self._terms.recalls)
        if pages:
            request = await self._play_recalls(request, pages)
        last_fact_seen = self._conversation.state.seq
        pieces = self._billing_pieces_of(request)
        output_tokens = self._output_tokens_of(message, pieces)
        usage = self._ledger.bill_step(pieces, output_tokens, loop.time(), self._recall_reason_of)
        reply = self._build_agent_reply(message, usage)
        await self._following.record_reply(reply, last_fact_seen)

    def _output_tokens_of(self, message: RecordedMessage, pieces: Sequence[Piece]) -> int:
        """Return a reply's tokens. Models may say more if they are sent less."""
        recorded_tokens = prompt_cache_billing.count_output_tokens(
            message, self._tokens.count_tokens
        )
        if not self._plain_tokens:
            return recorded_tokens
        tokens_sent = sum(tokens for _, tokens in pieces)
        share_left_out = max(0.0, 1 - tokens_sent / self._plain_tokens)
        return round(recorded_tokens * (1 + self._terms.output_growth * share_left_out))

    async def _fold_and_build_next_request(self) -> tuple[View, Request]:
        view = await self._following.apply_folds_and_get_view()
        contents = await self._contents.read_view_contents(view)
        return view, request_building.build_request(view, contents)

    async def _play_recalls(self, request: Request, pages: Sequence[RecalledPage]) -> Request:
        """Recall pages, as an agent would, and return the agent's request after that.

        A round is one request of the agent, in which it asks for several pages.
        """
        text_from_searches = ""
        for pages_of_round in _rounds_of_recalls(pages):
            # A search may have shown what a page is for. Results of the same round do not
            # count: the agent asks for all of its pages at once.
            needed_pages = [
                page for page in pages_of_round if not _is_answered(page, text_from_searches)
            ]
            if not needed_pages:
                continue
            recalls = [await self._answer_recall(page) for page in needed_pages]
            for recall in recalls:
                if recall.tool in SEARCHES:
                    text_from_searches += recall.output
            await self._play_recall_request(request, recalls)
            view, request = await self._fold_and_build_next_request()
            await self._watching.observe_request(view, request)
        return request

    async def _answer_recall(self, page: RecalledPage) -> AnsweredRecall:
        """Recall a page with the tool that the agent would call for it."""
        if page.tool is ToolName.SEARCH_CACHE:
            return await self._answer_search(page)
        if page.tool is ToolName.RECALL_HISTORY:
            return await self._answer_recall_of_history(page)
        arguments = dict(page.asked)
        wanted = content_recall.WantedContent(
            lines=arguments.get("lines", ""), words=arguments.get("find", "")
        )
        text = await content_recall.recall_entry(
            self._stores.cache, self._tokens, page.entry, wanted
        )
        arguments_with_entry = {"sha256": page.entry} | arguments
        return AnsweredRecall(page.tool, arguments_with_entry, text)

    async def _answer_search(self, page: RecalledPage) -> AnsweredRecall:
        arguments = dict(page.asked)
        hits = await content_recall.search_entries(
            self._stores.index, arguments["query"], cache=self._stores.cache
        )
        return AnsweredRecall(page.tool, arguments, hits)

    async def _answer_recall_of_history(self, page: RecalledPage) -> AnsweredRecall:
        """Answer with the messages of one fold, or with passages of all that have the words."""
        arguments = dict(page.asked)
        if page.entry:
            arguments_with_fold = {"fold": page.entry} | arguments
            return AnsweredRecall(page.tool, arguments_with_fold, page.text)
        passages = await content_recall.recall_folded_messages(
            self._conversation.state,
            self._stores.cache,
            self._tokens,
            name="",
            words=arguments.get("find", ""),
        )
        return AnsweredRecall(page.tool, arguments, passages)

    async def _play_recall_request(
        self, request: Request, recalls: Sequence[AnsweredRecall]
    ) -> None:
        """Play a request that is answered with these recalls, and then their results."""
        self._recall_requests += 1
        reason = RecallReason.RECALLED
        id_prefix = RECALLED
        if recalls[0].tool == ToolName.RECALL_HISTORY:
            reason = RecallReason.SEARCHED
            id_prefix = SEARCHED
        calls: list[facts.ToolCall] = []
        outputs: list[RecordedMessage] = []
        for recall in recalls:
            call_id = f"{id_prefix}{self._recalled}"
            self._recalled += 1
            arguments = json.dumps(recall.arguments)
            calls.append(facts.ToolCall(call_id, recall.tool, arguments))
            output = RecordedMessage("tool", recall.output, answers=call_id)
            outputs.append(output)
        reply = RecordedMessage("assistant", self._words_with_recall, tuple(calls))
        usage = self._bill_recall(request, reply, reason)
        agent_reply = self._build_agent_reply(reply, usage)
        await self._following.record_reply(agent_reply, self._conversation.state.seq)
        await self._play_outputs(outputs)

    def _bill_recall(
        self, request: Request, reply: RecordedMessage, reason: RecallReason
    ) -> facts.Usage:
        """Bill a request that the agent answers with calls of recall tools."""
        pieces = self._billing_pieces_of(request)
        output_tokens = prompt_cache_billing.count_output_tokens(reply, self._tokens.count_tokens)
        now = asyncio.get_running_loop().time()
        return self._ledger.bill_recall(
            pieces,
            output_tokens,
            now,
            reason=reason,
            reason_of=self._recall_reason_of,
        )

    @staticmethod
    def _build_agent_reply(message: RecordedMessage, usage: facts.Usage) -> facts.ModelReplied:
        stop = facts.Stop.END
        if message.calls:
            stop = facts.Stop.CALLS
        return facts.ModelReplied(tuple(reply_parts_from_message(message)), MAIN, stop, usage)

    async def _play_outputs(self, batch: Sequence[RecordedMessage]) -> None:
        waited_before = self._waited_now
        outputs = [AgentOutput(message.answers, message.text, message.ok) for message in batch]
        await self._following.record_outputs(outputs)
        waited_for_outputs = self._waited_now - waited_before
        self._longest_admission = max(self._longest_admission, waited_for_outputs)

    async def _await_and_add_wait_time(self, work: Awaitable[T]) -> T:
        """Add how long a turn waits for this work. Background work does not count."""
        loop = asyncio.get_running_loop()
        start_time = loop.time()
        work_result = await work
        self._waited_now += loop.time() - start_time
        return work_result

    def _bill_fold_request(self, answered: StandInRequest) -> None:
        """Bill a request for a summary. Only one to the main model shares its cache."""
        pieces = self._billing_pieces_of(answered.request)
        if answered.client == MAIN:
            seconds = asyncio.get_running_loop().time()
            self._ledger.bill_cached_request(
                pieces, answered.output, seconds, self._recall_reason_of
            )
        else:
            self._ledger.bill_uncached_request(pieces, answered.output)

    def _fits_in_window(self, request: Request) -> bool:
        request_tokens = sum(tokens for _, tokens in self._billing_pieces_of(request))
        return request_tokens <= self._terms.window

    def _billing_pieces_of(self, request: Request) -> Sequence[Piece]:
        """Return the parts of a request with the tokens that each takes.

        The conversation's system prompt stands for a longer one, whose tokens are set.
        """
        if request.system == self._system_text:
            system_tokens = self._system_tokens
        else:
            system_tokens = self._tokens.count_tokens(request.system)
        return prompt_cache_billing.billing_pieces(
            request, system_tokens, self._tokens.count_tokens
        )

    async def _collect_figures(self) -> ReplayFigures:
        """Return the figures of the session, once all of it is played.

        They are compared with the same session without any folds, and with one whose whole
        history is summarised each time that the window is full.
        """
        messages = self._recording.messages
        head_tokens = self._terms.head
        bill_without_folds = prompt_cache_billing.bill_without_folds(
            messages, self._open_ledger(), self._tokens.count_tokens, head_tokens
        )
        bill_at_limit = prompt_cache_billing.bill_with_compaction_at_limit(
            messages, self._open_ledger(), self._tokens.count_tokens, head_tokens
        )
        self._waited = max(self._waited, self._waited_now)
        billed = ReplayFigures(
            name=self._recording.name,
            window=self._terms.window,
            steps=tuple(self._ledger.steps),
            sent=self._ledger.sent,
            billed=round(self._ledger.billed - self._ledger.recalls),
            recalls_billed=round(self._ledger.recalls),
            searches_billed=round(self._ledger.searches),
            recalled_pages=self._recalled,
            recall_requests=self._recall_requests,
            head_tokens=head_tokens,
            cache_read=self._ledger.cache_read,
            peak=self._ledger.peak,
            overflowed=int(self._ledger.overflowed > 0),
            plain_sent=bill_without_folds.sent,
            plain_billed=round(bill_without_folds.billed),
            at_limit_billed=round(bill_at_limit.billed),
            plain_peak=bill_without_folds.peak,
            repeats_served=self._following.repeats,
            waited=self._waited,
            longest_admission=self._longest_admission,
        )
        return await self._watching.complete_figures(billed)

    def _recall_reason_of(self, part: object) -> RecallReason:
        """Return whether a part is in a request because of a recall or a search."""
        if isinstance(part, facts.Text) and part.text == self._words_with_recall:
            return RecallReason.RECALLED
        call_id = ""
        if isinstance(part, ToolResult):
            call_id = part.call
        elif isinstance(part, facts.ToolCall):
            call_id = part.id
        if call_id.startswith(SEARCHED):
            return RecallReason.SEARCHED
        if call_id.startswith(RECALLED):
            return RecallReason.RECALLED
        return RecallReason.NO


def _rounds_of_recalls(pages: Sequence[RecalledPage]) -> Iterator[Sequence[RecalledPage]]:
    """Yield the pages that are asked for together: first those of entries, then of the history."""
    of_entries = [page for page in pages if page.tool is not ToolName.RECALL_HISTORY]
    of_history = [page for page in pages if page.tool is ToolName.RECALL_HISTORY]
    yield from group_by_round(of_entries)
    yield from group_by_round(of_history)


def _is_answered(page: RecalledPage, text_from_searches: str) -> bool:
    """Whether earlier searches have brought everything that this page is to bring."""
    if not page.seeks:
        return False
    return all(reference in text_from_searches for reference in page.seeks)


def _build_average_text_with_calls(
    messages: Sequence[RecordedMessage], tokens: TokenCounter
) -> str:
    """Return a text of the average length that the recorded agent says beside its calls."""
    lengths = []
    for message in messages:
        if message.calls:
            text_tokens = tokens.count_tokens(message.text)
            lengths.append(text_tokens + tokens.count_tokens(message.reasoning))
    if not lengths:
        return ""
    return (WORD_WITH_CALL * round(sum(lengths) / len(lengths))).strip()


class RememberingCounter:
    """A `TokenCounter` that remembers counts, because replays count texts repeatedly."""

    def __init__(self, tokens: TokenCounter) -> None:
        self.count_tokens = functools.cache(tokens.count_tokens)


def join_recordings(recordings: Sequence[RecordedSession]) -> RecordedSession:
    """Join recordings in order, with the system prompt of the first one and without times."""
    messages: list[RecordedMessage] = []
    for number, recording in enumerate(recordings):
        messages += _messages_with_unique_call_ids(recording, number)
    return RecordedSession(f"{len(recordings)} sessions as one conversation", tuple(messages))


def _messages_with_unique_call_ids(
    recording: RecordedSession, number: int
) -> Iterator[RecordedMessage]:
    """Yield a recording's messages, with its number before each call's id: two recordings may
    have the same ids. Only the first one keeps its system prompt.
    """
    for message in recording.messages:
        if message.role == "system" and number:
            continue
        calls = tuple(replace(call, id=f"{number}-{call.id}") for call in message.calls)
        answers = ""
        if message.answers:
            answers = f"{number}-{message.answers}"
        yield replace(message, calls=calls, answers=answers, time=0.0)
