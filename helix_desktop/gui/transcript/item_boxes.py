"""Builds the boxes of each item, as generators: a long item is laid out in slices."""

import json
import re
from collections.abc import Callable, Iterator
from functools import partial

from helix_desktop.engine import facts
from helix_desktop.engine.agent_additions import name_of_agent_addition
from helix_desktop.engine.fold_kinds import KINDS_OF_PARTS
from helix_desktop.engine.hidden_characters import mark_text
from helix_desktop.engine.tool_call_parsing import NOT_BEGUN, SKIPPED
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.document_figures import (
    describe_attachment_size,
    describe_document_pages,
)
from helix_desktop.gui.common.figure_formats import format_byte_size, format_duration
from helix_desktop.gui.common.fold_descriptions import (
    describe_fold,
    describe_token_change,
    select_counted_folds,
)
from helix_desktop.gui.common.tool_words import words_for_tool
from helix_desktop.gui.context_meter import describe_token_count, format_token_count
from helix_desktop.gui.sentence_translation import join_sentences, translate_sentences
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
from helix_desktop.gui.transcript.chat_actions import (
    ActOnMessage,
    AskToFold,
    MessageAct,
    OpenAttachment,
    OpenChanges,
    OpenEntry,
)
from helix_desktop.gui.transcript.code_box import AT_ONCE, FIRST_LINES, CodeBox
from helix_desktop.gui.transcript.code_highlighting import highlight_language_of
from helix_desktop.gui.transcript.collapsed_calls import CallGroup
from helix_desktop.gui.transcript.edit_call_texts import EditText, describe_edit
from helix_desktop.gui.transcript.failure_cards import (
    CardButton,
    FailureCardBox,
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
from helix_desktop.gui.transcript.tool_call_lines import (
    SHORTEST_SHOWN_SECONDS,
    CallStatus,
    LineChip,
    ToolCallLine,
)
from helix_desktop.gui.transcript.tool_call_records import is_output_whole_in_fact
from helix_desktop.gui.transcript.transcript_item import (
    ToolCallState,
    TranscriptItem,
    TranscriptItemKind,
    item_source_text,
)
from helix_desktop.gui.translation import format_count, format_number, tr

# So many characters of a reply and of a user's message are shown until the user asks for more.
LIMIT = 48_000
USER_LIMIT = 4_000
MORE = 48_000  # The characters that "Show more" adds.
NESTED = 40  # So many of a sub-agent's last items are shown at its call.
LONGEST_NOTE = 4_000
ESCAPE_IN_JSON = re.compile(r"\\.")
ARGUMENT_LINES = 12  # So many lines of a call's arguments are shown until the user asks for more.
# So much of what a running command printed is shown.
PRINTED_CHARACTERS = 16_000
PRINTED_LINES = 24
LINES_OF_CLOSED_CALL = 6
MOST_PLAN_STEPS = 100
INLINE_FORMULA_SIZE = 15
DISPLAY_FORMULA_SIZE = 17
# The space between the line that closes what a rewind removed and the first item, in
# pixels.
BELOW_HEADER = 20
LONGEST_ARGUMENTS = 20_000


@dataclass(frozen=True, slots=True)
class BoxBuildRequest:
    """What to lay out: an item, or the chunks of an answer from `start` on."""

    context: LayoutContext
    index: int
    item: TranscriptItem
    start: int


def build_item_boxes(context: LayoutContext, index: int, start: int = 0) -> Iterator[LayoutBox]:
    """Yields the boxes of an item, from the top, or only those of the chunks from `start` on."""
    items = context.items
    rewind = -1
    if start == 0:
        rewind = items.rewind_opened_above(index)
    first_gap = 0.0  # There is space between items already.
    if rewind >= 0:  # What a rewind removed can be closed again where it begins.
        yield from _build_rewound_header(BoxBuildRequest(context, rewind, items.all[rewind], 0))
        first_gap = context.ink.scaled_pixels(BELOW_HEADER)

    item = items.all[index]
    build_boxes = _BOX_BUILDERS[item.kind]
    request = BoxBuildRequest(context, index, item, start)
    for number, box in enumerate(build_boxes(request)):
        if number == 0 and start == 0:
            box.gap = first_gap
        yield box
    if items.is_item_pinned(index):
        yield ChipRowBox(context.ink, context.width, [LineChip(tr("pinned"))], gap=6)


def _build_markdown_boxes(
    context: LayoutContext, item: TranscriptItem, start: int, limit: int, *, breaks: bool = False
) -> Iterator[LayoutBox]:
    """Yields Markdown as boxes. `limit` is how much is shown before the user asks for more."""
    # Code in an unfinished reply is coloured immediately. Colouring it later would cause flicker.
    coloured_at_once = 0
    if item.kind is TranscriptItemKind.LIVE_REPLY:
        coloured_at_once = AT_ONCE
    shown_text = item_source_text(item)[:limit]
    return build_boxes_from_markdown(
        context.ink,
        context.width,
        shown_text,
        start=start,
        breaks=breaks,
        key_of=partial(context.section_key, "lines", item.fact_seq, item.part),
        lines=partial(_count_shown_lines, context),
        at_once=coloured_at_once,
        drawn=partial(_get_formula_picture, context),
    )


def _count_shown_lines(context: LayoutContext, key: basic_boxes.SectionKey) -> int:
    """Returns how many lines of a code block are shown. The user may have asked for more."""
    return FIRST_LINES + context.section_amounts.get(key, 0)


def _get_formula_picture(
    context: LayoutContext,
    latex: str,
    is_block: bool,  # noqa: FBT001
) -> basic_boxes.FormulaPicture | None:
    """Returns a formula's picture in the size and colour of the text, or None while it is drawn."""
    size = INLINE_FORMULA_SIZE
    if is_block:
        size = DISPLAY_FORMULA_SIZE
    text_colour = context.ink.token_colour("text")
    return context.contents.get_or_draw_formula(
        latex,
        display=is_block,
        size=context.ink.theme.text_zoom * size,
        colour=text_colour.name(),
    )


def _build_user_boxes(request: BoxBuildRequest) -> Iterator[LayoutBox]:
    """Builds the boxes of a message of the user: its text, "Show more" if that is long,
    and a line for each attachment.
    """
    context = request.context
    item = request.item
    fact = item.source_fact
    if not isinstance(fact, facts.UserSaid):
        return
    text = item_source_text(item)
    limit_key = context.section_key("limit", item.fact_seq, 0)
    limit = USER_LIMIT + context.section_amounts.get(limit_key, 0)
    if text.strip():
        yield from _build_markdown_boxes(context, item, 0, limit, breaks=True)
        yield from _build_show_more_box(context, item, len(text), limit)
    for part_number, part in enumerate(fact.parts):
        if isinstance(part, facts.Attachment):
            part_ref = facts.PartRef(item.fact_seq, part_number)
            fold = context.items.fold_of_attachment(part_ref)
            yield from _build_attachment_boxes(context, part, fold)


def _build_addition_boxes(request: BoxBuildRequest) -> Iterator[LayoutBox]:
    """Yields a line that says what an agent added, and its text when the line is open."""
    context = request.context
    attachment = _attachment_of_item(request.item)
    if attachment is None:
        name = name_of_agent_addition(request.item.text)
    else:
        name = name_of_agent_addition(attachment.name) or attachment.name
    agent = context.items.writer_of_answer(request.index)
    title = tr("{agent} added: {what}", agent=agent, what=make_safe_text(name))
    is_open, toggle = context.section_state("added", request.item.fact_seq, request.item.part)
    yield ExpandableHeaderBox(context.ink, context.width, title, toggle, opened=is_open)
    if not is_open:
        return

    if attachment is None:
        text = request.item.text
    else:
        text = context.contents.get_or_fetch_entry_text(attachment.stored) or ""
    yield from _build_muted_text_boxes(context, text or tr("Loading output…"), LIMIT)
    if attachment is not None:
        yield from _build_attachment_boxes(context, attachment, None)


def _attachment_of_item(item: TranscriptItem) -> facts.Attachment | None:
    fact = item.source_fact
    if not isinstance(fact, facts.UserSaid):
        return None
    part = fact.parts[item.part]
    if not isinstance(part, facts.Attachment):
        return None
    return part


def _build_attachment_boxes(
    context: LayoutContext, part: facts.Attachment, fold: facts.Folded | None
) -> Iterator[LayoutBox]:
    """Builds boxes for an attachment. If it is folded, the tokens sent precede the
    original count.
    """
    if part.stored.media_type.startswith("image/"):
        yield from _build_picture_boxes(context, part.stored, part.name)
    name = make_safe_text(part.name)
    figures = _describe_attachment_figures(part, fold)
    chip = LineChip(f"{name} · {figures}", want=OpenAttachment(part))
    yield ChipRowBox(context.ink, context.width, [chip], gap=8)


def _describe_attachment_figures(part: facts.Attachment, fold: facts.Folded | None) -> str:
    if fold is None:
        return describe_attachment_size(part) or format_byte_size(part.stored.size)
    sent_tokens = tr(
        "{n} of {all} tokens",
        n=format_token_count(fold.tokens),
        all=format_token_count(part.tokens),
    )
    pages = describe_document_pages(part)
    if pages:
        return f"{pages} · {sent_tokens}"
    return sent_tokens


def _build_picture_boxes(
    context: LayoutContext, stored: facts.Stored, name: str
) -> Iterator[LayoutBox]:
    """Yields the picture once it is here, or why it cannot be shown."""
    image = context.contents.get_or_fetch_entry_image(stored)
    if image is not None:
        open_picture = chat_actions.OpenPicture(stored, name)
        yield basic_boxes.PictureBox(
            context.ink, context.width, image, make_safe_text(name), gap=8, act=open_picture
        )
        return
    trouble = context.contents.explain_missing_entry(stored.digest)
    if trouble:
        yield build_note_box(context.ink, context.width, trouble, gap=8, colour="danger")


def _build_reply_boxes(request: BoxBuildRequest) -> Iterator[LayoutBox]:
    """Builds the boxes of a piece of an answer. The first piece begins with the name of
    who answers and, if the message was answered several times, the choice between the
    answers. `request.start` is above 0 while an answer grows: only what is new is
    built.
    """
    context = request.context
    item = request.item
    is_from_top = request.start == 0
    first_gap = 0.0
    if item.is_first_of_answer and is_from_top:
        writer = context.items.writer_of_answer(request.index)
        choice = context.items.answer_choice_of(request.index)
        yield AnswerNameAndChoiceBox(context.ink, context.width, writer, choice)
        first_gap = context.ink.scaled_pixels(3)

    limit_key = context.section_key("limit", item.fact_seq, item.part)
    limit = LIMIT + context.section_amounts.get(limit_key, 0)
    boxes = _build_markdown_boxes(context, item, request.start, limit)
    for number, box in enumerate(boxes):
        if number == 0 and is_from_top:
            box.gap = first_gap
        yield box
    yield from _build_show_more_box(context, item, len(item_source_text(item)), limit)


def _build_show_more_box(
    context: LayoutContext, item: TranscriptItem, length: int, limit: int
) -> Iterator[LayoutBox]:
    if length <= limit:
        return
    label = tr("Show more ({rest} characters)", rest=format_number(length - limit))
    limit_key = context.section_key("limit", item.fact_seq, item.part)
    show_more = ToggleSection(limit_key, MORE)
    yield basic_boxes.ActionLineBox(context.ink, context.width, label, show_more, gap=7)


def _build_grouped_boxes(request: BoxBuildRequest) -> Iterator[LayoutBox]:
    """Yields the line of a group, on its first item, and then the item if it is visible."""
    context = request.context
    group = context.items.groups.group_headed_by(request.index)
    if group is not None:
        title = describe_call_group(group, context.items.count_excerpts_in_group(group))
        if group.has_additions:
            writer = context.items.writer_of_answer(request.index)
            title = tr("{agent} added: {what}", agent=writer, what=title)
        toggle = ToggleSection(context.section_key("group", request.index))
        yield ExpandableHeaderBox(context.ink, context.width, title, toggle, opened=group.opened)
        if request.index in group.collapsed_items:
            return

    build_boxes = _GROUPED_BOX_BUILDERS[request.item.kind]
    for number, box in enumerate(build_boxes(request)):
        if number == 0 and group is not None:
            box.gap = 6.0
        yield box


def describe_call_group(group: CallGroup, excerpt_count: int = 0) -> str:
    """Says in one line what a group of collapsed calls was, as "Read ×3, Search files ·
    4 tool calls · 2 s · 1 failed · 1 shortened". Tools that were called most stand first.
    `excerpt_count`: outputs of which an excerpt is shown to the model.
    """
    tools: list[str] = []
    for tool, call_count in group.tools.most_common():
        name = make_safe_text(words_for_tool(tool))
        if call_count > 1:
            name = f"{name} ×{call_count}"
        tools.append(name)

    figures = [", ".join(tools)]
    if len(tools) > 1 and not group.has_additions:
        call_count = group.done + group.failed
        figures.append(format_count(call_count, "{n} tool call", "{n} tool calls"))
    if group.seconds >= SHORTEST_SHOWN_SECONDS:
        figures.append(format_duration(group.seconds))
    if group.failed:
        figures.append(format_count(group.failed, "{n} failed", "{n} failed"))
    if excerpt_count:
        figures.append(format_count(excerpt_count, "{n} shortened", "{n} shortened"))
    return " · ".join(figures)


def _build_reasoning_boxes(request: BoxBuildRequest) -> Iterator[LayoutBox]:
    context = request.context
    item = request.item
    title = tr("Reasoning")
    tokens = _count_reasoning_tokens(item)
    if tokens:
        title = f"{title} · {describe_token_count(tokens)}"
    is_open, toggle = context.section_state("open", item.fact_seq, item.part)
    yield ExpandableHeaderBox(context.ink, context.width, title, toggle, opened=is_open)
    if is_open:
        yield from _build_muted_text_boxes(context, item_source_text(item), LIMIT)


def _count_reasoning_tokens(item: TranscriptItem) -> int:
    fact = item.source_fact
    if not isinstance(fact, facts.ModelReplied):
        return 0
    part = fact.parts[item.part]
    if not isinstance(part, facts.Reasoning):
        return 0
    return part.tokens


def _build_live_reasoning_boxes(request: BoxBuildRequest) -> Iterator[LayoutBox]:
    context = request.context
    is_open, toggle = context.section_state("live", request.index, default=True)
    yield ExpandableHeaderBox(context.ink, context.width, tr("Reasoning…"), toggle, opened=is_open)
    if is_open:
        yield from _build_muted_text_boxes(context, request.item.text[-600:], 600)


def _build_muted_text_boxes(context: LayoutContext, text: str, limit: int) -> Iterator[LayoutBox]:
    for line in make_safe_text(text[:limit]).strip().split("\n"):
        if not line.strip():
            continue
        # A long line is many boxes, so that no slice of the layout waits for all of it.
        for start in range(0, len(line), LONGEST_NOTE):
            piece = line[start : start + LONGEST_NOTE]
            yield build_note_box(context.ink, context.width, piece, gap=4)


def _build_call_boxes(request: BoxBuildRequest) -> Iterator[LayoutBox]:
    context = request.context
    item = request.item
    state = context.items.tool_call_state(request.index)
    is_open, toggle = context.section_state("open", item.fact_seq, item.part)
    line = tool_call_lines.build_call_line(state, context.now())
    yield ToolCallBox(context.ink, context.width, line, toggle)
    if state.returned is not None:
        for stored in state.returned.images:
            yield from _build_picture_boxes(context, stored, tr("picture"))
    if is_open:
        yield from _build_call_detail_boxes(context, item, state)
    elif state.printed_text:
        # Whoever waits for a command wants to see that it gets on.
        yield _build_printed_output_box(context, state.printed_text, LINES_OF_CLOSED_CALL)


def _build_printed_output_box(context: LayoutContext, text: str, most_lines: int) -> CodeBox:
    """Builds the last lines that a running command has printed."""
    printed = terminal_output_text(text[-PRINTED_CHARACTERS:])
    printed_lines = printed.rstrip("\n").split("\n")
    newest_lines = "\n".join(printed_lines[-most_lines:])
    return CodeBox(context.ink, context.width, newest_lines, gap=6)


def _build_call_detail_boxes(
    context: LayoutContext, item: TranscriptItem, state: ToolCallState
) -> Iterator[LayoutBox]:
    """Builds what an open tool call shows below its line, in the order in which it happened.

    First comes what the agent asked for, then why it was allowed or refused, and then the output.
    A call that still runs shows the last lines that it has printed.
    """
    ink = context.ink
    width = context.width
    arguments = _describe_call_arguments(state.call.arguments)
    if arguments.text:
        more = context.section_key("arguments", item.fact_seq, item.part)
        lines = ARGUMENT_LINES + context.section_amounts.get(more, 0)
        yield CodeBox(ink, width, arguments.text, arguments.language, gap=6, more=more, lines=lines)
    if state.call.keep:
        kept_words = make_safe_text(state.call.keep[:400])
        asked_for = tr("The agent asked for: {words}", words=kept_words)
        yield build_note_box(ink, width, asked_for, gap=6)
    if state.decided is not None and state.decided.why:
        reason = make_safe_text(state.decided.why[:1000])
        yield build_note_box(ink, width, reason, gap=6)

    if state.returned is not None:
        if state.fold is not None and state.fold.kind is facts.FoldKind.EXCERPT:
            # Before the output, which may have thousands of lines.
            label = tr("Show what the model saw")
            open_fold = chat_actions.OpenFold(state.fold.fold)
            yield basic_boxes.ActionLineBox(ink, width, label, open_fold, gap=6)
        yield from _build_output_boxes(context, item, state, state.returned)
        if state.returned.child:
            yield from _build_subagent_boxes(context, state.returned.child)
    elif state.printed_text:
        yield _build_printed_output_box(context, state.printed_text, PRINTED_LINES)


def _build_output_boxes(
    context: LayoutContext,
    item: TranscriptItem,
    state: ToolCallState,
    returned: facts.ToolReturned,
) -> Iterator[LayoutBox]:
    """Builds what a call returned, and below it the link to the whole output in the cache.

    The fact has only the beginning of a long output. The rest is fetched in the background, and
    these boxes are built again when it is there; until then, a note says that it is loading, or
    why it cannot be shown.
    """
    ink = context.ink
    width = context.width
    stored = returned.output
    text: str | None = returned.head
    if not is_output_whole_in_fact(returned):
        text = context.contents.get_or_fetch_entry_text(stored)
    if text is None:
        trouble = context.contents.explain_missing_entry(stored.digest)
        if trouble:
            yield build_note_box(ink, width, trouble, gap=6, colour="danger")
        else:
            yield build_note_box(ink, width, tr("Loading output…"), gap=6)
        return

    if is_output_whole_in_fact(returned) and _is_short_message_of_failed_call(returned, text):
        # It is for reading, not code: a long line of code would be cut off at the edge.
        message = make_safe_text(text.strip())
        if text in (NOT_BEGUN, SKIPPED):  # What the program has said itself.
            message = translate_sentences(text)
        gap = 6
        for line in message.split("\n"):
            yield build_note_box(ink, width, line, gap=gap, colour="text")
            gap = 2
        return
    if text.strip():
        more = context.section_key("lines", item.fact_seq, item.part)
        shown_lines = OUTPUT_LINES + context.section_amounts.get(more, 0)
        subject = tool_call_lines.call_subject(state.call.arguments)
        language = highlight_language_of(subject, stored.media_type)
        shown_text = terminal_output_text(text.rstrip("\n"))
        yield CodeBox(ink, width, shown_text, language, gap=6, more=more, lines=shown_lines)
    elif not returned.images:
        yield build_note_box(ink, width, tr("No output."), gap=6)
    if is_output_whole_in_fact(returned) and text.rstrip("\n").count("\n") < OUTPUT_LINES:
        return  # All of it is shown.
    label = _label_of_full_output(stored)
    yield basic_boxes.ActionLineBox(ink, width, label, OpenEntry(stored.digest), gap=2)


def _is_short_message_of_failed_call(returned: facts.ToolReturned, text: str) -> bool:
    """Tells whether the text says why a call failed. A command has an exit code and an output."""
    is_command = returned.exit_code is not None
    if returned.ok or is_command:
        return False
    message = text.strip()
    if not message:
        return False
    line_count = message.count("\n") + 1
    return line_count <= OUTPUT_LINES


def _label_of_full_output(stored: facts.Stored) -> str:
    size = format_byte_size(stored.size)
    open_in_cache = tr("Open the full output in the cache ({size})", size=size)
    if stored.size <= content_fetching.FIRST:
        return open_in_cache
    lines = format_count(stored.lines, "{n} line", "{n} lines")
    return tr("This is only the beginning of {lines}. {open}", lines=lines, open=open_in_cache)


def _build_subagent_boxes(context: LayoutContext, conversation: str) -> Iterator[LayoutBox]:
    """Builds the link to a sub-agent's conversation and, indented below it, its last items.

    The conversation is read in the background. Until it is there, a note says that it is loading.
    """
    items = context.contents.get_or_fetch_subagent_items(conversation)
    if items is None:
        loading = tr("Loading the sub-agent's conversation…")
        yield build_note_box(context.ink, context.width, loading, gap=6)
        return

    label = format_count(
        len(items.all),
        "Open the sub-agent's conversation ({n} item)",
        "Open the sub-agent's conversation ({n} items)",
    )
    open_conversation = chat_actions.OpenConversation(conversation)
    yield basic_boxes.ActionLineBox(context.ink, context.width, label, open_conversation, gap=6)

    indent = context.ink.scaled_pixels(18)
    key_prefix = context.key_prefix + (conversation,)
    inner_context = context.nested_context(items, indent, key_prefix)
    first = max(0, len(items.all) - NESTED)
    for index in range(first, len(items.all)):
        for number, box in enumerate(build_item_boxes(inner_context, index)):
            box.left += indent
            box.is_from_subagent = True
            if number == 0:
                box.gap += context.ink.scaled_pixels(6)
            yield box


def _describe_call_arguments(arguments: str) -> EditText:
    """Returns an edit as its changed lines, and other arguments as JSON."""
    edit = describe_edit(arguments)
    if edit is not None:
        return edit
    return EditText(_mark_up_long_arguments(arguments), "json")


def _mark_up_long_arguments(text: str) -> str:
    """Returns the arguments as indented JSON. Empty if the call's line shows all of them."""
    has_one_argument = text.count('":') <= 1
    is_short = len(text) <= 60 or (has_one_argument and len(text) < 200)
    if is_short:
        return ""
    if len(text) > LONGEST_ARGUMENTS:
        return mark_text(text[:LONGEST_ARGUMENTS]) + "…"
    try:
        indented = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return mark_text(text)
    # The text of a file in an argument is read line by line. A backslash of the text itself stands
    # twice in JSON, and what follows it is no line end.
    lines = ESCAPE_IN_JSON.sub(_break_line_at_escape, indented)
    return mark_text(lines)


def _break_line_at_escape(escape: re.Match[str]) -> str:
    if escape[0] == "\\n":
        return "\n"
    return escape[0]


def _build_live_call_box(request: BoxBuildRequest) -> Iterator[LayoutBox]:
    context = request.context
    name, arguments = context.items.live_call_text(request.index)
    progress = format_count(len(arguments), "writing… {n} character", "writing… {n} characters")
    line = ToolCallLine(
        tool_call_lines.format_call(name, arguments), CallStatus.RUNNING, outcome=progress
    )
    toggle = ToggleSection(context.section_key("live", request.index))
    yield ToolCallBox(context.ink, context.width, line, toggle)


def _build_fold_box(request: BoxBuildRequest) -> Iterator[LayoutBox]:
    """Builds the line that says what was shortened, by how much, and whether that was undone.

    A fold replaces a part of what the model sees with a shorter text. Folds that were made at
    once share one line, and "Show" opens the first of them.
    """
    context = request.context
    folds = context.items.folds_of_line(request.index)
    fact = request.item.source_fact
    if folds:
        fact = folds[0]
    if not isinstance(fact, facts.Folded):
        return

    # Markers folded with a document may stay in force when its own fold is undone.
    own_names = [fold.fold for fold in folds if fold.kind is fact.kind]
    folds_in_force = context.items.history.branch.live.keys()
    is_undone = folds_in_force.isdisjoint(own_names)
    history = context.items.history
    counted_folds = select_counted_folds(folds, folds_in_force)
    tokens_before = sum(fold.tokens_before for fold in counted_folds)
    tokens_after = sum(fold.tokens for fold in counted_folds)
    change = describe_token_change(
        fact, history.facts, request.item.fact_seq, tokens_before, tokens_after
    )
    words = describe_fold(fact, len(counted_folds), change)
    open_fold = chat_actions.OpenFold(fact.fold)
    yield FoldLineBox(context.ink, context.width, words, tr("Show"), open_fold, undone=is_undone)


def _build_file_changes_box(request: BoxBuildRequest) -> Iterator[LayoutBox]:
    context = request.context
    item = request.item
    words = context.items.describe_changes_line(item)
    is_undone = context.items.is_changes_line_undone(item)
    open_changes = OpenChanges(item.fact_seq)
    yield FoldLineBox(
        context.ink, context.width, words, tr("Review"), open_changes, undone=is_undone
    )


def _build_note_boxes(request: BoxBuildRequest) -> Iterator[LayoutBox]:
    context = request.context
    text = make_safe_text(request.item.text[:LONGEST_NOTE])
    fact = request.item.source_fact
    if isinstance(fact, facts.FoldFailed):
        yield _build_card_of_failed_fold(request, fact.kind, text)
        return
    paragraph = ParagraphBlock(backticks_to_code_spans(text))
    yield basic_boxes.TextBox(
        context.ink, context.width, paragraph, font=context.ink.small, colour="muted"
    )


def _build_card_of_failed_fold(
    request: BoxBuildRequest, kind: facts.FoldKind, explanation: str
) -> FailureCardBox:
    context = request.context
    title = tr("No summary was written, and nothing is lost")
    if kind in KINDS_OF_PARTS:
        title = tr("Nothing was shortened, and nothing is lost")
    buttons: tuple[CardButton, ...] = ()
    # Only the last failure can be tried again: a later fold has settled the others.
    if request.index == context.items.failed_fold:
        buttons = (CardButton(tr("Try again"), AskToFold(kind)),)
    return FailureCardBox(context.ink, context.width, title, explanation, buttons, failed=False)


def _build_failure_card(request: BoxBuildRequest) -> Iterator[LayoutBox]:
    context = request.context
    fact = request.item.source_fact
    cause = ""
    if isinstance(fact, facts.TurnEnded):
        cause = fact.cause
    title, buttons = failure_title_and_actions(cause)
    explanation = make_safe_text(request.item.text[:LONGEST_NOTE])
    if not context.items.can_continue_after(request.index):
        # It is past: a red card would say that something is still wrong.
        words = backticks_to_code_spans(f"{title}: {explanation}")
        yield basic_boxes.TextBox(
            context.ink,
            context.width,
            ParagraphBlock(words),
            font=context.ink.small,
            colour="muted",
        )
        return
    yield FailureCardBox(context.ink, context.width, title, explanation, buttons, failed=True)


def _build_plan_boxes(request: BoxBuildRequest) -> Iterator[LayoutBox]:
    """Builds the agent's plan: a heading that says how many steps are done, and below it, while
    the heading is open, one line for each step.
    """
    context = request.context
    fact = request.item.source_fact
    if not isinstance(fact, facts.TodoSet):
        return
    states = [state for _, state in fact.items]
    title = tr("Plan · {done} of {all} done", done=states.count("done"), all=len(states))
    is_open, toggle = context.section_state("open", request.item.fact_seq, 0, default=True)
    yield ExpandableHeaderBox(context.ink, context.width, title, toggle, opened=is_open)
    if not is_open:
        return

    signs = {"done": "☑", "doing": "◐", "open": "☐"}
    for text, state in fact.items[:MOST_PLAN_STEPS]:
        span = StyledSpan(make_safe_text(text[:1000]))
        paragraph = ParagraphBlock((span,), indent=1, marker=signs.get(state, "☐"))
        colour = "text"
        if state == "done":
            colour = "muted"
        yield basic_boxes.TextBox(context.ink, context.width, paragraph, gap=3, colour=colour)


def _build_rewound_header(request: BoxBuildRequest) -> Iterator[LayoutBox]:
    context = request.context
    rewound = context.items.rewound_range_of(request.index)
    title = format_count(
        rewound.count,
        "{n} item that is no longer part of this conversation",
        "{n} items that are no longer part of this conversation",
    )
    toggle = ToggleSection(context.section_key("rewound", request.index))
    yield ExpandableHeaderBox(context.ink, context.width, title, toggle, opened=rewound.are_shown)


def _build_rewound_boxes(request: BoxBuildRequest) -> Iterator[LayoutBox]:
    yield from _build_rewound_header(request)
    context = request.context
    if context.items.can_return_to_rewound(request.item):
        label = tr("Return to these messages")
        last_of_them = request.item.fact_seq - 1
        way_back = ActOnMessage(MessageAct.RETURN, last_of_them)
        yield basic_boxes.ActionLineBox(context.ink, context.width, label, way_back, gap=2)


def _build_retry_card(request: BoxBuildRequest) -> Iterator[LayoutBox]:
    context = request.context
    items = context.items
    title = describe_retry_pause(items.retry_at - context.now())
    explanation = make_safe_text(request.item.text[:1000])
    buttons = [CardButton(tr("Try now"), chat_actions.ConversationAct.RETRY_MODEL_NOW)]
    if items.awaited_fold is not None:
        wait = items.describe_wait_for_fold()
        go_on = CardButton(tr("Go on without a summary"), chat_actions.ConversationAct.STOP_FOLD)
        if explanation:
            explanation = join_sentences(explanation, wait)
            buttons.append(go_on)
        else:
            title = wait
            buttons = [go_on]
    yield FailureCardBox(context.ink, context.width, title, explanation, buttons, failed=False)


_BoxBuilder = Callable[[BoxBuildRequest], Iterator[LayoutBox]]
_BOX_BUILDERS: dict[TranscriptItemKind, _BoxBuilder] = {
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
    TranscriptItemKind.LIVE_NOTE: _build_note_boxes,
    TranscriptItemKind.PLAN: _build_plan_boxes,
    TranscriptItemKind.REWOUND: _build_rewound_boxes,
    TranscriptItemKind.WAITING: _build_retry_card,
    TranscriptItemKind.ERROR: _build_failure_card,
    TranscriptItemKind.ADDITION: _build_grouped_boxes,
}
_GROUPED_BOX_BUILDERS: dict[TranscriptItemKind, _BoxBuilder] = {
    TranscriptItemKind.REASONING: _build_reasoning_boxes,
    TranscriptItemKind.CALL: _build_call_boxes,
    TranscriptItemKind.ADDITION: _build_addition_boxes,
}
