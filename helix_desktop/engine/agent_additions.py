"""Tells what agents add to their users' messages from what the users wrote, by the agents' marks.

Most additions are between tags, also beside the user's own words. Other messages are an addition to
their end: the agents, or the imports of histories, begin them with fixed words. All else is the
user's. An import stores a long addition as an attachment that is named after its first line.
"""

import re
from collections.abc import Sequence

from helix_desktop.engine.facts import Text, UserPart

SYSTEM_MESSAGE = (
    "[System message]\n"  # Begins what an agent sends as a system message within the conversation.
)
_TAG = re.compile(
    r"(?m)^[ \t]*<(system-reminder|local-command-(?:caveat|stdout|stderr)"
    r"|command-(?:message|args)|bash-std(?:out|err)|user-prompt-submit-hook"
    r"|task-notification|ide_(?:opened_file|selection)|environment_(?:context"
    r"|details)|user_instructions|session_context|hook_context|turn_aborted"
    r"|user_(?:shell_command|action)|subagent_notification)>"
)
_START = re.compile(
    r"\s*(?:(Caveat): The messages below were generated"
    r"|\[Claude Code showed: ([^\]\n]{1,60})\]\n|# (AGENTS\.md instructions)"
    r"|\[(Request interrupted by user)|\[(Result of the tool [^\]\n]{1,200})\]\n"
    r"|\[(Message of the agent .*)\]\n|\[(Summary of the branch) that was left\]\n"
    r"|\[(System message)\]\n|(Stop hook feedback):\n"
    r"|(Continue from where you left off)\.\s*\Z"
    r"|(Output token limit hit)\. Resume directly"
    r"|(Your tool call was malformed and could not be parsed)\. Please retry"
    r"|\[(Your previous response had no visible output)\. Please|# (task_progress"
    r"|TODO LIST) |<command-(?:message>.*\s*<command-)?name>\s*(/\S{1,60}?)\s*</)"
)


def split_off_agent_additions(parts: Sequence[UserPart]) -> tuple[str, list[tuple[int, str]]]:
    """Return the user's words, and each addition's part number and text (empty if attached)."""
    words, additions = list[str](), list[tuple[int, str]]()
    for number, part in enumerate(parts):
        if isinstance(part, Text):
            is_added = _START.match(part.text)
            own, added = ("", [part.text]) if is_added else split_off_tagged_blocks(part.text, _TAG)
            words.append(own)
            additions += [(number, text) for text in added]
        elif part.stored.media_type == "text/plain" and name_of_agent_addition(part.name):
            additions.append((number, ""))
    return "\n\n".join(filter(None, words)), additions


def is_added_by_agent(parts: Sequence[UserPart]) -> bool:
    """Return whether an agent added all of a message, and its user nothing."""
    words, additions = split_off_agent_additions(parts)
    added = {number for number, _ in additions}
    return (
        bool(added)
        and not words
        and all(n in added or isinstance(p, Text) for n, p in enumerate(parts))
    )


def split_off_tagged_blocks(text: str, opening_tag: re.Pattern[str]) -> tuple[str, list[str]]:
    """Return the text without the blocks from an opening tag to its closing one, and the blocks."""
    kept, blocks, start, unclosed = list[str](), list[str](), 0, set[str]()
    for tag in opening_tag.finditer(text):
        closing = f"</{tag[1]}>"
        if tag.start() < start or closing in unclosed:
            continue
        if (end := text.find(closing, tag.end())) < 0:
            unclosed.add(closing)
        else:
            kept.append(text[start : tag.start()].strip())
            start = end + len(closing)
            blocks.append(text[tag.start() : start])
    return ("\n\n".join(filter(None, [*kept, text[start:].strip()])) if blocks else text), blocks


def name_of_agent_addition(text: str) -> str:
    """Return its name, by its text or by its attachment's name, which has no brackets."""
    forms = (text, f"[{text}]\n", f"{text} \n", f"<{text.split(' ', maxsplit=1)[0]}>")
    found = next((it for form in forms if (it := _START.match(form) or _TAG.match(form))), None)
    return found[found.lastindex or 0].replace("_", " ") if found else ""
