"""Tells what agents add to their users' messages from what the users wrote, by the agents' marks.

Most additions are between tags, also beside the user's own words. Other messages are an addition to
their end: the agents, or the imports of histories, begin them with fixed words. All else is the
user's. An import stores a long addition as an attachment that is named after its first line.
"""

import re
from collections.abc import Sequence

from helix_desktop.engine.agent_documents import read_agent_document
from helix_desktop.engine.facts import Attachment, Text, UserPart
from helix_desktop.json_values import object_at, parse_json_or_none, text_at

# Begins what an agent sends as a system message within the conversation.
SYSTEM_MESSAGE = "[System message]\n"
# Stands before a result whose call is not in the conversation. An import attaches the result.
OUTPUT_WITHOUT_CALL = "[An output that answers no call]"
# An attachment with this name is a part of an agent's message as the agent sent it, in JSON.
AGENT_BLOCK = "block"
# Stands for what a provider sealed of a compaction, wherever it cannot be given back.
SEALED_SUMMARY = "[The rest of the summary is sealed: only its provider can read it.]"
_TAG = re.compile(
    r"(?m)^[ \t]*<(system-reminder|local-command-(?:caveat|stdout|stderr)"
    r"|command-(?:message|args)|bash-std(?:out|err)|user-prompt-submit-hook"
    r"|task-notification|ide_(?:opened_file|selection)|environment_(?:context"
    r"|details)|user_instructions|session_context|hook_context|turn_aborted"
    r"|user_(?:shell_command|action)|subagent_notification"
    r"|current_datetime|system_notification|tagged_files)>"  # Copilot CLI's
)
_START = re.compile(
    r"\s*(?:(Caveat): The messages below were generated"
    r"|\[Claude Code showed: ([^\]\n]{1,60})\]\n|# (AGENTS\.md instructions)"
    r"|\[(Request interrupted by user)|\[(Result of the tool [^\]\n]{1,200})\]\n"
    r"|This is the (?:Gemini CLI|Qwen Code)\. We are (setting up the context) for our chat\."
    r"|\[(Message of the agent .*)\]\n|\[(Summary of the branch) that was left\]\n"
    r"|\[(System message)\]\n|(Stop hook feedback):\n"
    r"|(Continue from where you left off)\.\s*\Z"
    r"|(Output token limit hit)\. Resume directly"
    r"|(Your tool call was malformed and could not be parsed)\. Please retry"
    r"|\[(Your previous response had no visible output)\. Please|# (task_progress"
    r"|TODO LIST) |\[(An output that answers no call)\](?:\n|\Z)|<command-(?:message>.*\s*<command-)?name>\s*(/\S{1,60}?)\s*</)"
)


def split_off_agent_additions(parts: Sequence[UserPart]) -> tuple[str, list[tuple[int, str]]]:
    """Return the user's own words, and what the agent added to them by itself, such as reminders.

    Each addition has the number of the part it is in, and its text, which is empty for an
    attachment.
    """
    own_texts: list[str] = []
    additions: list[tuple[int, str]] = []
    is_output_expected = False
    for number, part in enumerate(parts):
        if not isinstance(part, Text):
            if is_output_expected or _is_addition_stored_as_file(part):
                additions.append((number, ""))
            continue
        is_output_expected = part.text == OUTPUT_WITHOUT_CALL
        is_wholly_added = _START.match(part.text) is not None
        if is_wholly_added:
            additions.append((number, part.text))
            continue
        own_text, tagged_blocks = split_off_tagged_blocks(part.text, _TAG)
        if own_text:
            own_texts.append(own_text)
        for block in tagged_blocks:
            additions.append((number, block))
    return "\n\n".join(own_texts), additions


def _is_addition_stored_as_file(part: Attachment) -> bool:
    """Whether an attachment is an addition that an import stored as a text file, as it does with
    long ones: it is named after its first line.
    """
    if part.stored.media_type != "text/plain":
        return False
    return bool(name_of_agent_addition(part.name))


def is_added_by_agent(parts: Sequence[UserPart]) -> bool:
    """Return whether an agent added all of a message, and its user nothing."""
    own_words, additions = split_off_agent_additions(parts)
    if own_words or not additions:
        return False
    numbers_of_added_parts = {number for number, _ in additions}
    for number, part in enumerate(parts):
        is_attachment = not isinstance(part, Text)
        if is_attachment and number not in numbers_of_added_parts:
            return False  # The user attached it.
    return True


def split_off_tagged_blocks(text: str, opening_tag: re.Pattern[str]) -> tuple[str, list[str]]:
    """Return the text without the blocks from an opening tag to its closing one, and the blocks."""
    remaining: list[str] = []
    blocks: list[str] = []
    end_of_last_block = 0
    # Closing tags that do not occur behind a place. To look for them again would be slow.
    missing_closing_tags: set[str] = set()
    for tag in opening_tag.finditer(text):
        closing_tag = f"</{tag[1]}>"
        is_inside_block = tag.start() < end_of_last_block
        if is_inside_block or closing_tag in missing_closing_tags:
            continue
        closing_position = text.find(closing_tag, tag.end())
        if closing_position < 0:
            missing_closing_tags.add(closing_tag)
            continue
        remaining.append(text[end_of_last_block : tag.start()].strip())
        end_of_last_block = closing_position + len(closing_tag)
        blocks.append(text[tag.start() : end_of_last_block])
    if not blocks:
        return text, []
    remaining.append(text[end_of_last_block:].strip())
    return "\n\n".join(filter(None, remaining)), blocks


def name_of_agent_addition(text: str) -> str:
    """Return what an addition is called, such as "system reminder", or "" for any other text.

    `text` is the addition itself or the name of its attachment. Such a name is the addition's
    first line without its brackets, so these are put back before it is compared.
    """
    first_word = text.split(" ", maxsplit=1)[0]
    possible_beginnings = (text, f"[{text}]\n", f"{text} \n", f"<{first_word}>")
    for form in possible_beginnings:
        match = _START.match(form) or _TAG.match(form)
        if match is not None:
            return match[match.lastindex or 0].replace("_", " ")
    return ""


def is_agent_block(attachment: Attachment) -> bool:
    is_json = attachment.stored.media_type == "application/json"
    return is_json and attachment.name == AGENT_BLOCK


def is_sealed_summary(block: str) -> bool:
    """Whether a part of an agent's message is what a provider sealed of a compaction."""
    item = object_at(parse_json_or_none(block))
    is_compaction = text_at(item, "type") in ("compaction", "context_compaction")
    return is_compaction and bool(text_at(item, "encrypted_content"))


def words_for_agent_block(block: str) -> str | None:
    """Return what is said to another model instead of a part of an agent's message, or None if
    that model can read the part itself. Nothing is said of one that only sets something.
    """
    if is_sealed_summary(block):
        return SEALED_SUMMARY
    value = object_at(parse_json_or_none(block))
    document = read_agent_document(value)
    if document is not None:
        return document.words_instead
    if text_at(value, "role") and "content" in value and not value["content"]:
        return ""
    return None
