"""Folds in words and documents in pieces: titles, lines, sections, sources, and the story as Markdown. No widgets."""

from __future__ import annotations

import re
from collections.abc import Sequence

from helix_desktop.engine import budget
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Attachment, FoldKind, PartRef, ToolCall, ToolReturned, UserSaid
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.meter import short
from helix_desktop.gui.shared.figures import day, lasted
from helix_desktop.gui.shared.folds import change, covered, kept
from helix_desktop.gui.shared.folds import title as fold_title
from helix_desktop.gui.shared.policies import policy_choices
from helix_desktop.gui.timeline.story import Event, Story
from helix_desktop.gui.transcript.tool_lines import called
from helix_desktop.gui.words import count, numeral, tr

NAMED = 2  # calls in a title
NEAR = 400  # facts between a call and its output, at most

_HEADING = re.compile(r"^#{1,3}[ \t]+(.+?)[ \t]*#*$")
_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_SOURCE = re.compile(r"\[(\d{1,7})\](?!\()")


def title(event: Event) -> str:
    """What the list calls an event: an excerpt by the call whose output it is of."""
    if not event.folds:
        return tr("Conversation started")
    if event.kind is FoldKind.EXCERPT and (named := _calls(event)):
        more = len(event.folds) - len(named)
        rest = count(more, "and {n} more", "and {n} more") if more else ""
        return tr("Excerpt: {what}", what=" ".join(filter(None, [", ".join(named), rest])))
    return fold_title(event.folds[0], len(event.folds))


def _calls(event: Event) -> list[str]:
    """The calls, or attachments, that the folds of an event are of, as far as there is room to name them."""
    named = []
    for fold in event.made[:NAMED]:
        ref = fold.cover
        if isinstance(ref, PartRef) and (about := _about(event, ref)):
            named.append(about)
    return named


def _about(event: Event, ref: PartRef) -> str:
    facts = event.history.facts
    fact = facts[ref.seq - 1].fact if 0 < ref.seq <= len(facts) else None
    if isinstance(fact, UserSaid):
        part = fact.parts[ref.part] if ref.part < len(fact.parts) else None
        return part.name if isinstance(part, Attachment) else tr("your message")
    if isinstance(fact, ToolReturned):
        for recorded in reversed(facts[max(0, ref.seq - NEAR) : ref.seq - 1]):
            for part in getattr(recorded.fact, "parts", ()):
                if isinstance(part, ToolCall) and part.id == fact.call:
                    return called(part.name, part.arguments)
    return ""


def line(event: Event, window: int) -> str:
    """The second line of the list."""
    if not event.folds:
        named = tr("{name} policy", name=event.words) if event.words else ""
        parts = [
            dict(policy_choices()).get(event.words, named),
            tr("{n} window", n=short(window)) if window else "",
        ]
        return " · ".join(part for part in parts if part)
    fold = event.folds[0]
    parts = [change(event.before, event.after)]
    if fold.kind is FoldKind.MARKER:
        parts.append(tr("one cache rewrite"))
    elif fold.kind is FoldKind.EXCERPT:
        parts.append(tr("kept: “{words}”", words=fold.asked[:60]) if fold.asked else tr("preview kept"))
    elif fold.kind in (FoldKind.OBSERVATIONS, FoldKind.REFLECTION):
        facts, high = fold.text.count("\n- "), fold.text.count("!!!")
        parts.append(count(facts, "{n} fact", "{n} facts") + ", " + tr("{n} high priority", n=high))
    else:
        parts += [count(covered(fold), "{n} message", "{n} messages"), kept(fold.details)]
    return " · ".join(part for part in parts if part)


def figures(event: Event) -> str:
    """The line under the bars."""
    fold = event.folds[0]
    parts = [change(event.before, event.after)]
    if fold.kind not in (FoldKind.MARKER, FoldKind.EXCERPT):
        parts.append(count(covered(fold), "{n} message", "{n} messages"))
    if fold.seconds:
        parts.append(lasted(fold.seconds))
    parts.append(fold.model or tr("no model"))
    parts.append(tr("in an emergency") if fold.panic else tr("in the background"))
    return " · ".join(parts)


def details(event: Event) -> str:
    """What became of the details, in full."""
    found = event.folds[0].details
    if not found.found:
        return ""
    return tr(
        "{found} details found: {kept} kept by the model, {added} added by Helix Desktop, {entry} in the reference entry",
        found=found.found,
        kept=found.kept,
        added=found.added,
        entry=found.entry,
    )


def sections(text: str) -> list[tuple[str, str]]:
    """A document as headings and what stands under them. What stands before the first has no heading."""
    found: list[tuple[str, list[str]]] = [("", [])]
    for each in text.splitlines():
        heading = _HEADING.match(each)
        if heading:
            found.append((heading.group(1), []))
        else:
            found[-1][1].append(each)
    pairs = [(name, "\n".join(lines).strip()) for name, lines in found]
    return [(name, body) for name, body in pairs if name or body]


def hashes(text: str) -> list[Digest]:
    """The entries a text names, each once, in order."""
    seen = dict.fromkeys(match.group() for match in _HASH.finditer(text))
    return [Digest.parse(each) for each in seen]


def with_links(text: str) -> str:
    """Hashes and numbers of messages as links of our own, which the panel follows."""
    text = _HASH.sub(lambda match: f"`{match.group()[:4]}…{match.group()[-4:]}`", text)
    return _SOURCE.sub(lambda match: f"[{match.group(1)}](helix-seq:{match.group(1)})", text)


def compared(older: Sequence[tuple[str, str]], newer: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Two documents as texts whose sections stand in the same order, for a comparison by section."""
    old, new = dict(older), dict(newer)
    names = [*new, *(name for name in old if name not in new)]
    texts = []
    for document in (old, new):
        pieces = [
            f"## {name}\n{_sentences(document.get(name, ''))}" if name else _sentences(document.get(name, ""))
            for name in names
        ]
        texts.append("\n\n".join(pieces))
    return texts[0], texts[1]


def as_markdown(story: Story, heading: str) -> str:
    """The story of a conversation, to keep or to send."""
    totals = budget.savings(story.history)
    lines = [
        f"# {heading}",
        "",
        tr(
            "{steps} steps · {sent} tokens sent · {all} without folding",
            steps=numeral(totals.steps),
            sent=short(totals.sent),
            all=short(totals.without),
        ),
    ]
    for event in story.events:
        lines += ["", f"## {title(event)} · {day(event.time)}", "", line(event, story.window)]
        if not event.folds:
            continue
        fold = event.folds[0]
        lines += [f"{tr('Why')}: {said(fold.why)}"] if fold.why else []
        if fold.kind is FoldKind.MARKER:
            lines += [f"- `{digest.hex}`" for each in event.folds for digest in each.entries]
        else:
            lines += ["", *(f"#{each}" if each.startswith("## ") else each for each in fold.text.splitlines())]
        if not event.live:
            lines += ["", tr("This fold was undone.")]
    return "\n".join(lines) + "\n"


def _sentences(text: str) -> str:
    """A sentence on each line, so that a difference shows what changed and not the whole paragraph."""
    return re.sub(r"(?<=[.;!?]) +(?=\S)", "\n", text)
