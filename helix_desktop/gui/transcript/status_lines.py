"""The sentences that the program itself adds to the chat."""

import re
from collections.abc import Sequence

from helix_desktop.engine import facts
from helix_desktop.engine.changes.turn_changes import printable_path
from helix_desktop.gui.common.fold_descriptions import describe_fold_kind
from helix_desktop.gui.sentence_translation import join_sentences, translate_sentences
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import format_count, format_number, tr, translate_name

# How the writer of summaries names an attempt and its failure (`fold_document_writer.py`).
_ATTEMPT_OF_MODEL = re.compile(r"(?P<model>[^,]+), (?:using|with) [^:]*: (?P<reason>.+)", re.DOTALL)


def describe_fact_if_needed(fact: facts.Fact) -> str:
    """Returns the grey line that says what happened, for the facts that have one, or
    "".
    """
    match fact:
        case facts.UserSaid(by=by) if by:
            return _describe_automatic_message(fact)
        case facts.ModelReplied(stop=stop):
            return translate_name("cut reply", stop)
        case facts.TurnEnded():
            return _describe_end_of_turn(fact)
        case facts.FoldFailed(kind=kind, why=why):
            return _describe_failed_attempt(kind, why)
        case facts.Forgotten(entries=entries, facts=record_count):
            outputs = format_count(len(entries), "{n} stored output", "{n} stored outputs")
            records = format_count(record_count, "{n} record", "{n} records")
            return tr(
                "Content was permanently removed here: {entries}, {facts}.",
                entries=outputs,
                facts=records,
            )
    return ""


def _describe_failed_attempt(kind: facts.FoldKind, why: str) -> str:
    """Says why something was not shortened, and which model failed. Each attempt adds a reason;
    only the first one is shown.
    """
    first_reason, _, _ = why.partition("; ")
    attempt = _ATTEMPT_OF_MODEL.fullmatch(first_reason)
    if attempt is None:
        what_failed = describe_fold_kind(kind).capitalize()
        why_it_failed = translate_sentences(first_reason.rstrip(".") + ".")
        return tr("{kind}: {why}", kind=what_failed, why=why_it_failed)
    reason = translate_sentences(attempt["reason"].rstrip(".") + ".")
    sentence = reason[0].upper() + reason[1:]
    asked_model = tr("{model} was asked to write it.", model=attempt["model"])
    return join_sentences(sentence, asked_model)


def _describe_automatic_message(fact: facts.UserSaid) -> str:
    kind, _, name = make_safe_text(fact.by).partition(":")
    texts = [part.text for part in fact.parts if isinstance(part, facts.Text)]
    table = "message of the program"
    if facts.NO_LONGER in texts:
        table = "message of the program that ends something"
    key = kind
    if kind == "agent" and not name:
        key = "agent above"
    words = translate_name(table, key, otherwise=fact.by, name=name)
    if kind == "plan":  # The sentence stands for the first paragraph.
        _, blank_line, plan = "".join(texts).partition("\n\n")
        words += blank_line + plan
    return words


def describe_changed_files(
    recorded_facts: Sequence[facts.FilesChanged], *, is_partly_undone: bool = False
) -> str:
    """Describes which files changed and by how many lines. After an undo of a part, only the
    page of the changes knows how many lines are left, so no number of lines is said.
    """
    if not recorded_facts:
        return ""
    named_files: set[str] = set()
    unnamed_files = 0
    left_out: set[str] = set()
    added_lines = 0
    removed_lines = 0
    for fact in recorded_facts:
        named_files.update(fact.names)
        # A fact names only some of very many files, so the others may be counted twice.
        unnamed_files += max(0, fact.files - len(fact.names))
        left_out.update(fact.left_out)
        added_lines += fact.added
        removed_lines += fact.removed
    sentences: list[str] = []
    file_count = len(named_files) + unnamed_files
    if file_count:
        words = format_count(file_count, "{n} file changed", "{n} files changed")
        if is_partly_undone:
            words += " · " + tr("parts were undone or redone since")
        elif added_lines or removed_lines:  # A new empty file has no lines to count.
            words += f" +{format_number(added_lines)} −{format_number(removed_lines)}"
        sentences.append(words)
    if left_out:
        names = ", ".join(map(printable_path, sorted(left_out)))
        sentences.append(tr("Undo cannot restore: {names}", names=names))
    return join_sentences(*sentences)


def _describe_end_of_turn(fact: facts.TurnEnded) -> str:
    if fact.reason is facts.TurnEnd.DONE:
        return translate_sentences(fact.why)  # Usually, nothing is to be said.
    words = translate_name("end of a turn", fact.reason)
    if not words:
        return ""
    return join_sentences(words, translate_sentences(fact.why))
