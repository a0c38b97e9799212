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
    Way,
    describe_retry_pause,
    failure_title_and_actions,
)
from helix_desktop.gui.transcript.layout_context import OUTPUT_LINES, LayoutContext
from helix_desktop.gui.transcript.markdown_blocks import (
    ParagraphBlock,
    StyledSpan,
    backticks_to_code_spans,
)
from helix_desktop.gui.transcript.markdown_boxes import build_boxes_from_markdown
from helix_desktop.gui.transcript.message_bar import AnswerNameAndChoiceBox
from helix_desktop.gui.transcript.safe_text import make_safe_text, terminal_output_text
from helix_desktop.gui.transcript.tool_call_lines import CallStatus, LineChip, ToolCallLine
from helix_desktop.gui.transcript.tool_call_records import is_output_whole_in_fact
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
INLINE_FORMULA_SIZE = 15
DISPLAY_FORMULA_SIZE = 17
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
    rewind = -1
    if start == 0:
        rewind = page.items.rewind_opened_above(index)
    first_gap = 0.0  # There is space between items already.
    if rewind >= 0:  # What a rewind removed can be closed again where it begins.
        yield from _build_rewound_header(BoxBuildRequest(page, rewind, page.items.all[rewind], 0))
        first_gap = page.ink.scaled_pixels(BELOW_HEADER)
    request = BoxBuildRequest(page, index, item, start)
    for number, box in enumerate(_MAKERS[item.kind](request)):
        if number == 0 and start == 0:
            box.gap = first_gap
        yield box
    if page.items.is_item_pinned(index):
        yield ChipRowBox(page.ink, page.width, [LineChip(tr("pinned"))], gap=6)


def _build_markdown_boxes(
    page: LayoutContext, item: TranscriptItem, start: int, limit: int, *, breaks: bool = False
) -> Iterator[LayoutBox]:
    """Yields Markdown as boxes. `limit` is how much is shown before the user asks for more."""

    def find_formula_picture(latex: str, display: bool) -> basic_boxes.FormulaPicture | None:  # noqa: FBT001
        size = INLINE_FORMULA_SIZE
        if display:
            size = DISPLAY_FORMULA_SIZE
        return page.contents.get_or_draw_formula(
            latex,
            display=display,
            size=page.ink.theme.text_zoom * size,
            colour=page.ink.token_colour("text").name(),
        )

    text = item_source_text(item)[:limit]
    # Code in an unfinished reply is coloured immediately. Colouring it later would cause flicker.
    at_once = 0
    if item.kind is TranscriptItemKind.LIVE_REPLY:
        at_once = AT_ONCE
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
    page = at.page
    item = at.item
    fact = item.source_fact
    if not isinstance(fact, facts.UserSaid):
        return
    text = item_source_text(item)
    limit_key = page.section_key("limit", item.fact_seq, 0)
    limit = USER_LIMIT + page.section_amounts.get(limit_key, 0)
    if text.strip():
        yield from _build_markdown_boxes(page, item, 0, limit, breaks=True)
        yield from _build_show_more_box(page, item, len(text), limit)
    for number, part in enumerate(fact.parts):
        if isinstance(part, facts.Attachment):
            part_ref = facts.PartRef(item.fact_seq, number)
            fold = page.items.history.branch.fold_shown_for_part(part_ref)
            yield from _build_attachment_boxes(page, part, fold)


def _build_addition_boxes(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    """Yields a line that says what an agent added, and its text when the line is open."""
    page = at.page
    attachment = _attachment_of_item(at.item)
    if attachment is None:
        name = name_of_agent_addition(at.item.text)
    else:
        name = name_of_agent_addition(attachment.name)
    words = tr(
        "{agent} added: {what}",
        agent=page.items.writer_of_answer(at.index),
        what=make_safe_text(name),
    )
    opened, act = page.section_state("added", at.index)
    yield ExpandableHeaderBox(page.ink, page.width, words, act, opened=opened)
    if not opened:
        return
    if attachment is None:
        yield from _build_muted_text_boxes(page, at.item.text or tr("Loading output…"), LIMIT)
        return
    text = page.contents.get_or_fetch_entry_text(attachment.stored)
    yield from _build_muted_text_boxes(page, text or tr("Loading output…"), LIMIT)
    yield from _build_attachment_boxes(page, attachment, None)


def _attachment_of_item(item: TranscriptItem) -> facts.Attachment | None:
    fact = item.source_fact
    if not isinstance(fact, facts.UserSaid):
        return None
    part = fact.parts[item.part]
    if not isinstance(part, facts.Attachment):
        return None
    return part


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
        figures = sent
        pages = describe_document_pages(part)
        if pages:
            figures = f"{pages} · {sent}"
    chip = LineChip(f"{make_safe_text(part.name)} · {figures}", want=OpenEntry(part.stored.digest))
    if part.stored.media_type.startswith("image/"):
        yield from _build_picture_boxes(page, part.stored, part.name)
    yield ChipRowBox(page.ink, page.width, [chip], gap=8)


def _build_picture_boxes(
    page: LayoutContext, stored: facts.Stored, name: str
) -> Iterator[LayoutBox]:
    image = page.contents.get_or_fetch_entry_image(stored)
    if image is not None:
        yield basic_boxes.PictureBox(
            page.ink,
            page.width,
            image,
            make_safe_text(name),
            gap=8,
            act=chat_actions.OpenPicture(stored, name),
        )
        return
    trouble = page.contents.explain_missing_entry(stored.digest)
    if trouble:
        yield build_note_box(page.ink, page.width, trouble, gap=8, colour="danger")


def _build_reply_boxes(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    page = at.page
    item = at.item
    first_gap = 0.0
    if item.is_first_of_answer and at.start == 0:
        choice = page.items.answer_choice_of(at.index)
        yield AnswerNameAndChoiceBox(
            page.ink, page.width, page.items.writer_of_answer(at.index), choice
        )
        first_gap = page.ink.scaled_pixels(3)
    limit_key = page.section_key("limit", item.fact_seq, item.part)
    limit = LIMIT + page.section_amounts.get(limit_key, 0)
    for number, box in enumerate(_build_markdown_boxes(page, item, at.start, limit)):
        if number == 0 and at.start == 0:
            box.gap = first_gap
        yield box
    yield from _build_show_more_box(page, item, len(item_source_text(item)), limit)


def _build_show_more_box(
    page: LayoutContext, item: TranscriptItem, length: int, limit: int
) -> Iterator[LayoutBox]:
    if length > limit:
        words = tr("Show more ({rest} characters)", rest=format_number(length - limit))
        act = ToggleSection(page.section_key("limit", item.fact_seq, item.part), MORE)
        yield basic_boxes.ActionLineBox(page.ink, page.width, words, act, gap=7)


def _build_grouped_boxes(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    """Yields the line of a group, on its first item, and then the item if it is visible."""
    page = at.page
    group = page.items.groups.group_headed_by(at.index)
    if group is not None:
        act = ToggleSection(page.section_key("group", at.index))
        words = describe_call_group(group)
        if group.has_additions:
            writer = page.items.writer_of_answer(at.index)
            words = tr("{agent} added: {what}", agent=writer, what=words)
        yield ExpandableHeaderBox(page.ink, page.width, words, act, opened=group.opened)
        if at.index in group.collapsed_items:
            return
    for number, box in enumerate(_GROUPED_MAKERS[at.item.kind](at)):
        if number == 0 and group is not None:
            box.gap = 6.0
        yield box


def describe_call_group(group: CallGroup) -> str:
    tools: list[str] = []
    for tool, call_count in group.tools.most_common():
        name = make_safe_text(tool)
        if call_count > 1:
            name = f"{name} ×{call_count}"
        tools.append(name)
    words = [", ".join(tools)]
    if len(tools) > 1 and not group.has_additions:
        words.append(format_count(group.done + group.failed, "{n} tool call", "{n} tool calls"))
    if group.seconds >= 0.1:
        words.append(format_duration(group.seconds))
    if group.failed:
        words.append(format_count(group.failed, "{n} failed", "{n} failed"))
    return " · ".join(words)


def _build_reasoning_boxes(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    page = at.page
    item = at.item
    fact = item.source_fact
    tokens = 0
    if isinstance(fact, facts.ModelReplied):
        part = fact.parts[item.part]
        if isinstance(part, facts.Reasoning):
            tokens = part.tokens
    words = tr("Reasoning")
    if tokens:
        words = f"{words} · {describe_token_count(tokens)}"
    opened, act = page.section_state("open", item.fact_seq, item.part)
    yield ExpandableHeaderBox(page.ink, page.width, words, act, opened=opened)
    if opened:
        yield from _build_muted_text_boxes(page, item_source_text(item), LIMIT)


def _build_live_reasoning_boxes(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    opened, act = at.page.section_state("live", at.index, default=True)
    yield ExpandableHeaderBox(at.page.ink, at.page.width, tr("Reasoning…"), act, opened=opened)
    if opened:
        yield from _build_muted_text_boxes(at.page, at.item.text[-600:], 600)


def _build_muted_text_boxes(page: LayoutContext, text: str, limit: int) -> Iterator[LayoutBox]:
    for line in make_safe_text(text[:limit]).strip().split("\n"):
        if not line.strip():
            continue
        # A long line is many boxes, so that no slice of the layout waits for all of it.
        for start in range(0, len(line), 4_000):
            yield build_note_box(page.ink, page.width, line[start : start + 4_000], gap=4)


def _build_call_boxes(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    page = at.page
    item = at.item
    state = page.items.tool_call_state(at.index)
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
    arguments = _mark_up_long_arguments(state.call.arguments)
    if arguments:
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
            printed = terminal_output_text(state.printed_text[-16_000:])
            last_lines = printed.rstrip("\n").split("\n")[-24:]
            yield CodeBox(page.ink, page.width, "\n".join(last_lines), gap=6)
        return
    yield from _build_output_boxes(page, item, state, state.returned)
    if state.returned.child:
        yield from _build_subagent_boxes(page, state.returned.child)


def _build_output_boxes(
    page: LayoutContext, item: TranscriptItem, state: ToolCallState, returned: facts.ToolReturned
) -> Iterator[LayoutBox]:
    stored = returned.output
    text: str | None = returned.head
    if not is_output_whole_in_fact(returned):
        text = page.contents.get_or_fetch_entry_text(stored)
    if text is None:
        trouble = page.contents.explain_missing_entry(stored.digest)
        if trouble:
            yield build_note_box(page.ink, page.width, trouble, gap=6, colour="danger")
        else:
            yield build_note_box(page.ink, page.width, tr("Loading output…"), gap=6)
        return
    if text.strip():
        more = page.section_key("lines", item.fact_seq, item.part)
        shown_lines = OUTPUT_LINES + page.section_amounts.get(more, 0)
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
    indent = page.ink.scaled_pixels(18)
    inner_page = page.nested_context(items, indent, (*page.key_prefix, conversation))
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
        for number, box in enumerate(build_item_boxes(inner_page, index)):
            box.left += indent
            box.is_from_subagent = True
            if number == 0:
                box.gap += page.ink.scaled_pixels(6)
            yield box


def _mark_up_long_arguments(text: str) -> str:
    """Returns the arguments as indented JSON. Empty if the call's line shows all of them."""
    if len(text) <= 60 or (text.count('":') <= 1 and len(text) < 200):
        return ""
    if len(text) > LONGEST_ARGUMENTS:
        return mark_text(text[:LONGEST_ARGUMENTS]) + "…"
    try:
        indented = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return mark_text(text)
    # The text of a file in an argument is read line by line.
    return mark_text(indented.replace("\\n", "\n"))


def _build_live_call_box(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    page = at.page
    name, arguments = page.items.live_call_text(at.index)
    progress = format_count(len(arguments), "writing… {n} character", "writing… {n} characters")
    line = ToolCallLine(
        tool_call_lines.format_call(name, arguments), CallStatus.RUNNING, outcome=progress
    )
    act = ToggleSection(page.section_key("live", at.index))
    yield ToolCallBox(page.ink, page.width, line, act)


def _build_fold_box(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    page = at.page
    item = at.item
    folds = page.items.folds_of_line(at.index)
    fact = item.source_fact
    if folds:
        fact = folds[0]
    if not isinstance(fact, facts.Folded):
        return
    # Markers folded with a document may stay in force when its own fold is undone.
    own_names = [fold.fold for fold in folds if fold.kind is fact.kind]
    undone = page.items.history.branch.live.keys().isdisjoint(own_names)
    change = describe_token_change(
        fact,
        page.items.history.facts,
        item.fact_seq,
        sum(fold.tokens_before for fold in folds),
        sum(fold.tokens for fold in folds),
    )
    words = describe_fold(fact, len(folds), change)
    yield FoldLineBox(
        page.ink, page.width, words, tr("Show"), chat_actions.OpenFold(fact.fold), undone=undone
    )


def _build_file_changes_box(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    page = at.page
    item = at.item
    undone = page.items.is_changes_line_undone(item)
    act = OpenChanges(item.fact_seq)
    words = page.items.describe_changes_line(item)
    yield FoldLineBox(page.ink, page.width, words, tr("Review"), act, undone=undone)


def _build_note_boxes(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    page = at.page
    item = at.item
    if isinstance(item.source_fact, facts.FoldFailed):
        again: tuple[Way, ...] = ()
        # Only the last failure can be tried again: a later fold has settled the others.
        if at.index == page.items.failed_fold:
            again = ((tr("Try again"), AskToFold(item.source_fact.kind)),)
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
    page = at.page
    item = at.item
    cause = ""
    if isinstance(item.source_fact, facts.TurnEnded):
        cause = item.source_fact.cause
    title, actions = failure_title_and_actions(cause)
    if not page.items.can_continue_after(at.index):
        actions = ()
    yield FailureCardBox(
        page.ink, page.width, title, make_safe_text(item.text[:4_000]), actions, failed=True
    )


def _build_plan_boxes(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    page = at.page
    fact = at.item.source_fact
    if not isinstance(fact, facts.TodoSet):
        return
    opened, act = page.section_state("open", at.item.fact_seq, 0, default=True)
    done = sum(1 for _, state in fact.items if state == "done")
    words = tr("Plan · {done} of {all} done", done=done, all=len(fact.items))
    yield ExpandableHeaderBox(page.ink, page.width, words, act, opened=opened)
    if not opened:
        return
    signs = {"done": "☑", "doing": "◐", "open": "☐"}
    for text, state in fact.items[:100]:
        span = StyledSpan(make_safe_text(text[:1000]))
        paragraph = ParagraphBlock((span,), indent=1, marker=signs.get(state, "☐"))
        colour = "text"
        if state == "done":
            colour = "muted"
        yield basic_boxes.TextBox(page.ink, page.width, paragraph, gap=3, colour=colour)


def _build_rewound_header(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    page = at.page
    rewound = page.items.rewound_range_of(at.index)
    words = format_count(
        rewound.last - rewound.first + 1,
        "{n} earlier item that was replaced",
        "{n} earlier items that were replaced",
    )
    act = ToggleSection(page.section_key("rewound", at.index))
    yield ExpandableHeaderBox(page.ink, page.width, words, act, opened=rewound.are_shown)


def _build_retry_card(at: BoxBuildRequest) -> Iterator[LayoutBox]:
    page = at.page
    title = describe_retry_pause(page.items.retry_at - page.now())
    again = ((tr("Try now"), chat_actions.ConversationAct.RETRY_MODEL_NOW),)
    yield FailureCardBox(
        page.ink, page.width, title, make_safe_text(at.item.text[:1000]), again, failed=False
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
