"""The sentences that the program itself adds to the chat."""

from collections.abc import Sequence

from helix_desktop.engine import facts
from helix_desktop.engine.changes.turn_changes import printable_path
from helix_desktop.gui.common.fold_descriptions import describe_fold_kind
from helix_desktop.gui.sentence_translation import join_sentences, translate_sentences
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import format_count, format_number, tr, translate_name


def describe_fact_if_needed(fact: facts.Fact) -> str:
    match fact:
        case facts.UserSaid(by=by) if by:
            return _describe_automatic_message(fact)
        case facts.ModelReplied(stop=stop):
            return translate_name("cut reply", stop)
        case facts.TurnEnded():
            return _describe_end_of_turn(fact)
        case facts.FoldFailed(kind=kind, why=why):
            first = why.partition("; ")[0].rstrip(
                "."
            )  # Each attempt adds a reason. Only the first reason is shown.
            why = translate_sentences(f"{first}.")
            return tr("{kind}: {why}", kind=describe_fold_kind(kind).capitalize(), why=why)
        case facts.Forgotten(entries=entries, facts=recorded_facts):
            return tr(
                "Content was permanently removed here: {entries}, {facts}.",
                entries=format_count(len(entries), "{n} entry", "{n} entries"),
                facts=format_count(recorded_facts, "{n} record", "{n} records"),
            )
    return ""


def _describe_automatic_message(fact: facts.UserSaid) -> str:
    kind, _, name = make_safe_text(fact.by).partition(":")
    ended = any(
        isinstance(part, facts.Text) and part.text == facts.NO_LONGER for part in fact.parts
    )
    table = "message of the program that ends something" if ended else "message of the program"
    key = kind if name or kind != "agent" else "agent above"
    words = translate_name(table, key, otherwise=fact.by, name=name)
    if kind == "plan":
        text = "".join(part.text for part in fact.parts if isinstance(part, facts.Text))
        words += "".join(text.partition("\n\n")[1:])
    return words


def describe_changed_files(recorded_facts: Sequence[facts.FilesChanged]) -> str:
    if not recorded_facts:
        return ""
    named = {name for fact in recorded_facts for name in fact.names}
    files = len(named) + sum(max(0, fact.files - len(fact.names)) for fact in recorded_facts)
    added, removed = (
        sum(fact.added for fact in recorded_facts),
        sum(fact.removed for fact in recorded_facts),
    )
    words = format_count(files, "{n} file changed", "{n} files changed")
    words += f" +{format_number(added)} −{format_number(removed)}"
    left = sorted({name for fact in recorded_facts for name in fact.left_out})
    if not left:
        return words if files else ""
    uncovered = tr("Undo cannot restore: {names}", names=", ".join(map(printable_path, left)))
    return join_sentences(words, uncovered) if files else uncovered


def _describe_end_of_turn(fact: facts.TurnEnded) -> str:
    if fact.reason is facts.TurnEnd.DONE:
        return translate_sentences(fact.why)  # Usually, nothing is to be said.
    words = translate_name("end of a turn", fact.reason)
    return join_sentences(words, translate_sentences(fact.why)) if words else ""
