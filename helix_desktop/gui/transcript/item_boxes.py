"""Builds the boxes of each item, as generators: a long item is laid out in slices."""

import json
from collections.abc import Callable, Iterator

from helix_desktop.engine import facts
from helix_desktop.engine.agent_additions import name_of_agent_addition
from helix_desktop.engine.hidden_characters import mark_text
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.document_figures import (
    describe_attachment_size,
    describe_document_pages,
)
from helix_desktop.gui.common.figure_formats import format_byte_size, format_duration
from helix_desktop.gui.common.fold_descriptions import describe_fold, describe_token_change
from helix_desktop.gui.context_meter import describe_token_count, format_token_count
from helix_desktop.gui.transcript import (
    basic_boxes,
    chat_actions,
    content_fetching,
    tool_call_lines,
)
from helix_desktop.gui.transcript.basic_boxes import LayoutBox, ToggleSection, build_note_box
from helix_desktop.gui.transcript.call_and_fold_boxes import (
    ChipRowBox,
    ExpandableHeaderBox,
    FoldLineBox,
    ToolCallBox,
)
from helix_desktop.gui.transcript.chat_actions import AskToFold, OpenChanges, OpenEntry
from helix_desktop.gui.transcript.code_box import AT_ONCE, FIRST_LINES, CodeBox
from helix_desktop.gui.transcript.code_highlighting import highlight_language_of
from helix_desktop.gui.transcript.collapsed_calls import CallGroup
from helix_desktop.gui.transcript.failure_cards import (
    FailureCardBox,
    describe_retry_pause,
    failure_title_and_actions,
)
from helix_desktop.gui.transcript.layout_context import LayoutContext
from helix_desktop.gui.transcript.markdown_blocks import (
    ParagraphBlock,
    StyledSpan,
    backticks_to_code_spans,
)
from helix_desktop.gui.transcript.markdown_boxes import build_boxes_from_markdown
from helix_desktop.gui.transcript.message_bar import AnswerNameAndChoiceBox
from helix_desktop.gui.transcript.safe_text import make_safe_text, terminal_output_text
from helix_desktop.gui.transcript.tool_call_lines import CallStatus, LineChip, ToolCallLine
from helix_desktop.gui.transcript.transcript_item import (
    ToolCallState,
    TranscriptItem,
    TranscriptItemKind,
    item_source_text,
)
from helix_desktop.gui.translation import format_count, format_number, tr

LIMIT = 48_000
USER_LIMIT = 4_000
MORE = 48_000
NESTED = 40
# The space between the line that closes what a rewind removed and the first item, in
# pixels.
BELOW_HEADER = 20
LONGEST_ARGUMENTS = 20_000


@dataclass(frozen=True, slots=True)
class BoxBuildRequest:
    """What to lay out: an item of a page, or the chunks of an answer from `start` on."""

    page: LayoutContext
    index: int
    item: TranscriptItem
    start: int


def build_item_boxes(page: LayoutContext, index: int, start: int = 0) -> Iterator[LayoutBox]:
    """Yields the boxes of an item, from the top, or only those of the chunks from `start` on."""
    item = page.items.all[index]
    rewind = page.items.rewind_opened_above(index) if not start else -1
    if rewind >= 0:  # What a rewind removed can be closed again where it begins.
        yield from _build_rewound_header(BoxBuildRequest(page, rewind, page.items.all[rewind], 0))
    for number, box in enumerate(_MAKERS[item.kind](BoxBuildRequest(page, index, item, start))):
        if number == 0 and not start:  # There is space between items already.
            box.gap = page.ink.scaled_pixels(BELOW_HEADER) if rewind >= 0 else 0.0
        yield box
    if page.items.is_item_pinned(index):
        yield ChipRowBox(page.ink, page.width, [LineChip(tr("pinned"))], gap=6)


def _build_markdown_boxes(
    page: LayoutContext, item: TranscriptItem, start: int, limit: int, *, breaks: bool = False
) -> Iterator[LayoutBox]:
    """Yields Markdown as boxes. `limit` is how much is shown before the user asks for more."""

    def find_formula_picture(latex: str, display: bool) -> basic_boxes.FormulaPicture | None:  # noqa: FBT001
        size = page.ink.theme.text_zoom * (17 if display else 15)
        return page.contents.get_or_draw_formula(
            latex, display=display, size=size, colour=page.ink.token_colour("text").name()
        )

    text = item_source_text(item)[:limit]
    # Code in an unfinished reply is coloured immediately. Colouring it later would cause flicker.
    at_once = AT_ONCE if item.kind is TranscriptItemKind.LIVE_REPLY else 0
    return build_boxes_from_markdown(
        page.ink,
        page.width,
        text,
        start=start,
        breaks=breaks,
        key_of=lambda chunk: page.section_key("lines", item.fact_seq, item.part, chunk),
        lines=lambda key: FIRST_LINES + page.section_amounts.get(key, 0),
        at_once=at_once,
        drawn=find_formula_picture,
    )


def _build_user_boxes(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    page, item = at.page, at.item
    fact = item.source_fact
    if not isinstance(fact, facts.UserSaid):
        return
    text = item_source_text(item)
    limit = USER_LIMIT + page.section_amounts.get(page.section_key("limit", item.fact_seq, 0), 0)
    if text.strip():
        yield from _build_markdown_boxes(page, item, 0, limit, breaks=True)
        yield from _build_show_more_box(page, item, len(text), limit)
    for number, part in enumerate(fact.parts):
        if isinstance(part, facts.Attachment):
            fold = page.items.history.branch.fold_shown_for_part(
                facts.PartRef(item.fact_seq, number)
            )
            yield from _build_attachment_boxes(page, part, fold)


def _build_addition_boxes(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    """Yields a line that says what an agent added, and its text when the line is open."""
    page, item, fact = at.page, at.item, at.item.source_fact
    part = fact.parts[item.part] if isinstance(fact, facts.UserSaid) else None
    attached = part if isinstance(part, facts.Attachment) else None
    name = make_safe_text(name_of_agent_addition(attached.name if attached else item.text))
    words = tr("{agent} added: {what}", agent=page.items.writer_of_answer(at.index), what=name)
    opened, act = page.section_state("added", at.index)
    yield ExpandableHeaderBox(page.ink, page.width, words, act, opened=opened)
    if opened:
        text = page.contents.get_or_fetch_entry_text(attached.stored) if attached else item.text
        yield from _build_muted_text_boxes(page, text or tr("Loading output…"), LIMIT)
        yield from _build_attachment_boxes(page, attached, None) if attached else ()


def _build_attachment_boxes(
    page: LayoutContext, part: facts.Attachment, fold: facts.Folded | None
) -> Iterator[LayoutBox]:
    """Builds boxes for an attachment. If it is folded, the tokens sent precede the
    original count.
    """
    figures = describe_attachment_size(part) or format_byte_size(part.stored.size)
    if fold is not None:
        sent = tr(
            "{n} of {all} tokens",
            n=format_token_count(fold.tokens),
            all=format_token_count(part.tokens),
        )
        figures = " · ".join(filter(None, [describe_document_pages(part), sent]))
    chip = LineChip(f"{make_safe_text(part.name)} · {figures}", want=OpenEntry(part.stored.digest))
    if part.stored.media_type.startswith("image/"):
        yield from _build_picture_boxes(page, part.stored, part.name)
    yield ChipRowBox(page.ink, page.width, [chip], gap=8)


def _build_picture_boxes(
    page: LayoutContext, stored: facts.Stored, name: str
) -> Iterator[LayoutBox]:
    if (image := page.contents.get_or_fetch_entry_image(stored)) is not None:
        yield basic_boxes.PictureBox(
            page.ink,
            page.width,
            image,
            make_safe_text(name),
            gap=8,
            act=chat_actions.OpenPicture(stored, name),
        )
    elif trouble := page.contents.explain_missing_entry(stored.digest):
        yield build_note_box(page.ink, page.width, trouble, gap=8, colour="danger")


def _build_reply_boxes(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    page, item, start = at.page, at.item, at.start
    if item.is_first_of_answer and start == 0:
        choice = page.items.answer_choice_of(at.index)
        yield AnswerNameAndChoiceBox(
            page.ink, page.width, page.items.writer_of_answer(at.index), choice
        )
    text = item_source_text(item)
    limit = LIMIT + page.section_amounts.get(page.section_key("limit", item.fact_seq, item.part), 0)
    first = start == 0
    for box in _build_markdown_boxes(page, item, start, limit):
        if first:
            box.gap = page.ink.scaled_pixels(3) if item.is_first_of_answer else 0.0
            first = False
        yield box
    yield from _build_show_more_box(page, item, len(text), limit)


def _build_show_more_box(
    page: LayoutContext, item: TranscriptItem, length: int, limit: int
) -> Iterator[LayoutBox]:
    if length > limit:
        words = tr("Show more ({rest} characters)", rest=format_number(length - limit))
        act = ToggleSection(page.section_key("limit", item.fact_seq, item.part), MORE)
        yield basic_boxes.ActionLineBox(page.ink, page.width, words, act, gap=7)


def _build_grouped_boxes(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    """Yields the line of a group, on its first item, and then the item if it is visible."""
    if (group := at.page.items.groups.group_headed_by(at.index)) is not None:
        act = ToggleSection(at.page.section_key("group", at.index))
        words = describe_call_group(group)
        if group.has_additions:
            words = tr(
                "{agent} added: {what}", agent=at.page.items.writer_of_answer(at.index), what=words
            )
        yield ExpandableHeaderBox(at.page.ink, at.page.width, words, act, opened=group.opened)
        if at.index in group.collapsed_items:
            return
    for number, box in enumerate(_GROUPED_MAKERS[at.item.kind](at)):
        box.gap = 6.0 if number == 0 and group is not None else box.gap
        yield box


def describe_call_group(group: CallGroup) -> str:
    tools = [
        f"{make_safe_text(tool)} ×{n}" if n > 1 else make_safe_text(tool)
        for tool, n in group.tools.most_common()
    ]
    words = [", ".join(tools)]
    if len(tools) > 1 and not group.has_additions:
        words.append(format_count(group.done + group.failed, "{n} tool call", "{n} tool calls"))
    if group.seconds >= 0.1:
        words.append(format_duration(group.seconds))
    if group.failed:
        words.append(format_count(group.failed, "{n} failed", "{n} failed"))
    return " · ".join(words)


def _build_reasoning_boxes(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    page, item = at.page, at.item
    fact = item.source_fact
    part = fact.parts[item.part] if isinstance(fact, facts.ModelReplied) else None
    tokens = part.tokens if isinstance(part, facts.Reasoning) else 0
    opened, act = page.section_state("open", item.fact_seq, item.part)
    words = f"{tr('Reasoning')} · {describe_token_count(tokens)}" if tokens else tr("Reasoning")
    yield ExpandableHeaderBox(page.ink, page.width, words, act, opened=opened)
    if opened:
        yield from _build_muted_text_boxes(page, item_source_text(item), LIMIT)


def _build_live_reasoning_boxes(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    opened, act = at.page.section_state("live", at.index, default=True)
    yield ExpandableHeaderBox(at.page.ink, at.page.width, tr("Reasoning…"), act, opened=opened)
    if opened:
        yield from _build_muted_text_boxes(at.page, at.item.text[-600:], 600)


def _build_muted_text_boxes(page: LayoutContext, text: str, limit: int) -> Iterator[LayoutBox]:
    for piece in make_safe_text(text[:limit]).strip().split("\n"):
        for start in range(0, len(piece), 4_000) if piece.strip() else ():
            yield build_note_box(page.ink, page.width, piece[start : start + 4_000], gap=4)


def _build_call_boxes(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    page, index, item = at.page, at.index, at.item
    state = page.items.tool_call_state(index)
    opened, act = page.section_state("open", item.fact_seq, item.part)
    yield ToolCallBox(page.ink, page.width, tool_call_lines.build_call_line(state, page.now()), act)
    if state.returned is not None:
        for stored in state.returned.images:
            yield from _build_picture_boxes(page, stored, tr("picture"))
    if opened:
        yield from _build_call_detail_boxes(page, item, state)


def _build_call_detail_boxes(
    page: LayoutContext, item: TranscriptItem, state: ToolCallState
) -> Iterator[LayoutBox]:
    if arguments := _mark_up_long_arguments(state.call.arguments):
        more = page.section_key("arguments", item.fact_seq, item.part)
        lines = 12 + page.section_amounts.get(more, 0)
        yield CodeBox(page.ink, page.width, arguments, "json", gap=6, more=more, lines=lines)
    if state.call.keep:
        words = tr("The agent asked for: {words}", words=make_safe_text(state.call.keep[:400]))
        yield build_note_box(page.ink, page.width, words, gap=6)
    if state.decided is not None and state.decided.why:
        yield build_note_box(page.ink, page.width, make_safe_text(state.decided.why[:1000]), gap=6)
    if state.returned is None:
        if state.printed_text:
            last = "\n".join(
                terminal_output_text(state.printed_text[-16_000:]).rstrip("\n").split("\n")[-24:]
            )
            yield CodeBox(page.ink, page.width, last, gap=6)
        return
    yield from _build_output_boxes(page, item, state, state.returned)
    if state.returned.child:
        yield from _build_subagent_boxes(page, state.returned.child)


def _build_output_boxes(
    page: LayoutContext, item: TranscriptItem, state: ToolCallState, returned: facts.ToolReturned
) -> Iterator[LayoutBox]:
    stored = returned.output
    whole = len(returned.head.encode("utf-8", "replace")) >= stored.size
    text = returned.head if whole else page.contents.get_or_fetch_entry_text(stored)
    if text is None:
        trouble = page.contents.explain_missing_entry(stored.digest)
        colour = "danger" if trouble else "muted"
        yield build_note_box(
            page.ink, page.width, trouble or tr("Loading output…"), gap=6, colour=colour
        )
        return
    if text.strip():
        more = page.section_key("lines", item.fact_seq, item.part)
        shown_lines = 40 + page.section_amounts.get(more, 0)
        language = highlight_language_of(
            tool_call_lines.call_subject(state.call.arguments), stored.media_type
        )
        shown = terminal_output_text(text.rstrip("\n"))
        yield CodeBox(page.ink, page.width, shown, language, gap=6, more=more, lines=shown_lines)
    elif not returned.images:
        yield build_note_box(page.ink, page.width, tr("No output."), gap=6)
    words = tr("Open the full output in the cache ({size})", size=format_byte_size(stored.size))
    if stored.size > content_fetching.FIRST:
        lines = format_count(stored.lines, "{n} line", "{n} lines")
        words = tr("This is only the beginning of {lines}. {open}", lines=lines, open=words)
    yield basic_boxes.ActionLineBox(page.ink, page.width, words, OpenEntry(stored.digest), gap=2)


def _build_subagent_boxes(page: LayoutContext, conversation: str) -> Iterator[LayoutBox]:
    items = page.contents.get_or_fetch_subagent_items(conversation)
    if items is None:
        yield build_note_box(
            page.ink, page.width, tr("Loading the sub-agent's conversation…"), gap=6
        )
        return
    by = page.ink.scaled_pixels(18)
    inner = page.nested_context(items, by, (*page.key_prefix, conversation))
    first = max(0, len(items.all) - NESTED)
    words = format_count(
        len(items.all),
        "Open the sub-agent's conversation ({n} item)",
        "Open the sub-agent's conversation ({n} items)",
    )
    yield basic_boxes.ActionLineBox(
        page.ink, page.width, words, chat_actions.OpenConversation(conversation), gap=6
    )
    for index in range(first, len(items.all)):
        for number, box in enumerate(build_item_boxes(inner, index)):
            box.left += by
            box.is_from_subagent = True
            box.gap += page.ink.scaled_pixels(6) if number == 0 else 0.0
            yield box


def _mark_up_long_arguments(text: str) -> str:
    """Returns the arguments as indented JSON. Empty if the call's line shows all of them."""
    if len(text) <= 60 or (text.count('":') <= 1 and len(text) < 200):
        return ""
    if len(text) > LONGEST_ARGUMENTS:
        return mark_text(text[:LONGEST_ARGUMENTS]) + "…"
    try:
        return mark_text(
            json.dumps(json.loads(text), indent=2, ensure_ascii=False).replace("\\n", "\n")
        )
    except (ValueError, RecursionError):
        return mark_text(text)


def _build_live_call_box(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    page, index = at.page, at.index
    name, arguments = page.items.live_call_text(index)
    right = format_count(len(arguments), "writing… {n} character", "writing… {n} characters")
    line = ToolCallLine(tool_call_lines.format_call(name, arguments), CallStatus.RUNNING, (), right)
    yield ToolCallBox(page.ink, page.width, line, ToggleSection(page.section_key("live", index)))


def _build_fold_box(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    page, index, item = at.page, at.index, at.item
    folds = page.items.folds_of_line(index)
    fact = folds[0] if folds else item.source_fact
    if not isinstance(fact, facts.Folded):
        return
    before, after = sum(each.tokens_before for each in folds), sum(each.tokens for each in folds)
    own = [
        each.fold for each in folds if each.kind is fact.kind
    ]  # Markers folded with a document may stay in force.
    undone = page.items.history.branch.live.keys().isdisjoint(own)
    change = describe_token_change(fact, page.items.history.facts, item.fact_seq, before, after)
    words = describe_fold(fact, len(folds), change)
    yield FoldLineBox(
        page.ink, page.width, words, tr("Show"), chat_actions.OpenFold(fact.fold), undone=undone
    )


def _build_file_changes_box(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    page, item = at.page, at.item
    undone, act = page.items.is_changes_line_undone(item), OpenChanges(item.fact_seq)
    yield FoldLineBox(page.ink, page.width, item.text, tr("Review"), act, undone=undone)


def _build_note_boxes(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    page, item = at.page, at.item
    if isinstance(item.source_fact, facts.FoldFailed):
        again = (
            ((tr("Try again"), AskToFold(item.source_fact.kind)),)
            if at.index == page.items.failed_fold
            else ()
        )
        title = tr("No summary was written; all messages stay here")
        if item.source_fact.kind in (facts.FoldKind.MARKER, facts.FoldKind.EXCERPT):
            title = tr("Nothing was shortened, and nothing is lost")
        yield FailureCardBox(
            page.ink, page.width, title, make_safe_text(item.text[:4_000]), again, failed=False
        )
        return
    paragraph = ParagraphBlock(backticks_to_code_spans(make_safe_text(item.text[:4_000])))
    yield basic_boxes.TextBox(page.ink, page.width, paragraph, font=page.ink.small, colour="muted")


def _build_failure_card(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    page, item = at.page, at.item
    cause = item.source_fact.cause if isinstance(item.source_fact, facts.TurnEnded) else ""
    title, ways = failure_title_and_actions(cause)
    ways = ways if page.items.can_continue_after(at.index) else ()
    yield FailureCardBox(
        page.ink, page.width, title, make_safe_text(item.text[:4_000]), ways, failed=True
    )


def _build_plan_boxes(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    page, item = at.page, at.item
    if not isinstance(item.source_fact, facts.TodoSet):
        return
    opened, act = page.section_state("open", item.fact_seq, 0, default=True)
    done = sum(1 for _, state in item.source_fact.items if state == "done")
    words = tr("Plan · {done} of {all} done", done=done, all=len(item.source_fact.items))
    yield ExpandableHeaderBox(page.ink, page.width, words, act, opened=opened)
    signs = {"done": "☑", "doing": "◐", "open": "☐"}
    for text, state in item.source_fact.items[:100] if opened else ():
        paragraph = ParagraphBlock(
            (StyledSpan(make_safe_text(text[:1000])),), indent=1, marker=signs.get(state, "☐")
        )
        colour = "muted" if state == "done" else "text"
        yield basic_boxes.TextBox(page.ink, page.width, paragraph, gap=3, colour=colour)


def _build_rewound_header(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    page, index = at.page, at.index
    first, last, opened = page.items.rewound_range_of(index)
    what = format_count(
        last - first + 1,
        "{n} earlier item that was replaced",
        "{n} earlier items that were replaced",
    )
    act = ToggleSection(page.section_key("rewound", index))
    yield ExpandableHeaderBox(page.ink, page.width, what, act, opened=opened)


def _build_retry_card(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    page, item = at.page, at.item
    title = describe_retry_pause(page.items.retry_at - page.now())
    again = ((tr("Try now"), chat_actions.ConversationAct.RETRY_MODEL_NOW),)
    yield FailureCardBox(
        page.ink, page.width, title, make_safe_text(item.text[:1000]), again, failed=False
    )


_MAKERS: dict[TranscriptItemKind, Callable[[BoxBuildRequest], Iterator[LayoutBox]]] = {
    TranscriptItemKind.USER: _build_user_boxes,
    TranscriptItemKind.REPLY: _build_reply_boxes,
    TranscriptItemKind.LIVE_REPLY: _build_reply_boxes,
    TranscriptItemKind.REASONING: _build_grouped_boxes,
    TranscriptItemKind.LIVE_REASONING: _build_live_reasoning_boxes,
    TranscriptItemKind.CALL: _build_grouped_boxes,
    TranscriptItemKind.LIVE_CALL: _build_live_call_box,
    TranscriptItemKind.CHANGES: _build_file_changes_box,
    TranscriptItemKind.FOLD: _build_fold_box,
    TranscriptItemKind.NOTE: _build_note_boxes,
    TranscriptItemKind.PLAN: _build_plan_boxes,
    TranscriptItemKind.REWOUND: _build_rewound_header,
    TranscriptItemKind.WAITING: _build_retry_card,
    TranscriptItemKind.ERROR: _build_failure_card,
    TranscriptItemKind.ADDITION: _build_grouped_boxes,
}
_GROUPED_MAKERS = {
    TranscriptItemKind.REASONING: _build_reasoning_boxes,
    TranscriptItemKind.CALL: _build_call_boxes,
    TranscriptItemKind.ADDITION: _build_addition_boxes,
}
