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
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.conversation_spending import ConversationSpending
from helix_desktop.engine.document_pages import format_document_outline, parse_document_text
from helix_desktop.engine.fold_economics import SMALL_WINDOW
from helix_desktop.engine.messages import ContextKind, Message, MessagePart, ToolResult
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
COMPACTED = 1_500  # A compaction with more than twice this many tokens is cut.
QUESTION_OUTPUT = 1_000
# Arguments by which a call asks for certain lines.
LINE_NUMBERS = re.compile(
    r'"(?:(?:first|last|start|end)_line|offset|view_range|lines|pages)"\s*:\s*["\[\d]'
)


@dataclass(frozen=True, slots=True)
class LargeOutput:
    index: int
    returned: facts.ToolReturned
    call: str  # A short form of the call: its tool and arguments.
    text: str
    preview: str


@dataclass(frozen=True, slots=True)
class ShownOutput:
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
        """Return excerpts, to append with the batch. `seqs`: results already recorded.

        `keeps`: by call, what the agent said beforehand that it needs of a long output.
        """
        policy = self.conversation.policy
        if policy.admission == "off":
            return ()
        indexes = self._indexes_of_large_outputs(batch, policy)
        held = [await self._read_large_output(index, batch[index], policy) for index in indexes]
        if not held:
            return ()
        fitting = self._indexes_of_outputs_that_fit_whole(held, batch, len(seqs))
        asking = self.spending.build_model_inquiry()
        shown = await self._choose_text_by_output(held, fitting, keeps, policy, asking)
        # Recorded results are named by their numbers, the others by their place behind those.
        recorded = [facts.PartRef(seq) for seq in seqs]
        to_append = [facts.PartRef(-place) for place in range(len(batch) - len(seqs))]
        covers = recorded + to_append
        batch_name = self.conversation.new_fold_name(facts.FoldKind.EXCERPT)
        folds = []
        for output in held:
            if output.index not in shown:
                continue
            cover = covers[output.index]
            fold = self._build_excerpt_fold(output, shown[output.index], batch_name, cover)
            if fold.tokens < fold.tokens_before:
                folds.append(fold)
        return tuple(folds)

    def _indexes_of_large_outputs(
        self, batch: Sequence[facts.ToolReturned], policy: Policy
    ) -> Sequence[int]:
        """Return which outputs are too large, without those that the agent chose itself."""
        meter = self.conversation.current_meter()
        tools = []
        for returned in batch:
            call = self._find_call(returned.call)
            tools.append("" if call is None else call.name)
        commands = large_output_choice.find_command_outputs_to_limit(
            batch, tools, meter.used, meter.window, meter.parts[ContextKind.SYSTEM]
        )
        kept_whole = self._calls_kept_whole(batch, tools, policy)
        sizes = []
        for returned in batch:
            if returned.call in kept_whole:
                sizes.append(replace(returned, tokens=0))
            else:
                sizes.append(returned)
        return large_output_choice.find_outputs_to_shorten(
            sizes, policy, meter.window, meter.factor, commands
        )

    def _calls_kept_whole(
        self, batch: Sequence[facts.ToolReturned], tools: Sequence[str], policy: Policy
    ) -> set[str]:
        """Return the calls whose outputs are shown whole, since the agent asked for just these."""
        meter = self.conversation.current_meter()
        most = min(WHOLE_TOKENS, round(meter.free_tokens / meter.factor / 2))
        kept_whole = set()
        for returned, tool in zip(batch, tools, strict=True):
            if tool in RECALLS or self._rereads_folded_output(returned, tool, most):
                kept_whole.add(returned.call)
        # Whoever asks for lines has chosen them. In a small window, they would
        # otherwise be cut again and again.
        outputs_of_lines = []
        for returned in batch:
            call = self._find_call(returned.call)
            if call is not None and LINE_NUMBERS.search(call.arguments[:QUOTED_ARGUMENTS]):
                outputs_of_lines.append(returned)
        if sum(returned.tokens for returned in outputs_of_lines) <= min(
            most, policy.admission_tokens
        ):
            kept_whole.update(returned.call for returned in outputs_of_lines)
        return kept_whole

    async def excerpt_large_parts(self, said: facts.UserSaid) -> tuple[facts.Fact, ...]:
        """Return the message with its oversized parts stored, and their excerpts."""
        meter = self.conversation.current_meter()
        policy = self.conversation.policy
        message_tokens = sum(part.tokens for part in said.parts) * meter.factor
        is_window_small = meter.window <= SMALL_WINDOW
        if is_window_small and message_tokens <= meter.free_tokens:
            return (said,)  # A share of a small window is little. What fits stays whole.
        limit = policy.oversized_share * meter.window / meter.factor
        parts: list[facts.UserPart] = []
        folds: list[facts.Fact] = []
        for index, part in enumerate(said.parts):
            if part.tokens <= limit:
                parts.append(part)
                continue
            attachment = await self._store_message_part(part)
            parts.append(attachment)
            is_picture = attachment.stored.media_type.startswith("image/")
            if not is_picture and attachment.tokens > limit:
                folds.append(await self._build_message_fold(index, attachment, policy))
        return (replace(said, parts=tuple(parts)), *folds)

    def _rereads_folded_output(self, returned: facts.ToolReturned, tool: str, most: int) -> bool:
        """Whether the agent read a folded output again. An excerpt would not help then."""
        if not returned.repeat_of or returned.tokens > most:
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
        said = ""
        steps = self.conversation.state.branch.steps
        if steps:
            reply = self.conversation.fact_at(steps[-1])
            if isinstance(reply, facts.ModelReplied):
                texts = [part.text for part in reply.parts if isinstance(part, facts.Text)]
                said = " ".join(texts)
        arguments = ""
        if call is not None:
            arguments = call.arguments[:QUOTED_ARGUMENTS]
        return f"{said[-QUOTED_WORDS:]} {arguments}"

    # --- Outputs: how much of a large one is shown to the model

    async def _read_large_output(
        self, index: int, returned: facts.ToolReturned, policy: Policy
    ) -> LargeOutput:
        text = await read_stored_text(self.cache, returned.output)
        call = self._find_call(returned.call)
        purpose = self._describe_purpose(call)
        preview = await build_preview_in_thread(text, policy.preview_tokens, purpose)
        about = "a tool"
        if call is not None:
            about = f"{call.name} {markers.summarise_arguments(call.arguments)}"
        return LargeOutput(index, returned, about, text, preview)

    async def _choose_text_by_output(
        self,
        held: Sequence[LargeOutput],
        fitting: Sequence[int],
        keeps: Mapping[str, str],
        policy: Policy,
        asking: ModelInquiry,
    ) -> dict[int, ShownOutput]:
        """Return what is shown of each output that is not shown in full."""
        compactions: dict[int, str] = {}
        choices: Mapping[int, OutputChoice] = {}
        # If the model fails or takes too long, the outputs are shown as previews.
        with suppress(TimeoutError, HelixError):
            async with asyncio.timeout(policy.admission_wait):
                choices = await self._choose_what_to_show(held, fitting, keeps, policy, asking)
                await self._compact_outputs(held, choices, asking, compactions)
        shown = {}
        for output in held:
            choice = choices.get(output.index, OutputChoice(PREVIEW))
            if output.index in compactions:
                asked = keeps.get(output.returned.call, "") or "as asked"
                shown[output.index] = ShownOutput(compactions[output.index], asked)
            elif choice.what != FULL:
                shown[output.index] = ShownOutput(output.preview)
        return shown

    async def _compact_outputs(
        self,
        held: Sequence[LargeOutput],
        choices: Mapping[int, OutputChoice],
        asking: ModelInquiry,
        done: dict[int, str],
    ) -> None:
        """Add to `done` the chosen compactions, all made side by side."""
        compacting = []
        for output in held:
            choice = choices[output.index]
            if choice.what == COMPACT:
                compacting.append(self._add_compaction_of_output(output, choice.keep, asking, done))
        await asyncio.gather(*compacting)

    async def _choose_what_to_show(
        self,
        held: Sequence[LargeOutput],
        fitting: Sequence[int],
        keeps: Mapping[str, str],
        policy: Policy,
        asking: ModelInquiry,
    ) -> dict[int, OutputChoice]:
        if policy.admission == "ask":
            return await self._ask_model_for_choices(held, fitting, asking)
        if policy.admission != "ahead":
            return {output.index: OutputChoice(PREVIEW) for output in held}
        choices = {}
        for output in held:
            keep = keeps.get(output.returned.call, "").strip()
            choices[output.index] = _choose_by_keep_argument(output, keep, fitting)
        return choices

    async def _ask_model_for_choices(
        self, held: Sequence[LargeOutput], fitting: Sequence[int], asking: ModelInquiry
    ) -> dict[int, OutputChoice]:
        """Ask the main model about the whole batch, over the conversation's prefix."""
        main = self.models(facts.ModelRole.MAIN)
        if main is None:
            return {output.index: OutputChoice(PREVIEW) for output in held}
        # A model counts from 1.
        previews = {output.index + 1: (output.call, output.preview) for output in held}
        numbers = [index + 1 for index in fitting]
        view = self.conversation.current_view()
        request = request_building.build_request(view, await self.contents.read_view_contents(view))
        shown = {output.returned.call: "(long; see below)" for output in held}
        last_message = _fill_held_results(request.messages[-1], shown)
        answered = replace(request, messages=(*request.messages[:-1], last_message))
        question = large_output_choice.output_choice_question(previews, numbers)
        asked = append_question(answered, question, facts.Purpose.ADMISSION, QUESTION_OUTPUT)
        answer = await asking.ask_for_text(main, asked, self.conversation.policy.admission_wait)
        chosen = large_output_choice.parse_output_choices(answer, list(previews), numbers)
        return {number - 1: choice for number, choice in chosen.items()}

    def _indexes_of_outputs_that_fit_whole(
        self, held: Sequence[LargeOutput], batch: Sequence[facts.ToolReturned], recorded: int
    ) -> list[int]:
        """The smallest come first. `recorded`: how many outputs the meter already counts."""
        meter = self.conversation.current_meter()
        large = {output.index for output in held}
        free = meter.free_tokens / meter.factor
        free += sum(output.returned.tokens for output in held if output.index < recorded)
        for index, returned in enumerate(batch):
            if index >= recorded and index not in large:
                free -= returned.tokens
        fitting = []
        for output in sorted(held, key=lambda output: output.returned.tokens):
            free -= output.returned.tokens
            if free > 0:
                fitting.append(output.index)
        return sorted(fitting)

    async def _add_compaction_of_output(
        self, output: LargeOutput, keep: str, asking: ModelInquiry, done: dict[int, str]
    ) -> None:
        """Add to `done` what the fast model kept. If it fails, the preview stays."""
        client = self._model_that_compacts()
        if client is None:
            return
        question = large_output_choice.compaction_question(output.call, keep, COMPACTED)
        material = await asyncio.to_thread(self._cut_for_model_window, output.text, keep, client)
        purpose = facts.Purpose.COMPACTION
        request = build_material_request(material, question, purpose, COMPACTED * 2)
        wait = self.conversation.policy.admission_wait
        try:
            text = await asking.ask_for_text(client, request, wait)
        except ModelFailed:
            return
        if self.tokens.count_tokens(text) > COMPACTED * 2:
            text = text[: COMPACTED * 6]
        if text:
            done[output.index] = text

    def _model_that_compacts(self) -> ModelClient | None:
        return self.models(facts.ModelRole.FAST) or self.models(facts.ModelRole.MAIN)

    def _cut_for_model_window(self, text: str, keep: str, client: ModelClient) -> str:
        """Return what fits into the model's window: the beginning, passages with the
        words of `keep`, and the end.
        """
        role = facts.ModelRole.MAIN
        if self.models(facts.ModelRole.FAST) is client:
            role = facts.ModelRole.FAST
        chosen = self.conversation.state.settings.model_for_role(role)
        window = self.conversation.policy.window
        if chosen is not None and chosen.window > 0:
            window = chosen.window
        room_tokens = max(2_000, window - COMPACTED * 2 - 1_000)
        room = room_tokens * 2  # Only two characters per token, to be safe.
        if len(text) <= room:
            return text
        lines = text.removesuffix("\n").split("\n")
        passages = text_passages.find_passages(self.tokens, lines, keep, room // 8)
        left_out = f"[… {len(text) - room:,} characters of all {len(lines):,} lines left out"
        beginning = text[: room // 2]
        end = text[-room // 4 :]
        return f"{beginning}\n{left_out}; in them:]\n{passages}\n{left_out} …]\n{end}"

    def _build_excerpt_fold(
        self, output: LargeOutput, shown: ShownOutput, batch: str, cover: facts.PartRef
    ) -> facts.Folded:
        returned = output.returned
        excerpt = large_output_choice.format_excerpt(
            returned.output, returned.tokens, shown.text, asked=shown.asked
        )
        why = f"an output of {returned.tokens:,} tokens"
        writer = None
        if shown.asked:
            why += ", shortened at the agent's request"
            writer = self._model_that_compacts()
        fold = self._build_fold_of_part(
            cover, excerpt, returned.tokens, returned.output.digest, why
        )
        if writer is not None:
            fold = replace(fold, model=writer.model_name)
        return replace(fold, batch=batch, asked=shown.asked)

    def _build_fold_of_part(
        self, cover: facts.PartRef, shown: str, before: int, entry: Digest, why: str
    ) -> facts.Folded:
        kind = facts.FoldKind.EXCERPT
        return facts.Folded(
            fold=self.conversation.new_fold_name(kind),
            kind=kind,
            cover=cover,
            text=shown,
            tokens=self.tokens.count_tokens(shown),
            tokens_before=before,
            entries=(entry,),
            why=why,
        )

    # --- The user's messages: storing large parts and showing excerpts of them

    async def _store_message_part(self, part: facts.UserPart) -> facts.Attachment:
        if isinstance(part, facts.Attachment):
            return part
        stored = await self.cache.store_content(
            part.text.encode("utf-8", "replace"), EntryOrigin("user", "message")
        )
        return facts.Attachment("message", stored, part.tokens)

    async def _build_message_fold(
        self, index: int, part: facts.Attachment, policy: Policy
    ) -> facts.Folded:
        shown = await excerpt_attachment(self.cache, part, policy)
        share = f"{policy.oversized_share:.0%}"
        why = f"{part.name}: {part.tokens:,} tokens, over {share} of the context window"
        return self._build_fold_of_part(
            facts.PartRef(0, index), shown, part.tokens, part.stored.digest, why
        )


async def excerpt_attachment(cache: ContentCache, part: facts.Attachment, policy: Policy) -> str:
    """Return what a model is shown of an attachment too large for its window: the outline of a
    document, or a preview of another text.
    """
    whole = await read_stored_text(cache, part.stored)
    room = policy.preview_tokens * 4
    heading = f"[Attachment: {part.name}]"
    if part.document is not None:
        document = parse_document_text(whole)
        if document is not None:
            outline = format_document_outline(document, part.stored.digest.hex, room)
            return f"{heading}\n{outline}"
    preview = await build_preview_in_thread(whole, room)
    excerpt = large_output_choice.format_excerpt(part.stored, part.tokens, preview)
    return f"{heading}\n{excerpt}"


def _choose_by_keep_argument(
    output: LargeOutput, keep: str, may_be_full: Sequence[int]
) -> OutputChoice:
    if not keep:
        return OutputChoice(PREVIEW)
    if not large_output_choice.asks_for_everything(keep):
        return OutputChoice(COMPACT, keep)
    if output.index in may_be_full:
        return OutputChoice(FULL)
    return OutputChoice(PREVIEW)


def _fill_held_results(message: Message, shown: Mapping[str, str]) -> Message:
    """Return the last message with a note in place of results that are held back."""
    parts: list[MessagePart] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            parts.append(replace(part, text=shown.get(part.call, "(done)"), ok=True))
        else:
            parts.append(part)
    return replace(message, parts=tuple(parts))
