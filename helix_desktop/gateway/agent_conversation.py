"""Keeps one conversation of a connected agent open: turns its messages into facts and
its view into what is sent on.
"""

import asyncio
import base64
import binascii
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import field, replace
from typing import Any, ClassVar

from helix_desktop import token_counting
from helix_desktop.documents.document_kinds import find_document_kind
from helix_desktop.documents.document_reading import read_document_pages
from helix_desktop.engine import facts
from helix_desktop.engine.agent_additions import AGENT_BLOCK, SYSTEM_MESSAGE
from helix_desktop.engine.agent_documents import AgentDocument, read_agent_document
from helix_desktop.engine.ask_model import SYSTEM as ASKED_ALONE
from helix_desktop.engine.context_usage import estimate_billed_tokens, estimate_usage_of_request
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.document_pages import format_document_text
from helix_desktop.engine.fold_kinds import KINDS_WRITTEN_BY_MODEL
from helix_desktop.engine.foreign_agent_facts import AgentFollower, AgentOutput
from helix_desktop.engine.messages import Delta, Image, Reply, Request, TextDelta, View
from helix_desktop.engine.ports import EntryOrigin, TokenCounter
from helix_desktop.engine.session import Session
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state.fold_covers import first_and_last
from helix_desktop.engine.tool_result_reading import describe_call_as_source
from helix_desktop.engine.view_contents import ViewContents
from helix_desktop.errors import ConfigFileMistake, InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.conversation_matching import KnownMessages
from helix_desktop.gateway.conversations_port import Arrival, AskAgentModel, Replied
from helix_desktop.gateway.history_summarized_by_agent import (
    SummaryAtBeginning,
    build_fold_by_agent,
    find_seq_before_summary_request,
)
from helix_desktop.gateway.outputs_shortened_by_agent import (
    ShortenedOutput,
    ShortenedOutputsFinder,
)
from helix_desktop.gateway.view_entries import ViewEntries, ViewEntriesBuilder
from helix_desktop.json_values import object_at, parse_json_or_none
from helix_desktop.protocols.gateway_message import (
    Piece,
    PieceKind,
    ProtocolMessage,
    Speaker,
    slice_text,
    words_of_piece,
)
from helix_desktop.providers.model_prices import (
    ModelInfo,
    merge_model_knowledge,
    price_usage_of_agent,
)
from helix_desktop.workbench import system_prompt_and_settings
from helix_desktop.workbench.model_roles import LEAST_LEARNED_WINDOW
from helix_desktop.workbench.open_questions import FOLDER, UNKNOWN_SEQ, OpenQuestions
from helix_desktop.workbench.open_workbench import Workbench

# An agent's request waits so long for the text of a document in it.
DOCUMENT_SECONDS = 10.0
NO_TEXT = "[This page is a picture.]"
LONG_TEXT_CHARACTERS = 32_000  # Longer texts may make a fold due.
# Characters. Tokens of longer texts are counted in a thread, as every count waits for others.
COUNTED_HERE = 4_000


@dataclass(frozen=True, slots=True)
class ConnectedAgentModel:
    """Asks the agent's own model to write folds, with the agent's own key."""

    has_own_history: ClassVar[bool] = True
    conversation: str
    model_name: str
    ask: AskAgentModel
    # The model of the conversation, with the prices that the user has set.
    find_main_model: Callable[[], facts.ModelSet | None] = lambda: None
    # Keeps a note of the question while it is asked.
    remember: Callable[[Request, str], AbstractContextManager[None]] = lambda *_: nullcontext()

    async def stream_reply(self, request: Request) -> AsyncIterator[Delta]:
        """Ask the question in the request's last message: behind the conversation that the agent
        has sent already, or alone if the request says so.
        """
        last_message = request.messages[-1]
        texts = [part.text for part in last_message.parts if isinstance(part, facts.Text)]
        if request.system == ASKED_ALONE:
            question = "\n\n".join(texts)
            system = request.system
        else:
            question = texts[-1]
            system = ""

        request_to_agent_model = replace(request, model=self.model_name)
        with self.remember(request_to_agent_model, question):
            text, usage, answering_model = await self.ask(
                self.conversation, question, system, request.max_output
            )

        yield TextDelta(text)
        parts: list[facts.Text] = []
        if text:
            parts.append(facts.Text(text))
        main_model = self.find_main_model()
        priced_usage = price_usage_of_agent(usage, answering_model, self.model_name, main_model)
        yield Reply(tuple(parts), facts.Stop.END, priced_usage, self.model_name)


@dataclass(slots=True)
class _NotesOfQuestions:
    """Keeps a note of what each question to the agent's model costs until it is answered.

    `session`: of the conversation. It is set once the session is open, before anything is asked.
    """

    questions: OpenQuestions
    conversation: str
    token_counter: TokenCounter
    session: Session | None = None

    def find_main_model(self) -> facts.ModelSet | None:
        if self.session is None:
            return None
        settings = self.session.conversation.state.settings
        return settings.model_for_role(facts.ModelRole.MAIN)

    def remember_question(self, request: Request, question: str) -> AbstractContextManager[None]:
        tokens = self.token_counter.count_tokens(question)
        after_seq = UNKNOWN_SEQ
        if self.session is not None:
            after_seq = self.session.conversation.state.seq
        is_behind_conversation = request.system != ASKED_ALONE
        if is_behind_conversation and self.session is not None:
            state = self.session.conversation.state
            tokens = estimate_billed_tokens(state.counted_tokens + tokens, state)
        return self.questions.remember_until_answered(
            self.conversation, request.purpose, request.model, facts.Usage(tokens), after_seq
        )


@dataclass(frozen=True, slots=True)
class LearnedWindow:
    """The window that a refusal has named, and the larger one that it has refuted.

    It holds as long as nothing else is known of the model than what it has refuted.
    """

    refuted: int
    window: int


@dataclass(slots=True)
class OpenAgentConversation:
    bench: Workbench
    session: Session
    follower: AgentFollower
    contents: ViewContents
    last_entries: ViewEntries | None = None  # The entries of the last view that was computed.
    # System prompt, tools, model and policy of the last request.
    applied_settings: tuple[object, ...] = ()
    # By model, the windows that refusals have named.
    learned_windows: dict[str, LearnedWindow] = field(default_factory=dict)

    @classmethod
    async def open_by_name(
        cls, bench: Workbench, name: str, ask: AskAgentModel
    ) -> "OpenAgentConversation":
        """Open the conversation of that name. The agent's own model writes its folds."""
        questions = OpenQuestions(bench.workspace.folder / FOLDER)
        notes = _NotesOfQuestions(questions, name, bench.token_counter)

        def writer_of_folds(model: str) -> ConnectedAgentModel:
            return ConnectedAgentModel(
                name, model, ask, notes.find_main_model, notes.remember_question
            )

        session = await bench.open_session(name, writer=writer_of_folds)
        notes.session = session

        cache = bench.workspace.cache
        follower = AgentFollower(session.conversation, session.folding, cache, bench.token_counter)
        opened = cls(bench, session, follower, ViewContents(cache))
        opened.learned_windows = _find_learned_windows(session.conversation)
        return opened

    @property
    def conversation(self) -> Conversation:
        return self.follower.conversation

    @asynccontextmanager
    async def write_in_one_transaction(self) -> AsyncIterator["OpenAgentConversation"]:
        """Yield this conversation so that everything appended meanwhile is written in
        one transaction.
        """
        async with self.conversation.append_together() as draft:
            yield replace(self, follower=self.follower.follower_for_draft(draft))

    def exclusions_made_after(self, seq: int) -> list[facts.Excluded]:
        """Return the facts that take out again what the user has taken out since the fact `seq`.

        They are needed when the conversation goes back to it: what the user took out of the
        context stays out of it, wherever the agent goes on.
        """
        state = self.conversation.state
        excluded_then = state.past_moment(seq).branch.exclusions
        exclusions: list[facts.Excluded] = []
        for part in state.record.taken_out_parts():
            first_seq, _ = first_and_last(part)
            if part not in excluded_then and first_seq <= seq:
                exclusions.append(facts.Excluded(part))
        return exclusions

    def failed_folds_after(self, seq: int) -> list[facts.FoldFailed]:
        """Return the failures to write a summary since the fact `seq` that no success has followed.

        A copy of the conversation up to that fact needs them: the same run of an agent goes on
        there, and would otherwise pay for as many attempts again.
        """
        failures: list[facts.FoldFailed] = []
        for recorded in self.conversation.state.facts[seq:]:
            fact = recorded.fact
            if isinstance(fact, facts.FoldFailed):
                if fact.kind in KINDS_WRITTEN_BY_MODEL:
                    failures.append(fact)
            elif isinstance(fact, facts.Folded | facts.BreakerClosed):
                failures = [failure for failure in failures if failure.kind is not fact.kind]
        return failures

    @property
    def has_taken_out_parts(self) -> bool:
        for _ in self.conversation.state.record.taken_out_parts():
            return True
        return False

    def was_answered_before(self, seq: int) -> bool:
        """Whether a model answered up to this fact. An agent's program may also write a reply
        itself, in the beginning that all of its sessions have.
        """
        for recorded in self.conversation.state.facts[:seq]:
            if isinstance(recorded.fact, facts.ModelReplied) and recorded.fact.model:
                return True
        return False

    def view_at_fact(self, seq: int) -> View:
        """Return the view of the past moment of this fact, without what was taken out since."""
        state = self.conversation.state
        past_moment = state.past_moment(seq, state.record.taken_out_parts())
        return past_moment.get_view()

    async def rewind_and_keep_exclusions(self, seq: int) -> None:
        await self.conversation.append_facts(facts.Rewound(seq), *self.exclusions_made_after(seq))
        self.last_entries = None

    async def update_entries(self, known_messages: KnownMessages) -> ViewEntries:
        """Compute what each message of the agent is sent as now (an *entry*), reusing the entries
        of the last time that are equal.
        """
        view = self.conversation.current_view()
        seqs = tuple(known_messages.seqs)
        entries, has_only_known = await self.build_entries_of_view(view, seqs, self.last_entries)
        if has_only_known:
            self.last_entries = entries
        else:  # The view has more than the agent's messages, so the next one cannot build on it.
            self.last_entries = None
        return entries

    async def build_entries_of_view(
        self, view: View, seqs: Sequence[int], before: ViewEntries | None = None
    ) -> tuple[ViewEntries, bool]:
        """Return what each message is sent as in a view, and whether the view has nothing else.

        `seqs`: the last fact of each message. `before`: the entries of the last view. Stored
        contents that are shown are read as they turn out to be needed, and then the entries are
        built once more.
        """
        contents: dict[facts.Stored, str | Image] = {}
        while True:
            builder = ViewEntriesBuilder(self.conversation, seqs, contents)
            entries = await builder.build_entries(view, before)
            if not builder.missing:
                return entries, builder.whole
            view_of_missing = replace(view, blocks=tuple(builder.missing.values()))
            contents |= await self.contents.read_view_contents(view_of_missing)

    async def apply_request_settings(self, arrival: Arrival) -> None:
        """Append facts for system prompt, tools, policy and model where a request differs from
        the one before it.
        """
        conversation = self.conversation
        settings = conversation.state.settings
        settings_facts: list[facts.Fact] = []
        if settings.system.text != arrival.system:
            tokens = await self.count_tokens_of_texts([arrival.system])
            settings_facts.append(facts.SystemSet(arrival.system, tokens))
        if settings.tools.tools != arrival.tools:
            texts = [f"{tool.name}{tool.description}{tool.schema}" for tool in arrival.tools]
            tokens = await self.count_tokens_of_texts(texts)
            settings_facts.append(facts.ToolsOffered(arrival.tools, tokens))
        settings_facts.append(self._policy_to_apply(fold=arrival.fold))
        await self._note_model_to_go_on_with(arrival)
        settings_facts.append(self._model_to_apply(arrival))

        new_facts: list[facts.Fact] = []
        for fact in settings_facts:
            if not conversation.state.has_settings_of_fact(fact):
                new_facts.append(fact)
        if new_facts:
            await conversation.append_facts(*new_facts)
        self.applied_settings = self.settings_of_arrival(arrival)

    async def _note_model_to_go_on_with(self, arrival: Arrival) -> None:
        """Record the agent's model as the conversation's own when the agent begins to use it, if a
        provider that is set up here has it.

        Whoever goes on in the window gets the model that has answered until then. A model that the
        user has chosen there since stays until the agent changes its own.
        """
        info = self._find_model_that_is_set_up(arrival)
        if info is None:
            return
        state = self.conversation.state
        recorded_model = state.settings.model_for_role(facts.ModelRole.MAIN)
        # Recorded by the name that `_find_model_of_arrival` gives it.
        is_in_use = (
            recorded_model is not None and recorded_model.model == f"{arrival.wire}/{arrival.model}"
        )
        if is_in_use and state.own_model:
            return
        if state.own_model != info.name:
            await self.bench.append_conversation_model(self.conversation, info.name)

    def _find_model_that_is_set_up(self, arrival: Arrival) -> ModelInfo | None:
        with suppress(ConfigFileMistake):  # The mistake is shown where models are chosen.
            return self.bench.models.find_model_at(arrival.address, arrival.model)
        return None

    def _model_to_apply(self, arrival: Arrival) -> facts.ModelSet:
        model = self._find_model_of_arrival(arrival)
        learned = self.learned_windows.get(model.model)
        if learned is not None and learned.refuted == model.window:
            return replace(model, window=learned.window)
        return model

    def _find_model_of_arrival(self, arrival: Arrival) -> facts.ModelSet:
        """Return the model that a request asks for, with the effort and cache lifetime it names.

        What the user has set for it, or its provider has reported, counts for agents as well.
        """
        info = self._find_model_that_is_set_up(arrival)
        if info is None:
            info = merge_model_knowledge(arrival.wire, arrival.model)
        # Replies name their model by the protocol, whatever the provider is called here.
        info = replace(info, provider=arrival.wire)
        model = replace(info.as_model_set(facts.ModelRole.MAIN), effort=arrival.effort)
        if arrival.cache_seconds:
            return replace(model, cache_seconds=arrival.cache_seconds)
        return model

    async def learn_window(self, window: int) -> None:
        """Use the window that a refusal has named for the model of the last request, if it is
        smaller than what was assumed. Otherwise every later request would be refused, too.
        """
        model = self.conversation.state.settings.model_for_role(facts.ModelRole.MAIN)
        if model is None or not LEAST_LEARNED_WINDOW <= window < model.window:
            return
        _note_refuted_window(self.learned_windows, model, window)
        await self.conversation.append_facts(replace(model, window=window))

    async def count_tokens_of_texts(self, texts: Sequence[str]) -> int:
        """Count tokens, in a thread if texts are long or the vocabulary is being
        loaded. Counting again is free.
        """
        is_short = sum(map(len, texts)) <= COUNTED_HERE
        if is_short and token_counting.is_any_vocabulary_loaded():
            return self._count_tokens_now(texts)
        return await asyncio.to_thread(self._count_tokens_now, texts)

    def _count_tokens_now(self, texts: Sequence[str]) -> int:
        tokens = 0
        for text in texts:
            tokens += self.bench.token_counter.count_tokens(text)
        return tokens

    def _policy_to_apply(self, *, fold: bool) -> facts.PolicySet:
        """Return the workspace's policy, or the one that folds nothing: also if there is a mistake in
        the workspace's, which would otherwise keep its agents' requests from being recorded.
        """
        settings = self.bench.workspace.settings
        if not fold or system_prompt_and_settings.find_policy_mistake(settings):
            return system_prompt_and_settings.build_policy_fact("none", {})
        return system_prompt_and_settings.build_policy_fact(settings.preset, settings.policy)

    def settings_of_arrival(self, arrival: Arrival) -> tuple[object, ...]:
        """Return what the facts of a request's settings are made of, to compare it."""
        settings = self.bench.workspace.settings
        return (
            arrival.system,
            arrival.tools,
            arrival.model,
            arrival.effort,
            arrival.fold,
            arrival.cache_seconds,
            settings.preset,
            settings.policy,
        )

    def cannot_make_fold_due(self, new_messages: Sequence[ProtocolMessage]) -> bool:
        """Whether the new messages are so short that nothing has to be folded (shortened) before
        they are sent: some words of the user, and results of calls that wait for them.
        """
        pieces: list[Piece] = []
        for message in new_messages:
            if message.speaker is not Speaker.USER:
                return False
            pieces.extend(message.pieces)
        awaited_ids = {call.id for call in self.conversation.state.branch.running_calls}
        for piece in pieces:
            is_text = piece.kind is PieceKind.TEXT
            is_awaited_result = piece.kind is PieceKind.RESULT and piece.id in awaited_ids
            if not is_text and not is_awaited_result:
                return False
        texts = [piece.text for piece in pieces]
        if sum(map(len, texts)) > LONG_TEXT_CHARACTERS:
            return False
        new_tokens = self._count_tokens_now(texts)
        return self.session.folding.can_skip_folding(new_tokens)

    async def find_shortened_outputs(
        self,
        known_messages: KnownMessages,
        wire: str,
        messages: Sequence[ProtocolMessage],
        known_count: int,
    ) -> list[ShortenedOutput]:
        """Return the outputs that the agent has shortened itself in a request that goes on with
        this conversation. See `ShortenedOutputsFinder`.
        """
        cache = self.bench.workspace.cache
        finder = ShortenedOutputsFinder(self.conversation, cache, known_messages)
        return await finder.compare_request(wire, messages, known_count)

    async def build_agent_folds(
        self, shortened_outputs: Sequence[ShortenedOutput]
    ) -> list[facts.Folded]:
        """Return the facts that show outputs as the agent has shortened them itself."""
        kind = facts.FoldKind.EXCERPT
        batch = self.conversation.new_fold_name(kind)
        folds: list[facts.Folded] = []
        for shortened in shortened_outputs:
            if shortened.is_whole:
                continue
            returned = shortened.output.returned
            fold_name = self.conversation.new_fold_name(kind)
            tokens = await self.count_tokens_of_texts([shortened.text])
            fold = facts.Folded(
                fold=fold_name,
                kind=kind,
                cover=facts.PartRef(shortened.output.seq),
                text=shortened.text,
                tokens=tokens,
                tokens_before=returned.tokens,
                batch=batch,
                entries=(returned.output.digest,),
                why="the agent itself sends this old output in a shorter form",
                is_by_agent=True,
            )
            folds.append(fold)
        return folds

    async def append_summary_by_agent(
        self, message: ProtocolMessage, summary: SummaryAtBeginning, agent: str
    ) -> int:
        """Record that the agent goes on from its own summary, which is in this message, instead
        of all messages so far. Return the last fact of the message.

        What the provider has sealed of it is recorded behind the fold, for the agent. The request
        with which the agent asked for the summary is left behind.
        """
        seq_before_request = find_seq_before_summary_request(
            self.conversation.state.branch, summary.text, sealed=summary.sealed
        )
        if seq_before_request:
            await self.rewind_and_keep_exclusions(seq_before_request)
        if self.conversation.state.branch.turn.running:
            await self.conversation.append_facts(facts.TurnEnded(facts.TurnEnd.DONE))
        tokens = await self.count_tokens_of_texts([summary.text])
        fold = build_fold_by_agent(self.conversation, agent, summary.text, tokens)
        await self.conversation.append_facts(fold)
        other_pieces = [piece for piece in message.pieces if piece != summary.piece]
        if other_pieces:
            await self._append_one_message(message, other_pieces, steering=False)
        self.last_entries = None
        return self.conversation.state.seq

    # --- Recording a request's messages as facts

    async def append_messages(
        self, messages: Sequence[ProtocolMessage], seq_before: int
    ) -> list[int]:
        """Append the messages as facts. Return for each message the number of its last fact.

        `seq_before`: the last fact of the message before them. The results of one reply's calls
        may come in several messages. They wait until all are there, since they are recorded
        together.
        """
        # Counted here at once, in a thread: the counter remembers what it has counted.
        await self.count_tokens_of_texts(_countable_texts(messages))
        stored_outputs = await self._store_call_outputs(messages)
        waiting_outputs: list[_WaitingOutput] = []
        seqs_by_position: dict[int, int] = {}
        for position, message in enumerate(messages):
            answered_ids = {output.result.call for output in waiting_outputs}
            results, other_pieces = self._split_off_awaited_results(
                message, answered_ids, stored_outputs
            )
            # Results of one reply are recorded together, before anything else is said.
            if not results or message.speaker is Speaker.ASSISTANT:
                await self._append_waiting_outputs(waiting_outputs, seqs_by_position)
            for result in results:
                waiting_outputs.append(_WaitingOutput(position, result))
            if not other_pieces:
                continue

            await self._append_waiting_outputs(waiting_outputs, seqs_by_position)
            await self._append_one_message(message, other_pieces, steering=bool(results))
            seqs_by_position[position] = self.conversation.state.seq
            await asyncio.sleep(0)  # Let other agents' requests be handled.
        await self._append_waiting_outputs(waiting_outputs, seqs_by_position)

        # A message without facts of its own has the last one before it.
        last_seqs: list[int] = []
        last_seq = seq_before
        for position in range(len(messages)):
            last_seq = max(last_seq, seqs_by_position.get(position, seq_before))
            last_seqs.append(last_seq)
        return last_seqs

    async def _store_call_outputs(
        self, messages: Sequence[ProtocolMessage]
    ) -> "dict[tuple[str, str], _StoredOutput]":
        """Store what calls have returned in the cache, all together. Return the stored entries by
        the call's id and the text, since some servers use the same ids in each reply.
        """
        calls_by_id = {call.id: call.call for call in self.conversation.state.branch.running_calls}
        storing_by_output: dict[tuple[str, str], Coroutine[Any, Any, _StoredOutput]] = {}
        for message in messages:
            for piece in message.pieces:
                if piece.kind is PieceKind.CALL:
                    calls_by_id[piece.id] = facts.ToolCall(piece.id, piece.name, piece.text)
                    continue
                if piece.kind is not PieceKind.RESULT or piece.id not in calls_by_id:
                    continue
                output = (piece.id, piece.text)
                if output not in storing_by_output:
                    call = calls_by_id[piece.id]
                    storing_by_output[output] = self._store_call_output(piece, call)

        # Together, so that they are written to the disk with one sync.
        stored_outputs = await asyncio.gather(*storing_by_output.values())
        return dict(zip(storing_by_output, stored_outputs, strict=True))

    async def _store_call_output(self, result: Piece, call: facts.ToolCall) -> "_StoredOutput":
        """Store what a call has returned: the text, and the images beside it."""
        source = describe_call_as_source(call.arguments)
        images: list[facts.Stored] = []
        for address in result.images:
            media_type, _, encoded = address.removeprefix("data:").partition(";base64,")
            image = await asyncio.to_thread(_decode_base64_or_keep_text, encoded)
            origin = EntryOrigin(call.name, source, media_type)
            images.append(await self.bench.workspace.cache.store_content(image, origin))
        for document in result.documents:
            attachment = await self._attach_agent_document(document, call.name)
            images.append(attachment.stored)
            if attachment.document is not None:
                images.append(attachment.document.original)
        text = await self.follower.store_output(result.text, call)
        return _StoredOutput(text, tuple(images))

    def _split_off_awaited_results(
        self,
        message: ProtocolMessage,
        answered_ids: set[str],
        stored_outputs: "Mapping[tuple[str, str], _StoredOutput]",
    ) -> tuple[list[AgentOutput], list[Piece]]:
        """Return a message's results of calls that wait for one, and its other pieces.

        `answered_ids`: calls whose results were found in messages before it.
        """
        running_ids = {call.id for call in self.conversation.state.branch.running_calls}
        awaited_ids = running_ids - answered_ids
        results: list[AgentOutput] = []
        other_pieces: list[Piece] = []
        for piece in message.pieces:
            if piece.kind is PieceKind.RESULT and piece.id in awaited_ids:
                awaited_ids.discard(piece.id)
                output = AgentOutput(piece.id, piece.text, piece.ok)
                stored = stored_outputs.get((piece.id, piece.text))
                if stored is not None:
                    output = replace(output, stored=stored.text, images=stored.images)
                results.append(output)
            else:
                other_pieces.append(piece)
        return results, other_pieces

    async def _append_waiting_outputs(
        self, waiting: "list[_WaitingOutput]", seqs_to_fill: dict[int, int]
    ) -> None:
        """Record the outputs that wait for each other, if there are any, and empty the list.

        `seqs_to_fill` gets the fact of each message whose result was recorded.
        """
        if not waiting:
            return
        seq_before = self.conversation.state.seq
        results = [output.result for output in waiting]
        await self.follower.record_outputs(results)
        positions_by_call = {output.result.call: output.position for output in waiting}
        for recorded in self.conversation.state.facts[seq_before:]:
            if not isinstance(recorded.fact, facts.ToolReturned):
                continue
            position = positions_by_call.get(recorded.fact.call)
            if position is not None:
                seqs_to_fill[position] = recorded.seq
        # What was recorded behind the outputs belongs to the last of the messages.
        seqs_to_fill[waiting[-1].position] = self.conversation.state.seq
        waiting.clear()

    async def _append_one_message(
        self, message: ProtocolMessage, pieces: Sequence[Piece], *, steering: bool
    ) -> None:
        """Append a message that is made of these pieces. `steering`: the user said it while the
        agent was at work.
        """
        if message.speaker is Speaker.ASSISTANT:
            stop = facts.Stop.END
            if message.pieces_of_kind(PieceKind.CALL):
                stop = facts.Stop.CALLS
            reply = facts.ModelReplied(parts_from_pieces(pieces), model="", stop=stop)
            await self.follower.record_reply(reply, self.conversation.state.seq)
            return

        is_system = message.speaker is Speaker.SYSTEM
        parts: list[facts.UserPart] = []
        for piece in pieces:
            part = await self._build_user_part(piece)
            if is_system:  # The agent wrote this, and not its user.
                part = _as_words_of_system(part)
            parts.append(part)
        await self.follower.record_user_message(tuple(parts), steering=steering or is_system)

    async def _build_user_part(self, piece: Piece) -> facts.UserPart:
        """Return the part of a user's message. Pictures and unknown blocks become cache entries."""
        cache = self.bench.workspace.cache
        if piece.kind is PieceKind.IMAGE:
            image_origin = EntryOrigin("user", "image", piece.media_type)
            image = await asyncio.to_thread(_decode_base64_or_keep_text, piece.text)
            stored_image = await cache.store_content(image, image_origin)
            return facts.Attachment("image", stored_image, 0)
        document = _document_of_piece(piece)
        if document is not None:
            return await self._attach_agent_document(document, "user")
        if piece.kind is PieceKind.OTHER:
            block_origin = EntryOrigin("user", AGENT_BLOCK, "application/json")
            block = piece.text.encode("utf-8", "replace")
            stored_block = await cache.store_content(block, block_origin)
            tokens = self.bench.token_counter.count_tokens(piece.text)
            return facts.Attachment(AGENT_BLOCK, stored_block, tokens)
        return facts.Text(piece.text)

    async def _attach_agent_document(self, document: AgentDocument, tool: str) -> facts.Attachment:
        """Store a document with its text, which stands for it wherever the file cannot be sent.

        What cannot be read, or not soon enough, has a sentence in place of its text.
        """
        cache = self.bench.workspace.cache
        text = document.words_instead
        origin: facts.DocumentOrigin | None = None
        if document.encoded:
            content = await asyncio.to_thread(_decode_base64_or_keep_text, document.encoded)
            original_origin = EntryOrigin(tool, document.name, document.media_type)
            original = await cache.store_content(content, original_origin)
            origin = facts.DocumentOrigin(original)
            text = await _read_agent_document_text(document, content, original.digest)
        if document.details:
            text = f"{text}\n[{document.details}]"
        encoded_text = text.encode("utf-8", "replace")
        text_origin = EntryOrigin(tool, document.name, "text/plain")
        stored = await cache.store_content(encoded_text, text_origin)
        tokens = await self.count_tokens_of_texts([text])
        return facts.Attachment(document.name, stored, tokens, origin)

    async def with_estimated_usage(self, replied: Replied) -> Replied:
        """Return a reply that broke off with an estimate of the tokens that its provider, which
        reports them at the end, did not report.
        """
        usage = replied.usage
        texts = [piece.text for piece in replied.pieces if piece.kind is not PieceKind.IMAGE]
        output = max(usage.output, await self.count_tokens_of_texts(texts))
        if usage.input:  # It was reported at the beginning, so only the reply is estimated.
            return replace(replied, usage=replace(usage, output=output))

        sent = estimate_usage_of_request(self.conversation.state)
        estimated = replace(usage, input=sent.input, cache_read=sent.cache_read, output=output)
        return replace(replied, usage=estimated)

    def build_agent_reply(self, replied: Replied, *, is_side: bool = False) -> facts.ModelReplied:
        """Return the reply under the model name that the agent requests, under which
        things are learned.
        """
        requested_model = replied.model
        main_model = self.conversation.state.settings.model_for_role(facts.ModelRole.MAIN)
        if main_model is not None and not is_side:
            requested_model = main_model.model
        parts = parts_from_pieces(replied.pieces)
        usage = price_usage_of_agent(replied.usage, replied.model, requested_model, main_model)
        return facts.ModelReplied(
            parts=parts,
            model=requested_model,
            stop=replied.stop,
            usage=usage,
            seconds=replied.seconds,
            raw=replied.raw,
        )


@dataclass(frozen=True, slots=True)
class _StoredOutput:
    """What a call has returned, in the cache."""

    text: facts.Stored
    images: tuple[facts.Stored, ...]


@dataclass(frozen=True, slots=True)
class _WaitingOutput:
    """A call's output that is not recorded yet. `position`: that of its message."""

    position: int
    result: AgentOutput


def _find_learned_windows(conversation: Conversation) -> dict[str, LearnedWindow]:
    """Return, by model, the windows that refusals have named in this conversation.

    A window that the user has made smaller looks the same until it grows again, which one that a
    refusal has named never does.
    """
    learned_windows: dict[str, LearnedWindow] = {}
    last_models: dict[str, facts.ModelSet] = {}
    for settings in conversation.state.record.settings:
        model = settings.model_for_role(facts.ModelRole.MAIN)
        if model is None:
            continue
        last_model = last_models.get(model.model, model)
        if 0 < model.window < last_model.window:
            _note_refuted_window(learned_windows, last_model, model.window)
        elif model.window > last_model.window:
            learned_windows.pop(model.model, None)
        last_models[model.model] = model
    return learned_windows


def _note_refuted_window(
    learned_windows: dict[str, LearnedWindow], model: facts.ModelSet, window: int
) -> None:
    """Note that a model has a smaller window than it was used with."""
    refuted = model.window
    learned_before = learned_windows.get(model.model)
    if learned_before is not None and learned_before.window == model.window:
        refuted = learned_before.refuted  # A refusal has named a smaller one again.
    learned_windows[model.model] = LearnedWindow(refuted, window)


def _countable_texts(messages: Sequence[ProtocolMessage]) -> list[str]:
    """Return the texts whose tokens are counted: all but those of pictures."""
    texts: list[str] = []
    for message in messages:
        for piece in message.pieces:
            if piece.kind is not PieceKind.IMAGE:
                texts.append(piece.text)
    return texts


def _document_of_piece(piece: Piece) -> AgentDocument | None:
    if piece.kind is not PieceKind.OTHER:
        return None
    return read_agent_document(object_at(parse_json_or_none(piece.text)))


async def _read_agent_document_text(
    document: AgentDocument, content: bytes, original: Digest
) -> str:
    """Return a document's text, or why there is none. The agent waits meanwhile."""
    if document.media_type.startswith("text/"):
        return f"[Attachment: {document.name}]\n{content.decode('utf-8', 'replace')}"
    kind = await asyncio.to_thread(find_document_kind, document.name, content)
    if kind is None:
        return f"{document.words_instead}\n[The original: {original.hex}]"
    try:
        async with asyncio.timeout(DOCUMENT_SECONDS):
            read = await read_document_pages(document.name, content, kind)
    except InvalidInput as error:
        return f"[{error}]\n[The original: {original.hex}]"
    except TimeoutError:
        return f"[{document.name} was not read in time.]\n[The original: {original.hex}]"
    pages = [(page.title, page.text or NO_TEXT) for page in read.pages]
    return format_document_text(document.name, kind.unit, read.unit_count, original, pages)


def _as_words_of_system(part: facts.UserPart) -> facts.UserPart:
    """Return a text with the mark of what an agent's own instructions say between messages."""
    if isinstance(part, facts.Text):
        return replace(part, text=SYSTEM_MESSAGE + part.text)
    return part


def parts_from_pieces(pieces: Sequence[Piece]) -> tuple[facts.ReplyPart, ...]:
    """Return the parts of a reply as they are recorded. A reply has at least one, if empty."""
    parts: list[facts.ReplyPart] = []
    for piece in pieces:
        if piece.kind is PieceKind.CALL:
            # A conversation has thousands of calls of the same few tools.
            tool_name = sys.intern(piece.name)
            parts.append(facts.ToolCall(piece.id, tool_name, piece.text))
        elif piece.kind is PieceKind.REASONING and piece.text:
            parts.append(facts.Reasoning(piece.text))
        elif piece.kind is PieceKind.TEXT and piece.text:
            parts.append(facts.Text(piece.text))
        elif not piece.has_own_text:
            parts.append(facts.Text(words_of_piece(piece)))
    if not parts:
        parts.append(facts.Text(""))
    return tuple(parts)


def _decode_base64_or_keep_text(text: str) -> bytes:
    """Decode base64 in slices. Text that is not base64 is kept as its bytes."""
    content = bytearray()
    try:
        for part in slice_text(text):
            content += base64.b64decode(part, validate=True)
    except (binascii.Error, ValueError):
        return text.encode("utf-8", "surrogatepass")
    return bytes(content)
