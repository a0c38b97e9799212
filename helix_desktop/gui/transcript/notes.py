"""What the chat itself says between what the user, the model and the tools say."""

from __future__ import annotations

from collections.abc import Sequence

from helix_desktop.engine.changes.story import written
from helix_desktop.engine.facts import (
    NO_LONGER,
    Fact,
    FilesChanged,
    FoldFailed,
    Forgotten,
    ModelReplied,
    Stop,
    Text,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.gui.engine_sentences import in_a_row, said
from helix_desktop.gui.shared.folds import kind_words
from helix_desktop.gui.words import count, numeral, tr


def note(fact: Fact) -> str:
    """What is to be said about a fact; empty where it speaks for itself."""
    match fact:
        case UserSaid(by=by) if by:
            return _on_behalf(fact)
        case ModelReplied(stop=stop):
            return _cut_short(stop)
        case TurnEnded():
            return _ended(fact)
        case FoldFailed(kind=kind, why=why):
            return tr("Couldn't fold the context ({kind}): {why}", kind=kind_words(kind), why=said(why))
        case Forgotten(entries=entries, facts=facts):
            return tr(
                "Content was permanently removed here: {entries}, {facts}.",
                entries=count(len(entries), "{n} entry", "{n} entries"),
                facts=count(facts, "{n} fact", "{n} facts"),
            )
    return ""


def _on_behalf(fact: UserSaid) -> str:
    kind, _, name = fact.by.partition(":")
    over = {
        "rules": tr("The rules in {name} no longer apply.", name=name),
        "skill": tr("The skill {name} is no longer in use.", name=name),
        "mode": tr("Plan mode has ended."),
    }
    begun = {
        "rules": tr("From here on, the full text of the rules in {name} is included.", name=name),
        "skill": tr("From here on, the full text of the skill {name} is included.", name=name),
        "plan": tr("From here on, the full text of the approved plan is included."),
        "hook": tr("A hook ({name}) sent a message to the agent.", name=name),
        "mode": tr("Plan mode: nothing is changed until you approve a plan."),
        "agent": tr("A message from the agent that delegated this task."),
    }
    ended = any(isinstance(part, Text) and part.text == NO_LONGER for part in fact.parts)
    return (over if ended else begun).get(kind, fact.by)


def changed_files(facts: Sequence[FilesChanged]) -> str:
    """What a turn did to files, in a line; empty where it did nothing."""
    if not facts:
        return ""
    named = {name for fact in facts for name in fact.names}
    files = len(named) + sum(max(0, fact.files - len(fact.names)) for fact in facts)
    added, removed = sum(fact.added for fact in facts), sum(fact.removed for fact in facts)
    words = count(files, "{n} file changed", "{n} files changed") + f" +{numeral(added)} −{numeral(removed)}"
    left = sorted({name for fact in facts for name in fact.left_out})
    if not left:
        return words
    uncovered = tr("Undo does not cover: {names}", names=", ".join(map(written, left)))
    return in_a_row(words, uncovered) if files else uncovered


def _cut_short(stop: Stop) -> str:
    words = {
        Stop.LENGTH: tr("The answer reached the model's length limit."),
        Stop.FILTERED: tr("The provider withheld the rest of the answer."),
        Stop.CUT: tr("The answer was cut off here. The part that arrived is saved."),
    }
    return words.get(stop, "")


def _ended(fact: TurnEnded) -> str:
    words = {
        TurnEnd.STOPPED: tr("Stopped."),
        TurnEnd.FAILED: tr("Something went wrong."),
        TurnEnd.STEP_LIMIT: tr("The step limit was reached."),
        TurnEnd.SPENDING_LIMIT: tr("The cost limit was reached."),
        TurnEnd.REPEATING: tr("The agent was repeating itself."),
    }
    return in_a_row(words[fact.reason], said(fact.why)) if fact.reason in words else ""
