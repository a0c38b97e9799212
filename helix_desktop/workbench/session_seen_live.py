"""Decides what an agent's file adds to a conversation that saw the same session live.

The gateway and ACP record a session while it happens; a file of the agent is read later
and tells most of it again. `decide_for_session_seen_live` finds the replies that both
have and returns `Unchanged`, `Append` (the session went on where nobody saw it live) or
`Apart` (the file has messages that would have to stand in the middle of what is here).
`match_first_messages` is the other direction: a request tells again what was imported.
All functions are pure.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from helix_desktop.engine.agent_additions import split_off_agent_additions
from helix_desktop.engine.context_usage import compute_cost
from helix_desktop.engine.facts import (
    BroughtIn,
    Fact,
    Forgotten,
    ModelReplied,
    Purpose,
    Recorded,
    Rewound,
    Spent,
    Text,
    ToolCall,
    ToolReturned,
    Usage,
    UserPart,
    UserSaid,
)
from helix_desktop.engine.state.fold_covers import first_and_last
from helix_desktop.engine.view import build_state
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.history_facts import FactDraft
from helix_desktop.histories.program_names import SAME_REPLY_SECONDS
from helix_desktop.histories.seen_twice import keys_of_reply
from helix_desktop.providers.model_prices import shipped_prices
from helix_desktop.workbench.import_decision import SAID, Append, Unchanged


@dataclass(frozen=True, slots=True)
class Apart:
    """The file's session stays in a conversation of its own, beside the one seen live."""


@dataclass(frozen=True, slots=True)
class ReplyHere:
    """A reply of the conversation. `is_untimed`: it was told again later, by the agent's
    history or by its file, so that its time says nothing.
    """

    seq: int
    ended: float
    reply: ModelReplied
    is_untimed: bool
    is_from_history_of_agent: bool
    is_on_path: bool


@dataclass(frozen=True, slots=True)
class ReplyInFile:
    """A reply of the file. `number`: of its draft, counted from 1."""

    number: int
    ended: float
    reply: ModelReplied


def decide_for_session_seen_live(
    facts: Sequence[Recorded], drafts: Sequence[FactDraft], *, is_reply_under_way: bool
) -> Unchanged | Append | Apart:
    """Return what to do with a session that was read. `facts`: of the conversation that saw it
    live. `is_reply_under_way`: a reply is being written there now.
    """
    if is_reply_under_way:
        # What the file has more than is here will come through the gateway, too.
        return Unchanged()
    decision = _compare_session_with_file(facts, drafts)
    has_forgotten_text = any(isinstance(recorded.fact, Forgotten) for recorded in facts)
    if isinstance(decision, Apart) and has_forgotten_text:
        # A conversation of its own would have the forgotten text again.
        return Unchanged()
    return decision


def _compare_session_with_file(
    facts: Sequence[Recorded], drafts: Sequence[FactDraft]
) -> Unchanged | Append | Apart:
    """Return what of the file is new, or `Apart` if the two cannot be one conversation."""
    replies_here = list_replies_here(facts)
    replies_on_path = [reply for reply in replies_here if reply.is_on_path]
    replies_in_file = list_replies_in_file(drafts)
    matched = match_replies_in_order(replies_in_file, replies_on_path)
    if replies_on_path and replies_in_file and not matched:
        return Apart()
    last_common_number = 0
    last_common_seq = 0
    if matched:
        last_common_number = max(matched)
        last_common_seq = matched[last_common_number].seq
    if _lacks_earlier_replies(replies_in_file, replies_here, last_common_number, matched):
        return Apart()
    unstated_costs = _list_unstated_costs(facts, drafts, matched, replies_here)
    first_new = _find_first_new_draft(facts, drafts, last_common_number, last_common_seq)
    has_new_reply = any(reply.number >= first_new for reply in replies_in_file)
    if not has_new_reply:
        # Words and results without a reply are on their way through the gateway.
        return _append_costs_alone(drafts, unstated_costs)
    if replies_on_path and replies_on_path[-1].seq != last_common_seq:
        return Apart()
    places = _places_of_drafts(drafts[: first_new - 1], matched)
    return Append(first_new, places, changes=unstated_costs)


def _append_costs_alone(drafts: Sequence[FactDraft], costs: tuple[Fact, ...]) -> Append | Unchanged:
    if not costs:
        return Unchanged()
    return Append(first_new=len(drafts) + 1, places={}, changes=costs)


def is_continued_here(facts: Sequence[Recorded]) -> bool:
    """Whether something was said or taken back since the last import."""
    for recorded in reversed(facts):
        if isinstance(recorded.fact, BroughtIn) and recorded.fact.run:
            return False
        if isinstance(recorded.fact, SAID + (Rewound,)):
            return True
    return True


def list_replies_here(facts: Sequence[Recorded]) -> list[ReplyHere]:
    """Return all replies of a conversation, also of branches that were left."""
    seqs_on_path = {recorded.seq for recorded in build_state(facts).facts_on_path()}
    imported_spans = list_imported_spans(facts)
    replies: list[ReplyHere] = []
    for recorded in facts:
        if not isinstance(recorded.fact, ModelReplied):
            continue
        spans_of_reply = [span for span in imported_spans if recorded.seq in span.seqs]
        is_told_by_agent = False
        for span in spans_of_reply:
            if span.is_told_by_agent:
                is_told_by_agent = True
        reply = ReplyHere(
            recorded.seq,
            recorded.time,
            recorded.fact,
            is_untimed=bool(spans_of_reply),
            is_from_history_of_agent=is_told_by_agent,
            is_on_path=recorded.seq in seqs_on_path,
        )
        replies.append(reply)
    return replies


def list_replies_in_file(drafts: Sequence[FactDraft]) -> list[ReplyInFile]:
    """Return the replies that say or call something. Of one that has just begun, a file may have
    the thoughts alone.
    """
    replies = []
    for number, draft in enumerate(drafts, 1):
        if isinstance(draft.fact, ModelReplied) and keys_of_reply(draft.fact):
            replies.append(ReplyInFile(number, draft.time, draft.fact))
    return replies


@dataclass(frozen=True, slots=True)
class ImportedSpan:
    """Facts that were not recorded live. `is_told_by_agent`: a request at the gateway had them,
    and no file.
    """

    seqs: range
    is_told_by_agent: bool


def list_imported_spans(facts: Sequence[Recorded]) -> list[ImportedSpan]:
    spans: list[ImportedSpan] = []
    for recorded in facts:
        if isinstance(recorded.fact, BroughtIn):
            seqs = range(recorded.fact.first, recorded.seq)
            # Only imports of files have a run.
            spans.append(ImportedSpan(seqs, is_told_by_agent=not recorded.fact.run))
    return spans


def match_replies_in_order(
    replies_in_file: Sequence[ReplyInFile], replies_here: Sequence[ReplyHere]
) -> dict[int, ReplyHere]:
    """Return, by the number of its draft, the reply here that is the same. Both have the same
    order, and as many as possible are matched.

    This is the longest common subsequence as Hunt and Szymanski find it: for each length
    the chain of pairs that ends first is remembered.
    """
    positions_by_key = _index_replies_by_key(replies_here)
    # Both by the length of a chain, less one: the smallest position at which a chain of so
    # many pairs can end, and the last pair of that chain.
    end_positions: list[int] = []
    last_pairs: list[_Pair] = []
    for reply_in_file in replies_in_file:
        for position in _positions_of_same_reply(reply_in_file, replies_here, positions_by_key):
            length_before = bisect_left(end_positions, position)
            if length_before < len(end_positions) and end_positions[length_before] == position:
                continue  # Of two equal replies of the file, the first one is the one here.
            previous_pair = None
            if length_before > 0:
                previous_pair = last_pairs[length_before - 1]
            pair = _Pair(reply_in_file.number, replies_here[position], previous_pair)
            # This replaces the entry of that length, or adds one if no chain was so long.
            end_positions[length_before : length_before + 1] = [position]
            last_pairs[length_before : length_before + 1] = [pair]
    if not last_pairs:
        return {}
    matched: dict[int, ReplyHere] = {}
    # From the last pair of the longest chain back to its first one.
    next_pair: _Pair | None = last_pairs[-1]
    while next_pair is not None:
        matched[next_pair.number] = next_pair.reply
        next_pair = next_pair.previous
    return matched


def _index_replies_by_key(replies_here: Sequence[ReplyHere]) -> dict[str, list[int]]:
    positions_by_key: dict[str, list[int]] = {}
    for position, reply_here in enumerate(replies_here):
        for key in keys_of_reply(reply_here.reply):
            positions_by_key.setdefault(key, []).append(position)
    return positions_by_key


def _positions_of_same_reply(
    reply_in_file: ReplyInFile,
    replies_here: Sequence[ReplyHere],
    positions_by_key: dict[str, list[int]],
) -> list[int]:
    """Return where the same reply stands in `replies_here`, the last position first, so that one
    reply of the file extends each chain of the search only once.
    """
    positions: set[int] = set()
    for key in keys_of_reply(reply_in_file.reply):
        positions.update(positions_by_key.get(key, ()))
    positions_of_same: list[int] = []
    for position in sorted(positions, reverse=True):
        reply_here = replies_here[position]
        do_times_fit = _may_be_the_same(reply_in_file, reply_here)
        if do_times_fit and is_same_reply(reply_in_file.reply, reply_here.reply):
            positions_of_same.append(position)
    return positions_of_same


@dataclass(frozen=True, slots=True)
class _Pair:
    """A reply of the file and the same one here, and the previous pair in a chain."""

    number: int
    reply: ReplyHere
    previous: "_Pair | None"


def is_same_reply(first: ModelReplied, second: ModelReplied) -> bool:
    """Whether both call the same, or say the same if not both of them call something: of a reply
    that is being written, a file may have the text alone.
    """
    calls_of_first = _keys_of_calls(first)
    calls_of_second = _keys_of_calls(second)
    if calls_of_first and calls_of_second:
        return not calls_of_first.isdisjoint(calls_of_second)
    return not keys_of_reply(first).isdisjoint(keys_of_reply(second))


def _keys_of_calls(reply: ModelReplied) -> set[str]:
    calls = tuple(part for part in reply.parts if isinstance(part, ToolCall))
    return keys_of_reply(replace(reply, parts=calls))


def _may_be_the_same(reply_in_file: ReplyInFile, reply_here: ReplyHere) -> bool:
    """Whether the times allow it. An agent may note a reply as soon as it begins."""
    if reply_here.is_untimed:
        return True
    earliest = reply_here.ended - reply_here.reply.seconds - SAME_REPLY_SECONDS
    latest = reply_here.ended + SAME_REPLY_SECONDS
    return earliest <= reply_in_file.ended <= latest


def _lacks_earlier_replies(
    replies_in_file: Sequence[ReplyInFile],
    replies_here: Sequence[ReplyHere],
    last_common_number: int,
    matched: dict[int, ReplyHere],
) -> bool:
    """Whether the file has a reply of a model before the last common one that is not here."""
    keys_here: set[str] = set()
    for reply_here in replies_here:
        keys_here |= keys_of_reply(reply_here.reply)
    for reply_in_file in replies_in_file:
        if reply_in_file.number >= last_common_number or reply_in_file.number in matched:
            continue
        # What is on a branch that was left here is not lost.
        is_elsewhere_here = keys_of_reply(reply_in_file.reply) <= keys_here
        if _is_from_model(reply_in_file.reply) and not is_elsewhere_here:
            return True
    return False


def _is_from_model(reply: ModelReplied) -> bool:
    """Whether a model wrote it. Agents write replies such as "No response requested."
    themselves.
    """
    has_calls = any(isinstance(part, ToolCall) for part in reply.parts)
    return has_calls or bool(reply.usage.output)


def _list_unstated_costs(
    facts: Sequence[Recorded],
    drafts: Sequence[FactDraft],
    matched: dict[int, ReplyHere],
    replies_here: Sequence[ReplyHere],
) -> tuple[Fact, ...]:
    """Return what replies cost that the gateway knows only from the agent's history, which
    does not say that. `replies_here`: one of them may have been seen live before the agent told
    it again, as Claude Code does behind its own summary.
    """
    recorded_costs = _count_costs_from_files(facts)
    paid_replies: dict[tuple[int, int], list[ModelReplied]] = {}
    for reply_here in replies_here:
        tokens = (reply_here.reply.usage.input, reply_here.reply.usage.output)
        paid_replies.setdefault(tokens, []).append(reply_here.reply)
    costs: list[Fact] = []
    for number in sorted(matched):
        reply_here = matched[number]
        reply_in_file = drafts[number - 1].fact
        is_unstated = reply_here.is_from_history_of_agent and not reply_here.reply.usage.input
        if not is_unstated or not isinstance(reply_in_file, ModelReplied):
            continue
        if not reply_in_file.usage.input:
            continue
        tokens = (reply_in_file.usage.input, reply_in_file.usage.output)
        if any(is_same_reply(reply_in_file, paid) for paid in paid_replies.get(tokens, ())):
            continue
        model = reply_in_file.model
        usage = replace(reply_in_file.usage, cost=0.0)
        if recorded_costs[model, usage]:
            # An earlier import has appended this one.
            recorded_costs[model, usage] -= 1
            continue
        cost = compute_cost(usage, shipped_prices(model))
        costs.append(Spent(Purpose.STEP, model, replace(usage, cost=cost)))
    return tuple(costs)


def _count_costs_from_files(facts: Sequence[Recorded]) -> Counter[tuple[str, Usage]]:
    """Count, by model and usage, what earlier imports have appended of unstated costs."""
    spans = [span for span in list_imported_spans(facts) if not span.is_told_by_agent]
    counts = Counter[tuple[str, Usage]]()
    for recorded in facts:
        is_from_file = any(recorded.seq in span.seqs for span in spans)
        if isinstance(recorded.fact, Spent) and is_from_file:
            counts[recorded.fact.model, replace(recorded.fact.usage, cost=0.0)] += 1
    return counts


def _find_first_new_draft(
    facts: Sequence[Recorded],
    drafts: Sequence[FactDraft],
    last_common_number: int,
    last_common_seq: int,
) -> int:
    """Return the number of the first draft behind the last common reply that is not here. What
    answers that reply may be here already, without the reply to it.
    """
    calls_here: set[str] = set()
    words_here: set[str] = set()
    for recorded in build_state(facts).facts_on_path():
        if recorded.seq <= last_common_seq:
            continue
        if isinstance(recorded.fact, ToolReturned):
            calls_here.add(recorded.fact.call)
        elif isinstance(recorded.fact, UserSaid):
            words_here.add(words_of_user(recorded.fact.parts))
    for number in range(last_common_number + 1, len(drafts) + 1):
        match drafts[number - 1].fact:
            case ToolReturned(call=call):
                is_new = call not in calls_here
            case UserSaid(parts=parts):
                is_new = words_of_user(parts) not in words_here
            case fact:
                # Not the end of a turn, nor a fold of the agent's over messages that are here.
                is_new = isinstance(fact, ModelReplied)
        if is_new:
            return number
    return len(drafts) + 1


def _places_of_drafts(drafts: Sequence[FactDraft], matched: dict[int, ReplyHere]) -> dict[int, int]:
    """Return which fact here stands for each draft: for what is not matched, the last one before
    it, and for the beginning the first one of all.
    """
    matched_seqs = [reply.seq for reply in matched.values()]
    latest_matched_seq = min(matched_seqs, default=1)
    places: dict[int, int] = {}
    for number in range(1, len(drafts) + 1):
        if number in matched:
            latest_matched_seq = matched[number].seq
        places[number] = latest_matched_seq
    return places


def words_of_user(parts: Sequence[UserPart]) -> str:
    """Return what a person typed, without white space that agents change."""
    words, _ = split_off_agent_additions(parts)
    return " ".join(words.split())


# --- A request that tells again what was imported


@dataclass(frozen=True, slots=True)
class ToldMessage:
    """A message of a request: a reply, or what a user says with results of calls."""

    reply: ModelReplied | None
    words: str = ""
    results: frozenset[str] = frozenset()


def told_message_from_texts(texts: Sequence[str], results: Sequence[str]) -> ToldMessage:
    words = words_of_user(tuple(Text(text) for text in texts))
    return ToldMessage(reply=None, words=words, results=frozenset(results))


def match_first_messages(
    facts: Sequence[Recorded], request_messages: Sequence[ToldMessage], after_seq: int = 0
) -> tuple[int, ...]:
    """Return, for each of the first messages of a request that are recorded behind the fact
    `after_seq`, the number of its last fact. Empty if not even the first reply is the same.
    """
    recorded_messages: list[Recorded] = []
    for recorded in _list_unfolded_facts(facts):
        if isinstance(recorded.fact, SAID) and recorded.seq > after_seq:
            recorded_messages.append(recorded)
    last_seqs: list[int] = []
    is_reply_matched = False
    certain_count = 0
    position = 0
    last_seq = after_seq
    for message in request_messages:
        if message.reply is not None:
            end_position = _end_of_same_reply(recorded_messages, position, message.reply)
            if end_position is None:
                break
            is_reply_matched = True
            is_certain = True
        else:
            end_position, is_certain = _end_of_same_words(recorded_messages, position, message)
        if end_position > position:
            last_seq = recorded_messages[end_position - 1].seq
        position = end_position
        last_seqs.append(last_seq)
        if is_certain:
            certain_count = len(last_seqs)
    if not is_reply_matched:
        return ()
    return tuple(last_seqs[:certain_count])


def _list_unfolded_facts(facts: Sequence[Recorded]) -> Iterator[Recorded]:
    """Yield the facts on the path before the first one that a fold covers: the agent's request
    has more of it than the view would show.
    """
    state = build_state(facts)
    first_folded = len(facts) + 1
    for fold in state.live_folds:
        first_covered, _last_covered = first_and_last(fold.cover)
        first_folded = min(first_folded, first_covered)
    for recorded in state.facts_on_path():
        if recorded.seq < first_folded:
            yield recorded


def _end_of_same_reply(
    messages: Sequence[Recorded], position: int, reply: ModelReplied
) -> int | None:
    """Return the position behind the reply, or None if another one follows here. An agent may
    send several replies as one message.
    """
    while position < len(messages) and not isinstance(messages[position].fact, ModelReplied):
        position += 1
    end = position
    while end < len(messages):
        fact = messages[end].fact
        if not isinstance(fact, ModelReplied) or not is_same_reply(fact, reply):
            break
        end += 1
    if end == position:
        return None
    return end


def _end_of_same_words(
    messages: Sequence[Recorded], position: int, message: ToldMessage
) -> tuple[int, bool]:
    """Return the position behind the message's facts, and whether all of it is among them."""
    missing_results = set(message.results)
    missing_words = message.words
    end_position = position
    while end_position < len(messages):
        fact = messages[end_position].fact
        if isinstance(fact, ToolReturned) and fact.call in missing_results:
            missing_results.discard(fact.call)
        elif isinstance(fact, UserSaid) and words_of_user(fact.parts) in ("", message.words):
            if words_of_user(fact.parts) == message.words:
                missing_words = ""
        else:
            break
        end_position += 1
    has_content = bool(message.results or message.words)
    is_all_there = not missing_words and not missing_results
    return end_position, has_content and is_all_there
