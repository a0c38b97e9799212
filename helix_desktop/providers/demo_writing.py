"""What the demonstration writes when it is asked for a summary, an excerpt or a title: taken from the request itself.

No judgement goes into it. Paths, commands, failures, items and rules are looked for by their shape, so every line of a
summary can be found in what was summarised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from helix_desktop.engine.blocks import Request, Role, ToolResult
from helix_desktop.engine.facts import Text, ToolCall
from helix_desktop.providers.wire import list_at, parse_object, text_at

SECTIONS = (
    "Project Background",
    "Technical Details",
    "Completed Work",
    "Current Issues",
    "TODO Items",
    "User Preferences",
)
MOST_LINES = 12
MOST_EXCERPT = 40
_PATH = re.compile(r"(?<![\w/.])(?:[\w.-]+/)*[\w-]+\.[A-Za-z]{1,5}\b")
_WRONG = re.compile(r"\b(error|failed|failure|exception|traceback|not found|refused|denied)\b", re.IGNORECASE)
_RULE = re.compile(r"\b(must|never|always|do not|don't|only|prefer|please use)\b", re.IGNORECASE)
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
_WORD = re.compile(r"[\w-]{4,}")
_ITEM = re.compile(r"^\s*[-*]?\s*\[( |>|x)\]\s*(.+)$", re.MULTILINE)


def written(request: Request) -> str:
    """The answer to a request that is no step of a conversation."""
    match request.purpose:
        case "handover":
            return handover(request)
        case "observation" | "reflection":
            return observations(request)
        case "compaction":
            return compaction(request)
        case "admission":
            return "preview"
        case "title":
            return title(request)
    return "The scripted demonstration answers."


def handover(request: Request) -> str:
    """The six sections, each from the request; a section with nothing to say says so."""
    said, results = _said(request), _results(request)
    calls = [part for message in request.messages for part in message.parts if isinstance(part, ToolCall)]
    paths = _unique(match for text in (*said, *(call.arguments for call in calls)) for match in _PATH.findall(text))
    contents: Mapping[str, list[str]] = {
        "Project Background": [_short(text) for text in said[:3]],
        "Technical Details": [f"File: {path}" for path in paths],
        "Completed Work": _unique(f"{call.name} {_short(call.arguments, 160)}" for call in calls),
        "Current Issues": _unique(
            _short(line) for text in results for line in text.splitlines() if _WRONG.search(line)
        ),
        "TODO Items": _todo(calls, request),
        "User Preferences": _unique(
            _short(one) for text in said for one in _SENTENCE.findall(text) if _RULE.search(one)
        ),
    }
    return "\n\n".join(f"## {name}\n" + _listed(contents[name]) for name in SECTIONS)


def _listed(lines: list[str]) -> str:
    shown = [f"- {line}" for line in lines[-MOST_LINES:]]
    return "\n".join(shown) or "- None so far."


def _said(request: Request) -> list[str]:
    """The user's own words: what stands in brackets was put there by the program."""
    parts = (part for message in request.messages if message.role is Role.USER for part in message.parts)
    return [part.text for part in parts if isinstance(part, Text) and part.text.lstrip()[:1] not in {"[", "("}]


def _results(request: Request) -> list[str]:
    return [part.text for message in request.messages for part in message.parts if isinstance(part, ToolResult)]


def _todo(calls: list[ToolCall], request: Request) -> list[str]:
    """The items of the last list, or what looks like items where the calls are text."""
    lists = [call for call in calls if call.name == "set_todo"]
    if lists:
        items = list_at(parse_object(lists[-1].arguments), "items")
        return [f"{text_at(item, 'text')} ({text_at(item, 'state') or 'open'})" for item in items]
    states = {" ": "open", ">": "doing", "x": "done"}
    texts = [part.text for message in request.messages for part in message.parts if isinstance(part, Text)]
    return _unique(f"{item} ({states[mark]})" for text in texts for mark, item in _ITEM.findall(text))


def observations(request: Request) -> str:
    """A line for every message that says something, oldest first."""
    lines = [_short(text, 160) for text in (*_said(request), *_results(request)) if text.strip()]
    return "\n".join(f"- {line}" for line in _unique(lines)[-MOST_EXCERPT:]) or "- Nothing happened."


def compaction(request: Request) -> str:
    """The lines of the output that share most words with what was asked for, in their order."""
    texts = [text for text in (*_said(request), *_results(request), *_bracketed(request)) if text.strip()]
    if not texts:
        return "There is nothing to read."
    output = max(texts, key=len)
    wish = " ".join([request.system, *(text for text in texts if text is not output)]) or output[:400]
    asked = {word.lower() for word in _WORD.findall(wish)} | {
        word for word in re.findall(r"\d+", wish) if len(word) > 2
    }
    lines = output.splitlines()
    scored = sorted(range(len(lines)), key=lambda at: (-_shared(lines[at], asked), at))[:MOST_EXCERPT]
    kept = sorted({*scored[:MOST_EXCERPT], 0, len(lines) - 1})
    body = "\n".join(lines[at][:200] for at in kept)
    return f"{len(lines):,} lines; of these, the first, the last and those with most of the words asked for:\n{body}"


def _bracketed(request: Request) -> list[str]:
    parts = (part for message in request.messages for part in message.parts)
    return [part.text for part in parts if isinstance(part, Text) and part.text.lstrip()[:1] in {"[", "("}]


def _shared(line: str, asked: set[str]) -> int:
    return sum(word.lower() in asked for word in re.findall(r"[\w-]{3,}", line))


def title(request: Request) -> str:
    said = _said(request)
    return " ".join(said[0].split()[:6])[:60] if said else "A demonstration"


def _short(text: str, most: int = 240) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _unique(lines: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(line for line in lines if line.strip()))
