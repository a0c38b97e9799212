"""Stores outputs, user messages and attachments that are too large, and shows excerpts of them.

This module asks the models; `strategies/large_output_choice.py` has the questions and
reads the answers. After a failure, and at the latest after `admission_wait` seconds, a
preview is shown.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from helix_desktop.engine import facts, request_building, text_passages
from helix_desktop.engine.ask_model import ModelInquiry, append_question, build_material_request
from helix_desktop.engine.content_recall import WHOLE_TOKENS
from helix_desktop.engine.context_policy import Policy
from helix_desktop.engine.context_usage import measure_window_without_end
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.conversation_spending import ConversationSpending
from helix_desktop.engine.document_pages import format_document_outline, parse_document_text
from helix_desktop.engine.fold_economics import SMALL_WINDOW, large_output_limit_tokens
from helix_desktop.engine.messages import ContextKind, Message, MessagePart, Request, ToolResult
from helix_desktop.engine.ports import ContentCache, EntryOrigin, ModelClient, TokenCounter
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.span_text_and_detail_sources import read_stored_text
from helix_desktop.engine.strategies import large_output_choice, markers
from helix_desktop.engine.strategies.large_output_choice import COMPACT, FULL, PREVIEW, OutputChoice
from helix_desktop.engine.strategies.text_preview import build_preview_in_thread
from helix_desktop.engine.tool_names import RECALLS
from helix_desktop.engine.view_contents import ViewContents
from helix_desktop.errors import HelixError, ModelFailed
from helix_desktop.fast_dataclass import dataclass

# A model that chooses what to keep sees why the call was made, up to this many characters
# of what was said before it and of its arguments.
QUOTED_WORDS = 500
QUOTED_ARGUMENTS = 2_000
COMPACTED_TOKENS = 1_500  # A compaction is asked to have at most this many tokens.
MOST_COMPACTED_TOKENS = 3_000
LEAST_EXCERPT_TOKENS = 30  # With fewer tokens, an excerpt of a message would say nothing.
CHARACTERS_OF_CUT_COMPACTION = 9_000  # One of even more tokens is cut to this many characters.
MOST_ANSWER_TOKENS = 1_000  # A model that chooses what to show may answer with so many tokens.
# When a model compacts a text, its window must hold the question and the answer, too.
QUESTION_TOKENS = 1_000
LEAST_MATERIAL_TOKENS = 2_000
# Assumed for text that must fit into a window, so it is fewer than there usually are.
SAFE_CHARACTERS_PER_TOKEN = 2
# Arguments by which a call asks for certain lines.
LINE_NUMBERS = re.compile(
    r'"(?:(?:first|last|start|end)_line|offset|view_range|lines|pages)"\s*:\s*["\[\d]'
)


def most_tokens_always_shown_whole(policy: Policy, window: int) -> int:
    """Return up to how many billed tokens any batch of outputs is shown whole."""
    if policy.admission == "off":
        return window
    least_limit = min(
        policy.admission_tokens,
        policy.admission_command_tokens,
        policy.admission_batch_tokens,
    )
    return large_output_limit_tokens(window, least_limit)


@dataclass(frozen=True, slots=True)
class LargeOutput:
    """An output that is not shown whole by itself. `index`: its place in the batch.
    `call`: a short form of its call, with the tool and the arguments.
    """

    index: int
    returned: facts.ToolReturned
    call: str
    text: str
    preview: str


@dataclass(frozen=True, slots=True)
class ShortenedOutput:
    """What the model sees of a large output. `asked`: the instructions of a compaction."""

    text: str
    asked: str = ""


@dataclass(slots=True)
class LargeOutputShortener:
    """Decides how much the model is shown of the outputs and messages of one conversation."""

    conversation: Conversation
    cache: ContentCache
    tokens: TokenCounter
    models: Callable[[facts.ModelRole], ModelClient | None]
    contents: ViewContents
    spending: ConversationSpending

    async def excerpt_large_outputs(
        self, batch: Sequence[facts.ToolReturned], keeps: Mapping[str, str], seqs: Sequence[int]
    ) -> tuple[facts.Fact, ...]:
        """Return the facts that show an excerpt in place of each large output of a batch, which
        has the results of one reply's calls.

        `keeps`: by call, what the agent said beforehand that it needs of a long output. `seqs`:
        the numbers of the first results, if they are recorded already.
        """
        policy = self.conversation.policy
        if policy.admission == "off":
            return ()
        large_outputs: list[LargeOutput] = []
        for index in self._indexes_of_large_outputs(batch, policy):
            large_outputs.append(await self._read_large_output(index, batch[index], policy))
        if not large_outputs:
            return ()

        may_be_full = self._indexes_of_outputs_that_fit_whole(large_outputs, batch, len(seqs))
        inquiry = self.spending.build_model_inquiry()
        shortened_outputs = await self._shorten_outputs(
            large_outputs, may_be_full, keeps, policy, inquiry
        )

        batch_name = self.conversation.new_fold_name(facts.FoldKind.EXCERPT)
        folds = []
        for output in large_outputs:
            shortened = shortened_outputs.get(output.index)
            if shortened is None:
                continue
            cover = _reference_to_result(output.index, seqs)
            fold = self._build_excerpt_fold(output, shortened, batch_name, cover)
            if fold.tokens < fold.tokens_before:
                folds.append(fold)
        return tuple(folds)

    def _indexes_of_large_outputs(
        self, batch: Sequence[facts.ToolReturned], policy: Policy
    ) -> Sequence[int]:
        """Return which outputs are too large, without those that the agent chose itself."""
        meter = self.conversation.current_meter()
        tools = [self._name_of_called_tool(returned) for returned in batch]
        command_indexes = self._indexes_of_limited_commands(batch)

        # An output that is kept whole takes no part in the choice: it counts as empty.
        calls_kept_whole = self._calls_kept_whole(batch, tools, policy)
        outputs_to_choose_from = []
        for returned in batch:
            if returned.call in calls_kept_whole:
                outputs_to_choose_from.append(replace(returned, tokens=0))
            else:
                outputs_to_choose_from.append(returned)
        return large_output_choice.find_outputs_to_shorten(
            outputs_to_choose_from, policy, meter.window, meter.factor, command_indexes
        )

    def _name_of_called_tool(self, returned: facts.ToolReturned) -> str:
        """Return which tool a result is from, or "" if no call is known."""
        call = self._find_call(returned.call)
        if call is None:
            return ""
        return call.name

    def _calls_kept_whole(
        self, batch: Sequence[facts.ToolReturned], tools: Sequence[str], policy: Policy
    ) -> set[str]:
        """Return the calls whose outputs are shown whole, since the agent asked for just these."""
        meter = self.conversation.current_meter()
        half_of_free_tokens = round(meter.free_tokens / meter.factor / 2)
        most_tokens = min(WHOLE_TOKENS, half_of_free_tokens)
        calls_kept_whole = set()
        for returned, tool in zip(batch, tools, strict=True):
            if tool in RECALLS or self._rereads_folded_output(returned, tool, most_tokens):
                calls_kept_whole.add(returned.call)

        # Whoever asks for lines has chosen them. In a small window, they would
        # otherwise be cut again and again.
        calls_for_lines = []
        tokens_of_lines = 0
        for returned in batch:
            call = self._find_call(returned.call)
            if call is not None and LINE_NUMBERS.search(call.arguments[:QUOTED_ARGUMENTS]):
                calls_for_lines.append(returned.call)
                tokens_of_lines += returned.tokens
        if tokens_of_lines <= min(most_tokens, policy.admission_tokens):
            calls_kept_whole.update(calls_for_lines)
        return calls_kept_whole

    async def excerpt_large_parts(
        self, message: facts.UserSaid, replaced_message: int = 0
    ) -> tuple[facts.Fact, ...]:
        """Return the facts for a user's message: the message, whose oversized texts are stored as
        attachments, and what shows only excerpts of them.

        `replaced_message`: an earlier message in whose place it is sent.
        """
        policy = self._expected_policy
        most_tokens = self._most_tokens_of_whole_part(message.parts, replaced_message)
        parts: list[facts.UserPart] = []
        folds: list[facts.Fact] = []
        for index, part in enumerate(message.parts):
            if part.tokens <= most_tokens:
                parts.append(part)
                continue
            attachment = await self._store_message_part(part)
            parts.append(attachment)
            is_picture = attachment.stored.media_type.startswith("image/")
            if is_picture or attachment.tokens <= most_tokens:
                continue
            fold = await self._build_message_fold(index, attachment, policy, most_tokens)
            if fold.tokens < fold.tokens_before:
                folds.append(fold)
        message_with_attachments = replace(message, parts=tuple(parts))
        return (message_with_attachments, *folds)

    async def count_sent_tokens(
        self,
        attachment: facts.Attachment,
        parts: Sequence[facts.UserPart],
        replaced_message: int = 0,
    ) -> int:
        """Return how many tokens of an attachment would be sent, with a message of these parts:
        all of them, or those of the excerpt that `excerpt_large_parts` would show.
        """
        most_tokens = self._most_tokens_of_whole_part(parts, replaced_message)
        is_picture = attachment.stored.media_type.startswith("image/")
        if is_picture or attachment.tokens <= most_tokens:
            return attachment.tokens
        excerpt = await excerpt_attachment(
            self.cache, self.tokens, attachment, self._expected_policy, most_tokens
        )
        excerpt_tokens = await asyncio.to_thread(self.tokens.count_tokens, excerpt)
        return min(excerpt_tokens, attachment.tokens)

    @property
    def _expected_policy(self) -> Policy:
        """Return the policy of the next request, which may not be recorded yet."""
        return self.conversation.policy_at(self.conversation.expected_state)

    def _most_tokens_of_whole_part(
        self, parts: Sequence[facts.UserPart], replaced_message: int
    ) -> int:
        """Return up to how many tokens, as we count them, a part of a message is sent whole.

        It is measured against the model that gets the message. Before the first message, and
        after another model was chosen, that one is not recorded yet.
        """
        policy = self._expected_policy
        meter = measure_window_without_end(
            self.conversation.expected_state, policy, replaced_message
        )
        message_tokens = sum(part.tokens for part in parts)
        is_window_small = meter.window <= SMALL_WINDOW
        if is_window_small and message_tokens * meter.factor <= meter.free_tokens:
            return message_tokens  # A share of a small window is little. What fits stays whole.
        return int(policy.oversized_share * meter.window / meter.factor)

    def _rereads_folded_output(
        self, returned: facts.ToolReturned, tool: str, most_tokens: int
    ) -> bool:
        """Whether the agent read a folded output again. An excerpt would not help then."""
        if not returned.repeat_of or returned.tokens > most_tokens:
            return False
        if large_output_choice.is_command_output(returned, tool):
            return False
        return not self.conversation.state.is_message_whole(returned.repeat_of)

    def _find_call(self, call_id: str) -> facts.ToolCall | None:
        """Return a call of the last reply."""
        branch = self.conversation.state.branch
        if not branch.steps:
            return None
        for pending in branch.calls_of_reply(branch.steps[-1]):
            if pending.id == call_id:
                return pending.call
        return None

    def _describe_purpose(self, call: facts.ToolCall | None) -> str:
        """Return a call's arguments, and the end of what the model said before it."""
        words_before_call = ""
        steps = self.conversation.state.branch.steps
        if steps:
            reply = self.conversation.fact_at(steps[-1])
            if isinstance(reply, facts.ModelReplied):
                texts = [part.text for part in reply.parts if isinstance(part, facts.Text)]
                words_before_call = " ".join(texts)
        arguments = ""
        if call is not None:
            arguments = call.arguments[:QUOTED_ARGUMENTS]
        return f"{words_before_call[-QUOTED_WORDS:]} {arguments}"

    # --- Outputs: how much of a large one is shown to the model

    async def _read_large_output(
        self, index: int, returned: facts.ToolReturned, policy: Policy
    ) -> LargeOutput:
        """Read an output, and make a preview with the parts that its call seems to be about."""
        text = await read_stored_text(self.cache, returned.output)
        call = self._find_call(returned.call)
        purpose = self._describe_purpose(call)
        limit = large_output_limit_tokens(
            self.conversation.current_meter().window, policy.admission_tokens
        )
        # In a small window, an excerpt of the usual length would save nothing.
        preview_tokens = min(policy.preview_tokens, limit // 2)
        preview = await build_preview_in_thread(text, preview_tokens, purpose)
        if call is None:
            return LargeOutput(index, returned, "a tool", text, preview)
        call_as_text = f"{call.name} {markers.summarise_arguments(call.arguments)}"
        return LargeOutput(index, returned, call_as_text, text, preview)

    async def _shorten_outputs(
        self,
        large_outputs: Sequence[LargeOutput],
        may_be_full: Sequence[int],
        keeps: Mapping[str, str],
        policy: Policy,
        inquiry: ModelInquiry,
    ) -> dict[int, ShortenedOutput]:
        """Return, by index, what is shown of each output that is not shown in full: what a model
        kept of it (a compaction), or a preview.

        `may_be_full`: the outputs that could be shown whole.
        """
        compactions: dict[int, str] = {}
        choices: Mapping[int, OutputChoice] = {}
        # If the model fails or takes too long, the outputs are shown as previews.
        with suppress(TimeoutError, HelixError):
            async with asyncio.timeout(policy.admission_wait):
                choices = await self._choose_what_to_show(
                    large_outputs, may_be_full, keeps, policy, inquiry
                )
                await self._compact_outputs(large_outputs, choices, inquiry, compactions)

        shortened_outputs: dict[int, ShortenedOutput] = {}
        for output in large_outputs:
            choice = choices.get(output.index, OutputChoice(PREVIEW))
            compaction = compactions.get(output.index)
            if compaction is not None:
                asked = keeps.get(output.returned.call, "") or "as asked"
                shortened_outputs[output.index] = ShortenedOutput(compaction, asked)
            elif choice.what != FULL:
                shortened_outputs[output.index] = ShortenedOutput(output.preview)
        return shortened_outputs

    async def _compact_outputs(
        self,
        large_outputs: Sequence[LargeOutput],
        choices: Mapping[int, OutputChoice],
        inquiry: ModelInquiry,
        compactions: dict[int, str],
    ) -> None:
        """Add the chosen compactions to `compactions`, all made side by side.

        They are added one by one, so that those which are done in time remain.
        """
        tasks = []
        for output in large_outputs:
            choice = choices[output.index]
            if choice.what == COMPACT:
                tasks.append(
                    self._add_compaction_of_output(output, choice.keep, inquiry, compactions)
                )
        await asyncio.gather(*tasks)

    async def _choose_what_to_show(
        self,
        large_outputs: Sequence[LargeOutput],
        may_be_full: Sequence[int],
        keeps: Mapping[str, str],
        policy: Policy,
        inquiry: ModelInquiry,
    ) -> dict[int, OutputChoice]:
        """Return, by index, what to show of each output, as the policy says who chooses: the
        main model, the agent in advance with `keep`, or nobody, which means a preview.
        """
        if policy.admission == "ask":
            return await self._ask_model_for_choices(large_outputs, may_be_full, inquiry)
        if policy.admission != "ahead":
            return {output.index: OutputChoice(PREVIEW) for output in large_outputs}
        choices = {}
        for output in large_outputs:
            keep = keeps.get(output.returned.call, "").strip()
            choices[output.index] = _choose_by_keep_argument(output, keep, may_be_full)
        return choices

    async def _ask_model_for_choices(
        self,
        large_outputs: Sequence[LargeOutput],
        may_be_full: Sequence[int],
        inquiry: ModelInquiry,
    ) -> dict[int, OutputChoice]:
        """Ask the main model about the whole batch, over the conversation's prefix."""
        main_model = self.models(facts.ModelRole.MAIN)
        if main_model is None:
            return {output.index: OutputChoice(PREVIEW) for output in large_outputs}

        # The model counts from 1.
        previews: dict[int, tuple[str, str]] = {}
        for output in large_outputs:
            previews[output.index + 1] = (output.call, output.preview)
        numbers_that_may_be_full = [index + 1 for index in may_be_full]
        question = large_output_choice.output_choice_question(previews, numbers_that_may_be_full)

        request = await self._build_request_without_outputs(large_outputs)
        asking_request = append_question(
            request, question, facts.Purpose.ADMISSION, MOST_ANSWER_TOKENS
        )
        most_seconds = self.conversation.policy.admission_wait
        answer = await inquiry.ask_for_text(main_model, asking_request, most_seconds)
        choices_by_number = large_output_choice.parse_output_choices(
            answer, list(previews), numbers_that_may_be_full
        )
        choices_by_index: dict[int, OutputChoice] = {}
        for number, choice in choices_by_number.items():
            choices_by_index[number - 1] = choice
        return choices_by_index

    async def _build_request_without_outputs(self, large_outputs: Sequence[LargeOutput]) -> Request:
        """Build the conversation's next request with a word in place of each of these outputs.

        Each call needs a result in the request, also those whose outputs are asked about.
        """
        view = self.conversation.current_view()
        contents = await self.contents.read_view_contents(view)
        request = request_building.build_request(view, contents)
        word_by_call = {output.returned.call: "(long; see below)" for output in large_outputs}
        *messages_before, last_message = request.messages
        complete_message = _fill_missing_results(last_message, word_by_call)
        messages_before.append(complete_message)
        return replace(request, messages=tuple(messages_before))

    def _indexes_of_outputs_that_fit_whole(
        self,
        large_outputs: Sequence[LargeOutput],
        batch: Sequence[facts.ToolReturned],
        recorded_count: int,
    ) -> list[int]:
        """Return which large outputs the window could hold, if the smallest are taken first.

        `recorded_count`: how many outputs of the batch the meter already counts.
        """
        meter = self.conversation.current_meter()
        large_indexes = {output.index for output in large_outputs}
        free_tokens = meter.free_tokens / meter.factor
        for index, returned in enumerate(batch):
            is_recorded = index < recorded_count
            is_large = index in large_indexes
            if is_recorded and is_large:
                free_tokens += returned.tokens
            elif not is_recorded and not is_large:
                free_tokens -= returned.tokens

        fitting_indexes = []
        for output in sorted(large_outputs, key=lambda output: output.returned.tokens):
            free_tokens -= output.returned.tokens
            if free_tokens > 0:
                fitting_indexes.append(output.index)
        return sorted(fitting_indexes)

    async def _add_compaction_of_output(
        self,
        output: LargeOutput,
        keep: str,
        inquiry: ModelInquiry,
        compactions: dict[int, str],
    ) -> None:
        """Add what the fast model kept of an output. If it fails, the preview stays."""
        client = self._model_that_compacts()
        if client is None:
            return
        question = large_output_choice.compaction_question(output.call, keep, COMPACTED_TOKENS)
        material = await asyncio.to_thread(self._cut_for_model_window, output.text, keep, client)
        request = build_material_request(
            material, question, facts.Purpose.COMPACTION, MOST_COMPACTED_TOKENS
        )
        wait_seconds = self.conversation.policy.admission_wait
        try:
            compaction = await inquiry.ask_for_text(client, request, wait_seconds)
        except ModelFailed:
            return
        # A model may ignore how long its answer should be.
        if self.tokens.count_tokens(compaction) > MOST_COMPACTED_TOKENS:
            compaction = compaction[:CHARACTERS_OF_CUT_COMPACTION]
        if compaction:
            compactions[output.index] = compaction

    def _model_that_compacts(self) -> ModelClient | None:
        return self.models(facts.ModelRole.FAST) or self.models(facts.ModelRole.MAIN)

    def _cut_for_model_window(self, text: str, keep: str, client: ModelClient) -> str:
        """Return what fits into the model's window: the beginning, passages with the
        words of `keep`, and the end.
        """
        free_tokens = self._window_of_model(client) - MOST_COMPACTED_TOKENS - QUESTION_TOKENS
        material_tokens = max(LEAST_MATERIAL_TOKENS, free_tokens)
        most_characters = material_tokens * SAFE_CHARACTERS_PER_TOKEN
        if len(text) <= most_characters:
            return text

        # The beginning takes half of the room, the passages and the end a quarter each.
        beginning = text[: most_characters // 2]
        lines = text.removesuffix("\n").split("\n")
        passage_tokens = most_characters // 4 // SAFE_CHARACTERS_PER_TOKEN
        passages = text_passages.find_passages(self.tokens, lines, keep, passage_tokens)
        end = text[-most_characters // 4 :]
        left_out_characters = len(text) - most_characters
        left_out = f"[… {left_out_characters:,} characters of all {len(lines):,} lines left out"
        return f"{beginning}\n{left_out}; in them:]\n{passages}\n{left_out} …]\n{end}"

    def _window_of_model(self, client: ModelClient) -> int:
        """Return the window of the fast or the main model, or the policy's if it is unknown."""
        role = facts.ModelRole.MAIN
        if self.models(facts.ModelRole.FAST) is client:
            role = facts.ModelRole.FAST
        chosen_model = self.conversation.state.settings.model_for_role(role)
        if chosen_model is not None and chosen_model.window > 0:
            return chosen_model.window
        return self.conversation.policy.window

    def _build_excerpt_fold(
        self, output: LargeOutput, shortened: ShortenedOutput, batch: str, cover: facts.PartRef
    ) -> facts.Folded:
        """Return the fold that shows a shortened output in place of the whole one."""
        returned = output.returned
        excerpt = large_output_choice.format_excerpt(
            returned.output, returned.tokens, shortened.text, asked=shortened.asked
        )
        why = self._why_output_is_large(returned)
        writer_name = ""
        if shortened.asked:
            why += "; the agent said what to keep"
            writer = self._model_that_compacts()
            if writer is not None:
                writer_name = writer.model_name
        fold = self._build_fold_of_part(
            cover, excerpt, returned.tokens, returned.output.digest, why
        )
        return replace(fold, model=writer_name, batch=batch, asked=shortened.asked)

    def _why_output_is_large(self, returned: facts.ToolReturned) -> str:
        """Say which limit an output exceeds, in tokens as its own are counted."""
        meter = self.conversation.current_meter()
        limit = self.conversation.policy.admission_tokens
        if self._indexes_of_limited_commands([returned]):
            limit = min(limit, self.conversation.policy.admission_command_tokens)
        billed_limit = large_output_limit_tokens(meter.window, limit)
        if returned.tokens * meter.factor <= billed_limit:
            return f"the output has {returned.tokens:,} tokens, and the outputs of this step were too long together"
        counted_limit = round(billed_limit / meter.factor)
        return f"the output has {returned.tokens:,} tokens, more than the {counted_limit:,} that are shown whole"

    def _indexes_of_limited_commands(self, batch: Sequence[facts.ToolReturned]) -> list[int]:
        """Return which outputs of a batch have the lower limit, because a command printed them."""
        tools: list[str] = []
        for returned in batch:
            tool = self._name_of_called_tool(returned)
            tools.append(tool)
        meter = self.conversation.current_meter()
        head_tokens = meter.parts[ContextKind.SYSTEM]
        return large_output_choice.find_command_outputs_to_limit(
            batch, tools, meter.used, meter.window, head_tokens
        )

    def _build_fold_of_part(
        self, cover: facts.PartRef, excerpt: str, tokens_before: int, entry: Digest, why: str
    ) -> facts.Folded:
        """Return a fold of one part of a message. `entry`: where the whole of it is stored."""
        kind = facts.FoldKind.EXCERPT
        return facts.Folded(
            fold=self.conversation.new_fold_name(kind),
            kind=kind,
            cover=cover,
            text=excerpt,
            tokens=self.tokens.count_tokens(excerpt),
            tokens_before=tokens_before,
            entries=(entry,),
            why=why,
        )

    # --- The user's messages: storing large parts and showing excerpts of them

    async def _store_message_part(self, part: facts.UserPart) -> facts.Attachment:
        if isinstance(part, facts.Attachment):
            return part
        content = part.text.encode("utf-8", "replace")
        stored = await self.cache.store_content(content, EntryOrigin("user", "message"))
        return facts.Attachment("message", stored, part.tokens)

    async def _build_message_fold(
        self, index: int, part: facts.Attachment, policy: Policy, most_tokens: int
    ) -> facts.Folded:
        excerpt = await excerpt_attachment(self.cache, self.tokens, part, policy, most_tokens)
        share = f"{policy.oversized_share:.0%}"
        why = f"the attachment “{part.name}” has {part.tokens:,} tokens, over {share} of the context window"
        # The message is not recorded yet. Number 0 stands for it.
        cover = facts.PartRef(0, index)
        return self._build_fold_of_part(cover, excerpt, part.tokens, part.stored.digest, why)


async def excerpt_attachment(
    cache: ContentCache,
    tokens: TokenCounter,
    part: facts.Attachment,
    policy: Policy,
    most_tokens: int,
) -> str:
    """Return what a model is shown of an attachment too large for its window: the outline of a
    document, or a preview of another text.

    `most_tokens`: from which size a part of a message is too large for this window.
    """
    text = await read_stored_text(cache, part.stored)
    # Nobody asked for a certain part of it yet, so more is shown than of an output.
    excerpt_tokens = min(policy.preview_tokens * 4, most_tokens // 2)
    excerpt = await _excerpt_text_of_attachment(part, text, excerpt_tokens)
    # A preview of Chinese has more tokens than characters suggest.
    while tokens.count_tokens(excerpt) > most_tokens and excerpt_tokens > LEAST_EXCERPT_TOKENS:
        excerpt_tokens //= 2
        excerpt = await _excerpt_text_of_attachment(part, text, excerpt_tokens)
    return excerpt


def _format_outline(stored: facts.Stored, text: str, outline_tokens: int) -> str:
    """Return the outline of a document's text, or an empty string if it is not one."""
    document = parse_document_text(text)
    if document is None:
        return ""
    return format_document_outline(document, stored.digest.hex, outline_tokens)


async def _excerpt_text_of_attachment(
    part: facts.Attachment, text: str, excerpt_tokens: int
) -> str:
    heading = f"[Attachment: {part.name}]"
    if part.document is not None:
        # In a thread: of 500 pages, it takes longer than a window may stand still.
        outline = await asyncio.to_thread(_format_outline, part.stored, text, excerpt_tokens)
        if outline:
            return f"{heading}\n{outline}"
    preview = await build_preview_in_thread(text, excerpt_tokens)
    excerpt = large_output_choice.format_excerpt(part.stored, part.tokens, preview)
    return f"{heading}\n{excerpt}"


def _reference_to_result(index: int, recorded_seqs: Sequence[int]) -> facts.PartRef:
    """Name a result by its number if it is recorded, or by its place behind the recorded ones."""
    if index < len(recorded_seqs):
        return facts.PartRef(recorded_seqs[index])
    return facts.PartRef(-(index - len(recorded_seqs)))


def _choose_by_keep_argument(
    output: LargeOutput, keep: str, may_be_full: Sequence[int]
) -> OutputChoice:
    """Return what to show of an output if the agent said beforehand what to keep of it.

    If it wants everything and that would not fit, it gets a preview.
    """
    if not keep:
        return OutputChoice(PREVIEW)
    if not large_output_choice.asks_for_everything(keep):
        return OutputChoice(COMPACT, keep)
    if output.index in may_be_full:
        return OutputChoice(FULL)
    return OutputChoice(PREVIEW)


def _fill_missing_results(message: Message, text_by_call: Mapping[str, str]) -> Message:
    """Return the last message with a note in place of each result, which is not recorded yet."""
    parts: list[MessagePart] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            text = text_by_call.get(part.call, "(done)")
            parts.append(replace(part, text=text, ok=True))
        else:
            parts.append(part)
    return replace(message, parts=tuple(parts))
