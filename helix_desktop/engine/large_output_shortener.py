"""Stores outputs, user messages and attachments that are too large, and shows excerpts of them.

This module asks the models; `strategies/large_output_choice.py` has the questions and
reads the answers. After a failure, and at the latest after `admission_wait` seconds, a
preview is shown.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from helix_desktop.engine import facts, request_building, text_passages
from helix_desktop.engine.ask_model import ModelInquiry, append_question, build_material_request
from helix_desktop.engine.content_recall import WHOLE_TOKENS
from helix_desktop.engine.context_policy import Policy
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.conversation_spending import ConversationSpending
from helix_desktop.engine.document_pages import format_document_outline, parse_document_text
from helix_desktop.engine.fold_economics import SMALL_WINDOW
from helix_desktop.engine.messages import ContextKind, Message, ToolResult
from helix_desktop.engine.ports import ContentCache, EntryOrigin, ModelClient, TokenCounter
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.span_text_and_detail_sources import read_stored_text
from helix_desktop.engine.strategies import large_output_choice, markers
from helix_desktop.engine.strategies.large_output_choice import COMPACT, FULL, PREVIEW, OutputChoice
from helix_desktop.engine.strategies.text_preview import build_preview_in_thread
from helix_desktop.engine.tool_call_parsing import PendingCall
from helix_desktop.engine.tool_names import RECALLS
from helix_desktop.engine.view_contents import ViewContents
from helix_desktop.errors import HelixError, ModelFailed
from helix_desktop.fast_dataclass import dataclass

# A model that chooses what to keep sees why the call was made, up to this many characters of each.
QUOTED_WORDS, QUOTED_ARGUMENTS = 500, 2_000
COMPACTED = 1_500  # A compaction with more than twice this many tokens is cut.
QUESTION_OUTPUT = 1_000
LINE_NUMBERS = re.compile(
    r'"(?:(?:first|last|start|end)_line|offset|view_range|lines|pages)"\s*:\s*["\[\d]'
)  # Asked for.


@dataclass(frozen=True, slots=True)
class LargeOutput:
    index: int
    returned: facts.ToolReturned
    call: str  # A short form of the call: its tool and arguments.
    text: str
    preview: str


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
        """Return excerpts, to append with the batch. `seqs`: results already recorded."""
        policy = self.conversation.policy
        if policy.admission == "off":
            return ()
        meter = self.conversation.current_meter()
        calls = self._calls_of_last_reply()
        tools = {call.id: call.call.name for call in calls}
        own = {call for call, tool in tools.items() if tool in RECALLS}
        names = [tools.get(one.call, "") for one in batch]
        head = meter.parts[ContextKind.SYSTEM]
        commands = large_output_choice.find_command_outputs_to_limit(
            batch, names, meter.used, meter.window, head
        )
        most = min(WHOLE_TOKENS, round(meter.free_tokens / meter.factor / 2))
        own |= {
            one.call
            for one, name in zip(batch, names, strict=True)
            if self._rereads_folded_output(one, name, most)
        }
        chosen = {
            call.id for call in calls if LINE_NUMBERS.search(call.call.arguments[:QUOTED_ARGUMENTS])
        }
        # Whoever asks for lines has chosen them. In a small window, they would
        # otherwise be cut again and again.
        if sum(one.tokens for one in batch if one.call in chosen) <= min(
            most, policy.admission_tokens
        ):
            own |= chosen
        sizes = [
            replace(returned, tokens=0) if returned.call in own else returned for returned in batch
        ]
        large = large_output_choice.find_outputs_to_shorten(
            sizes, policy, meter.window, meter.factor, commands
        )
        held = [await self._read_large_output(index, batch[index], policy) for index in large]
        if not held:
            return ()
        fitting = self._indexes_of_outputs_that_fit_whole(held, batch, len(seqs))
        shown = await self._choose_text_and_instructions_by_output(
            held, fitting, keeps, policy, self.spending.build_model_inquiry()
        )
        batch_name = self.conversation.new_fold_name(facts.FoldKind.EXCERPT)
        covers = [
            *map(facts.PartRef, seqs),
            *(facts.PartRef(-at) for at in range(len(batch) - len(seqs))),
        ]
        folds = [
            self._build_excerpt_fold(one, *shown[one.index], batch_name, covers[one.index])
            for one in held
            if one.index in shown
        ]
        return tuple(fold for fold in folds if fold.tokens < fold.tokens_before)

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
            kept = await self._store_message_part(part) if part.tokens > limit else part
            parts.append(kept)
            if (
                isinstance(kept, facts.Attachment)
                and kept.tokens > limit
                and not kept.stored.media_type.startswith("image/")
            ):
                folds.append(await self._build_message_fold(index, kept, policy))
        return (replace(said, parts=tuple(parts)), *folds)

    def _rereads_folded_output(self, returned: facts.ToolReturned, tool: str, most: int) -> bool:
        """Whether the agent read a folded output again. An excerpt would not help then."""
        if (
            not returned.repeat_of
            or returned.tokens > most
            or large_output_choice.is_command_output(returned, tool)
        ):
            return False
        return not self.conversation.state.is_message_whole(returned.repeat_of)

    def _calls_of_last_reply(self) -> Sequence[PendingCall]:
        branch = self.conversation.state.branch
        return branch.calls_of_reply(branch.steps[-1]) if branch.steps else ()

    def _join_last_words_and_arguments(self, call: facts.ToolCall | None) -> str:
        """Return a call's purpose: its arguments, and the end of what was said before it."""
        steps = self.conversation.state.branch.steps
        reply = self.conversation.fact_at(steps[-1]) if steps else None
        parts = reply.parts if isinstance(reply, facts.ModelReplied) else ()
        said = [part.text for part in parts if isinstance(part, facts.Text)]
        return (
            f"{' '.join(said)[-QUOTED_WORDS:]} {call.arguments[:QUOTED_ARGUMENTS] if call else ''}"
        )

    # --- Outputs: how much of a large one is shown to the model

    async def _read_large_output(
        self, index: int, returned: facts.ToolReturned, policy: Policy
    ) -> LargeOutput:
        text = await read_stored_text(self.cache, returned.output)
        call = {call.id: call.call for call in self._calls_of_last_reply()}.get(returned.call)
        short = await build_preview_in_thread(
            text, policy.preview_tokens, self._join_last_words_and_arguments(call)
        )
        about = f"{call.name} {markers.summarise_arguments(call.arguments)}" if call else "a tool"
        return LargeOutput(index, returned, about, text, short)

    async def _choose_text_and_instructions_by_output(
        self,
        held: Sequence[LargeOutput],
        fitting: Sequence[int],
        keeps: Mapping[str, str],
        policy: Policy,
        asking: ModelInquiry,
    ) -> dict[int, tuple[str, str]]:
        """Return the text and instructions of each output that is not shown in full."""
        shown = {one.index: (one.preview, "") for one in held}
        compactions: dict[int, str] = {}
        full: list[int] = []

        async def decide() -> None:
            chosen = {one.index: OutputChoice(PREVIEW) for one in held}
            if policy.admission == "ask":
                chosen = await self._ask_model_for_choices(held, fitting, asking)
            elif policy.admission == "ahead":
                words = ((one, keeps.get(one.returned.call, "").strip()) for one in held)
                chosen = {
                    one.index: _choose_by_keep_argument(one, keep, fitting) for one, keep in words
                }
            full.extend(index for index, choice in chosen.items() if choice.what == FULL)
            wanted = [one for one in held if chosen[one.index].what == COMPACT]
            await asyncio.gather(
                *(
                    self._add_compaction_of_output(one, chosen[one.index].keep, asking, compactions)
                    for one in wanted
                )
            )

        try:
            async with asyncio.timeout(policy.admission_wait):
                await decide()
        except (TimeoutError, HelixError):
            pass  # If the model fails, the outputs are shown as previews.
        for one in held:
            if one.index in compactions:
                shown[one.index] = (
                    compactions[one.index],
                    keeps.get(one.returned.call, "") or "as asked",
                )
        return {index: text for index, text in shown.items() if index not in full}

    async def _ask_model_for_choices(
        self, held: Sequence[LargeOutput], fitting: Sequence[int], asking: ModelInquiry
    ) -> dict[int, OutputChoice]:
        """Ask the main model about the whole batch, over the conversation's prefix."""
        if (main := self.models(facts.ModelRole.MAIN)) is None:
            return {one.index: OutputChoice(PREVIEW) for one in held}
        previews = {one.index + 1: (one.call, one.preview) for one in held}
        numbers = [index + 1 for index in fitting]
        view = self.conversation.current_view()
        request = request_building.build_request(view, await self.contents.read_view_contents(view))
        shown = {one.returned.call: "(long; see below)" for one in held}
        answered = replace(
            request,
            messages=(*request.messages[:-1], _fill_held_results(request.messages[-1], shown)),
        )
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
        large = {one.index for one in held}
        free = meter.free_tokens / meter.factor + sum(
            one.returned.tokens for one in held if one.index < recorded
        )
        free -= sum(
            returned.tokens
            for at, returned in enumerate(batch)
            if at >= recorded and at not in large
        )
        fitting = []
        for one in sorted(held, key=lambda one: one.returned.tokens):
            free -= one.returned.tokens
            if free > 0:
                fitting.append(one.index)
        return sorted(fitting)

    async def _add_compaction_of_output(
        self, one: LargeOutput, keep: str, asking: ModelInquiry, done: dict[int, str]
    ) -> None:
        """Add to `done` what the fast model kept. If it fails, the preview stays."""
        if (client := self._model_that_compacts()) is None:
            return
        question = large_output_choice.compaction_question(one.call, keep, COMPACTED)
        material = await asyncio.to_thread(self._cut_for_model_window, one.text, keep, client)
        request = build_material_request(
            material, question, facts.Purpose.COMPACTION, COMPACTED * 2
        )
        try:
            text = await asking.ask_for_text(
                client, request, self.conversation.policy.admission_wait
            )
        except ModelFailed:
            return
        if text:
            done[one.index] = (
                text if self.tokens.count_tokens(text) <= COMPACTED * 2 else text[: COMPACTED * 6]
            )

    def _model_that_compacts(self) -> ModelClient | None:
        return self.models(facts.ModelRole.FAST) or self.models(facts.ModelRole.MAIN)

    def _cut_for_model_window(self, text: str, keep: str, client: ModelClient) -> str:
        """Return what fits into the model's window: the beginning, passages with the
        words of `keep`, and the end.
        """
        settings = self.conversation.state.settings
        chosen = settings.model_for_role(
            facts.ModelRole.FAST
            if self.models(facts.ModelRole.FAST) is client
            else facts.ModelRole.MAIN
        )
        window = chosen.window if chosen and chosen.window > 0 else self.conversation.policy.window
        room = (
            max(2_000, window - COMPACTED * 2 - 1_000) * 2
        )  # Only two characters per token, to be safe.
        if len(text) <= room:
            return text
        lines = text.removesuffix("\n").split("\n")
        places = text_passages.find_passages(self.tokens, lines, keep, room // 8)
        left_out = f"[… {len(text) - room:,} characters of all {len(lines):,} lines left out"
        return f"{text[: room // 2]}\n{left_out}; in them:]\n{places}\n{left_out} …]\n{text[-room // 4 :]}"

    def _build_excerpt_fold(
        self, one: LargeOutput, text: str, asked: str, batch: str, cover: facts.PartRef
    ) -> facts.Folded:
        returned = one.returned
        shown = large_output_choice.format_excerpt(
            returned.output, returned.tokens, text, asked=asked
        )
        why = f"an output of {returned.tokens:,} tokens" + (
            ", shortened at the agent's request" if asked else ""
        )
        fold = self._build_fold_of_part(cover, shown, returned.tokens, returned.output.digest, why)
        writer = self._model_that_compacts() if asked else None
        return replace(fold, batch=batch, asked=asked, model=writer.model_name if writer else "")

    def _build_fold_of_part(
        self, cover: facts.PartRef, shown: str, before: int, entry: Digest, why: str
    ) -> facts.Folded:
        kind, tokens = facts.FoldKind.EXCERPT, self.tokens.count_tokens(shown)
        name = self.conversation.new_fold_name(kind)
        return facts.Folded(name, kind, cover, shown, tokens, before, entries=(entry,), why=why)

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
        why = f"{part.name}: {part.tokens:,} tokens, over {policy.oversized_share:.0%} of the context window"
        return self._build_fold_of_part(
            facts.PartRef(0, index), shown, part.tokens, part.stored.digest, why
        )


async def excerpt_attachment(cache: ContentCache, part: facts.Attachment, policy: Policy) -> str:
    """Return what a model is shown of an attachment too large for its window: the outline of a
    document, or a preview of another text.
    """
    whole = await read_stored_text(cache, part.stored)
    room = policy.preview_tokens * 4
    document = parse_document_text(whole) if part.document is not None else None
    if document is not None:
        return f"[Attachment: {part.name}]\n{format_document_outline(document, part.stored.digest.hex, room)}"
    text = await build_preview_in_thread(whole, room)
    return f"[Attachment: {part.name}]\n{large_output_choice.format_excerpt(part.stored, part.tokens, text)}"


def _choose_by_keep_argument(
    output: LargeOutput, keep: str, may_be_full: Sequence[int]
) -> OutputChoice:
    if large_output_choice.asks_for_everything(keep):
        return OutputChoice(FULL if output.index in may_be_full else PREVIEW)
    return OutputChoice(COMPACT, keep) if keep else OutputChoice(PREVIEW)


def _fill_held_results(message: Message, shown: Mapping[str, str]) -> Message:
    """Return the last message with a note in place of results that are held back."""
    parts = tuple(
        replace(part, text=shown.get(part.call, "(done)"), ok=True)
        if isinstance(part, ToolResult)
        else part
        for part in message.parts
    )
    return replace(message, parts=parts)
