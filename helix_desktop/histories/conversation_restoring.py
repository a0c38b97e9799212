"""Gives a conversation back to an agent, as a new session in the agent's own format and folder.

Existing sessions stay as they are: a new file appears with its whole content. No login is read.
"""

import errno
import json
import os
import re
import stat
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path, PurePosixPath

from helix_desktop.engine.facts import (
    BroughtIn,
    ConversationChanged,
    ConversationStarted,
    ModelReplied,
    Origin,
    Recorded,
    Stop,
)
from helix_desktop.engine.request_building import INTERRUPTED
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError, InvalidInput, StoreFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import history_reading, kept_lines
from helix_desktop.histories.added_formats import name_of_program
from helix_desktop.histories.claude_own_lines import texts_of_own_lines
from helix_desktop.histories.companion_files import read_file_below
from helix_desktop.histories.history_facts import TITLE
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.histories.history_rows import ReadingReport, UnreadableRow
from helix_desktop.histories.openai_chat_export import ReadContent, digests_needed_for_export
from helix_desktop.histories.program_names import KINDS_TO_CONTINUE_IN, NAMES
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedSession,
    reply_parts_from_message,
    texts_in_context,
    time_of_newest_message,
)
from helix_desktop.histories.seen_twice import is_seen_live, keys_of_reply
from helix_desktop.histories.session_from_facts import (
    build_session_from_facts,
    list_active_compactions,
    origin_of_conversation,
)
from helix_desktop.histories.session_writing import AgentFormat
from helix_desktop.histories.tool_translation import MessageTranslation
from helix_desktop.json_values import object_at, parse_json_or_none
from helix_desktop.tools.workspace_roots import write_file_beside

if sys.platform == "win32":
    from helix_desktop.tools import folder_handles_windows as folders
else:
    from helix_desktop.tools import folder_handles as folders

LARGEST_ORIGINAL = 1 << 30
COPY_WORDS = re.compile(r" \((?:restored|from )[^()]*\)$")  # They end the title of a copy.
Lines = Sequence[bytes]


def _load_formats() -> dict[str, AgentFormat]:
    """Return what the writers declare, by the name that `conversation restore --to` is given."""
    formats: dict[str, AgentFormat] = {}
    for agent, kind in KINDS_TO_CONTINUE_IN.items():
        module = import_module(f"helix_desktop.histories.{kind.replace('-', '_')}_writer")
        formats[agent] = module.FORMAT
    return formats


FORMATS: Mapping[str, AgentFormat] = _load_formats()


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """`folder`: the new session's working folder. `before_compaction`: restore the
    state before this compaction, from 1. `is_folded`: with folds made here, also of
    single outputs. `window`: of the agent's model, in tokens; 0: the usual one.
    """

    conversation: str
    agent: str
    folder: str
    before_compaction: int = 0
    is_folded: bool = False
    window: int = 0


@dataclass(frozen=True, slots=True)
class FileOfSubagent:
    """A file of a sub-agent of Claude Code. `path`: relative to the folder of its session."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class RestoredSession:
    """A session to be written. `is_original`: it has the agent's own lines. `messages`:
    their number when read back. `texts`: those that the agent will send. `fits`:
    whether its model has room for them. `subagents`: the number of those that have
    files of their own, which are `files_of_subagents`.
    """

    agent: str
    session: str
    folder: str
    content: bytes
    is_original: bool
    messages: int
    compactions: int
    texts: tuple[str, ...]
    version: str = ""
    left_out_reasoning: int = 0
    left_out_context: int = 0
    calls_as_text: int = 0
    is_folded: bool = False
    fits: bool = True
    # Lines of the agent's file that were too long to be read. The cache has them.
    lines_too_long: int = 0
    subagents: int = 0
    files_of_subagents: tuple[FileOfSubagent, ...] = ()


def digests_needed_for_restoring(facts: Sequence[Recorded]) -> list[Digest]:
    """Return the contents of a conversation's messages, and the lines that imports stored."""
    digests = list(digests_needed_for_export(facts))
    digests += _digests_of_own_lines(facts)
    digests += kept_lines.digests_of_kept_lines(facts)
    return digests


def _digests_of_own_lines(facts: Sequence[Recorded]) -> list[Digest]:
    digests: list[Digest] = []
    for recorded in facts:
        fact = recorded.fact
        if isinstance(fact, BroughtIn) and fact.unread is not None:
            digests.append(fact.unread.digest)
    return digests


def agent_of_origin(facts: Sequence[Recorded]) -> str:
    """Return the agent that wrote the conversation or its history, or "" if we can't
    write for it.
    """
    kind = origin_of_conversation(facts).kind
    connected_agent = ""
    for recorded in facts:
        if isinstance(recorded.fact, ConversationStarted):
            connected_agent = recorded.fact.agent
            break
    for name, form in FORMATS.items():
        if kind == form.kind or connected_agent == NAMES[form.kind]:
            return name
    return ""


def build_restored_session(
    facts: Sequence[Recorded], read_content: ReadContent, request: RestoreRequest
) -> RestoredSession:
    """Build a session with a new id for the agent. This writes nothing.

    If the agent's own file still has the same conversation, its lines are used as they are. Otherwise
    the messages are written anew in the agent's format, up to a compaction if one is named.
    """
    compactions = list_active_compactions(facts)
    compaction_number = request.before_compaction
    if compaction_number and not 0 < compaction_number <= len(compactions):
        raise InvalidInput(
            f"Compactions in effect in this conversation: {len(compactions)}.",
            remedy="Choose a compaction by its number, counting from 1.",
        )
    session_id = FORMATS[request.agent].create_session_id()
    origin = origin_of_conversation(facts)
    title = _build_title_of_copy(facts, origin.kind, request)
    lines_too_long = _count_lines_too_long(facts, read_content)
    original = _build_from_original_lines(facts, read_content, request, session_id, title)
    if original is not None:
        return replace(original, lines_too_long=lines_too_long)

    restored_facts = facts
    if compaction_number:
        compaction_seq = compactions[compaction_number - 1].seq
        restored_facts = [recorded for recorded in facts if recorded.seq < compaction_seq]
    is_for_same_agent = origin.kind == FORMATS[request.agent].kind
    session = build_session_from_facts(
        restored_facts,
        read_content,
        request.folder,
        origin,
        is_folded=request.is_folded,
        is_for_same_agent=is_for_same_agent,
    )
    own_lines = read_own_lines(facts, read_content)
    session = replace(session, title=title, own_lines=tuple(own_lines))
    was_connected = agent_of_origin(facts) == request.agent
    translated = build_translated_session(
        session, request.agent, session_id, was_connected=was_connected
    )
    return replace(translated, is_folded=request.is_folded, lines_too_long=lines_too_long)


def _count_lines_too_long(facts: Sequence[Recorded], read_content: ReadContent) -> int:
    """Count the lines that imports have kept without reading them, because they are too long."""
    limit = history_reading.LONGEST_LINE_BYTES
    count = 0
    for recorded in facts:
        fact = recorded.fact
        if isinstance(fact, BroughtIn) and fact.unread is not None and fact.unread.size > limit:
            stored_lines = read_content(fact.unread.digest) or b""
            count += sum(len(line) > limit for line in stored_lines.split(b"\n"))
    return count


def read_own_lines(facts: Sequence[Recorded], read_content: ReadContent) -> list[bytes]:
    """Return the lines that imports have stored as the agent wrote them."""
    own_lines: list[bytes] = []
    for digest in _digests_of_own_lines(facts):
        stored_lines = read_content(digest) or b""
        own_lines.extend(stored_lines.splitlines())
    return own_lines


def _build_title_of_copy(facts: Sequence[Recorded], kind: str, request: RestoreRequest) -> str:
    """Return the conversation's title with words that tell the copy apart, in the
    agent's list and in ours.
    """
    title = ""
    for recorded in facts:
        if isinstance(recorded.fact, ConversationStarted | ConversationChanged):
            title = recorded.fact.title or title
    if kind == FORMATS[request.agent].kind:
        note = "restored"
    else:
        note = f"from {name_of_program(kind) or 'Helix Desktop'}"
    if request.before_compaction:
        note += f" before compaction {request.before_compaction}"
    # A copy of a copy has only the words of the last one.
    own_title = COPY_WORDS.sub("", title)
    most_characters = TITLE - len(f" ({note})")
    return f"{own_title[:most_characters].rstrip()} ({note})"


# --- From the agent's own lines


@dataclass(frozen=True, slots=True)
class OriginalFile:
    """An agent's own file as it is now. `session`: the branch that the agent would continue."""

    lines: Lines
    session: RecordedSession
    has_branches: bool


def _build_from_original_lines(
    facts: Sequence[Recorded],
    read_content: ReadContent,
    request: RestoreRequest,
    session_id: str,
    title: str,
) -> RestoredSession | None:
    """Build it from the agent's own lines if its file still matches the conversation,
    or return None.

    Of a file with branches, only the newest can be given back like this: the agent continues there.
    A session that was seen live is one that the gateway recorded as it happened.
    """
    form = FORMATS[request.agent]
    origin = origin_of_conversation(facts)
    is_able = form.id_fields or form.build_document_of_kept_lines is not None
    if request.is_folded or not is_able or origin.kind != form.kind:
        return None
    whole_session = build_session_from_facts(
        facts, read_content, "", origin, is_for_same_agent=True
    )
    file = find_original_file(facts, read_content, whole_session, origin, form)
    if file is None:
        return None
    number = request.before_compaction
    if number:
        # The compaction of this number may be another branch's, or one of the gateway.
        may_be_another = file.has_branches or is_seen_live(facts)
        # The lines of an agent with a database cannot be cut there.
        if may_be_another or not form.id_fields:
            return None
    lines = _lines_before_compaction(file.lines, form, number)
    if lines is None:
        return None
    content = _content_with_new_ids(lines, request.agent, origin, session_id, title)
    ours = _session_before_compaction(whole_session, number)
    texts = tuple(texts_in_context(ours))
    version = file.session.version or origin.version
    return RestoredSession(
        request.agent,
        session_id,
        file.session.folder,
        content,
        is_original=True,
        messages=len(ours.messages),
        compactions=len(ours.compactions),
        texts=texts,
        version=version,
    )


def find_original_file(
    facts: Sequence[Recorded],
    read_content: ReadContent,
    whole_session: RecordedSession,
    origin: Origin,
    form: AgentFormat,
    *,
    is_subagent: bool = False,
) -> OriginalFile | None:
    """Return the agent's file, or what was kept of it, if it has the same session as we have."""
    was_seen_live = is_seen_live(facts)
    file = _read_original_file(origin, form, is_subagent=is_subagent)
    if file is not None and _is_same_session(file, whole_session, was_seen_live=was_seen_live):
        return file
    kept_file = _read_kept_lines(facts, read_content, origin, form, is_subagent=is_subagent)
    if kept_file is None:
        return None
    if not _is_same_session(kept_file, whole_session, was_seen_live=was_seen_live):
        return None
    return kept_file


def _session_before_compaction(session: RecordedSession, number: int) -> RecordedSession:
    """Return what stands before the compaction of this number; 0: all of it."""
    if number == 0:
        return session
    end = session.compactions[number - 1].at
    return replace(
        session,
        messages=session.messages[:end],
        compactions=session.compactions[: number - 1],
    )


def _content_with_new_ids(
    lines: Lines, agent: str, origin: Origin, session_id: str, title: str
) -> bytes:
    """Return the agent's lines as those of another session, with this id and title."""
    form = FORMATS[agent]
    if form.build_document_of_kept_lines is not None:
        return form.build_document_of_kept_lines(lines, session_id, title, time.time())
    # Behind "#" stands the name of a branch, which the agent does not know.
    own_id, _, _ = origin.session.partition("#")
    content = replace_session_id(b"".join(lines), form.id_fields, own_id, session_id)
    content = form.without_permissions(content)
    return form.with_title(content, session_id, title)


def _read_original_file(
    origin: Origin, form: AgentFormat, *, is_subagent: bool
) -> OriginalFile | None:
    """Return the agent's own file as it is now, or None if it cannot be read or has
    another session.
    """
    path = _path_of_original_file(origin)
    if not path.is_absolute():
        return None
    try:
        content = read_file_below(path.parent, path.name, LARGEST_ORIGINAL)
        lines = content.splitlines(keepends=True)
        report = ReadingReport()
        sessions = list(history_reading.read_sessions(path, report, form.kind))
    except (OSError, HelixError, UnreadableRow):
        return None
    return _original_file_of_sessions(lines, sessions, origin, is_subagent=is_subagent)


def _path_of_original_file(origin: Origin) -> Path:
    _own_id, branch, _ = origin.session.partition("#")
    if branch:
        return Path(origin.path.rpartition("#")[0])
    return Path(origin.path)


def _read_kept_lines(
    facts: Sequence[Recorded],
    read_content: ReadContent,
    origin: Origin,
    form: AgentFormat,
    *,
    is_subagent: bool,
) -> OriginalFile | None:
    """Return the agent's file as it was imported last, or None if its lines were not kept."""
    stored: list[bytes] = []
    for digest in kept_lines.digests_of_kept_lines(facts):
        content = read_content(digest)
        if content is None:
            return None
        stored.append(content)
    lines_with_markers = kept_lines.join_kept_lines(stored)
    lines = kept_lines.restore_contents(lines_with_markers, read_content)
    if not lines:
        return None
    path = _path_of_original_file(origin)
    try:
        sessions = list(history_reading.read_sessions_of_lines(lines, path, form.kind))
    except UnreadableRow:
        return None
    return _original_file_of_sessions(lines, sessions, origin, is_subagent=is_subagent)


def _original_file_of_sessions(
    lines: Lines, sessions: Sequence[RecordedSession], origin: Origin, *, is_subagent: bool
) -> OriginalFile | None:
    """Return the lines with the branch that the agent would continue, or None if they are of
    another session. `is_subagent`: whether that of a sub-agent is asked for.
    """
    own_id, _branch, _ = origin.session.partition("#")
    branches: list[RecordedSession] = []
    for session in sessions:
        id_in_file, _, _ = session.session.partition("#")
        if id_in_file == own_id and bool(session.parent) is is_subagent:
            branches.append(session)
    if not branches:
        return None
    newest = max(branches, key=time_of_newest_message)
    return OriginalFile(lines, newest, has_branches=len(branches) > 1)


def _is_same_session(file: OriginalFile, ours: RecordedSession, *, was_seen_live: bool) -> bool:
    if file.session.session != ours.session:
        return False
    if was_seen_live:
        return _has_same_replies(file, ours)
    return _has_same_content(file, ours)


def _has_same_content(file: OriginalFile, ours: RecordedSession) -> bool:
    # A compaction that was undone here still stands in the lines.
    if len(ours.compactions) < len(file.session.compactions):
        return False
    return _comparable_messages(file.session) == _comparable_messages(ours)


def _has_same_replies(file: OriginalFile, ours: RecordedSession) -> bool:
    """Whether all of the file's replies were seen live, up to the same last one. The words around
    them differ: at the gateway, they are as the model got them.
    """
    keys_in_file = _keys_of_replies(file.session)
    keys_seen_live = _keys_of_replies(ours)
    if not keys_in_file or not keys_seen_live:
        return False
    is_same_last_reply = not keys_in_file[-1].isdisjoint(keys_seen_live[-1])
    if not is_same_last_reply:
        return False
    all_keys_seen_live: set[str] = set()
    for keys in keys_seen_live:
        all_keys_seen_live.update(keys)
    for keys in keys_in_file:
        if keys.isdisjoint(all_keys_seen_live):
            return False
    return True


def _keys_of_replies(session: RecordedSession) -> list[set[str]]:
    replies: list[set[str]] = []
    for message in session.messages:
        if message.role == "assistant":
            parts = message.parts or tuple(reply_parts_from_message(message))
            keys = keys_of_reply(ModelReplied(parts, "", Stop.END))
            if keys:
                replies.append(keys)
    return replies


def replace_session_id(content: bytes, id_fields: str, old_id: str, new_id: str) -> bytes:
    """Return the lines with another session id. Texts stay as they are: their quotation
    marks are escaped.
    """
    pattern = rb'(?P<before>"(?:%b)"\s*:\s*")%b"' % (
        id_fields.encode(),
        re.escape(old_id.encode()),
    )
    return re.sub(pattern, lambda match: match["before"] + new_id.encode() + b'"', content)


def _comparable_messages(session: RecordedSession) -> Counter[tuple[object, ...]]:
    """Return what must be equal in two readings of the same session."""
    messages: list[tuple[object, ...]] = []
    for message in session.messages:
        if message.role not in ("user", "assistant", "tool") or message.text == INTERRUPTED:
            continue
        text = (message.shown or message.text).strip()
        picture_count = len(message.pictures)
        messages.append((message.role, text, message.calls, message.answers, picture_count))
    return Counter(messages)


def _lines_before_compaction(lines: Lines, form: AgentFormat, number: int) -> Lines | None:
    """Return the complete lines before a compaction (0: all), or None if it does not exist."""
    # The agent may still be writing the last line.
    complete_lines = lines
    if lines and not lines[-1].endswith(b"\n"):
        complete_lines = lines[:-1]
    if number == 0:
        return complete_lines
    field_name, value_of_compaction = form.compaction
    compaction_count = 0
    for position, line in enumerate(complete_lines):
        row = object_at(parse_json_or_none(line.decode("utf-8", "replace")))
        if row.get(field_name) == value_of_compaction:
            compaction_count += 1
        if compaction_count == number:
            return complete_lines[:position]
    return None


def build_translated_session(
    session: RecordedSession, agent: str, session_id: str, *, was_connected: bool = False
) -> RestoredSession:
    """Build a session in the agent's format from messages that its tools and provider
    can take. `was_connected`: the agent itself made the calls, as the gateway saw it.
    """
    form = FORMATS[agent]
    is_own = session.kind == form.kind
    own_texts = texts_of_own_lines(session.own_lines)
    translation = MessageTranslation(
        form.kind,
        same_agent=is_own,
        was_connected=was_connected,
        provider=form.provider,
        kept_context=form.kept_context,
        own_texts=own_texts,
    )
    messages: list[RecordedMessage] = []
    # By the position of a message: where it stands, or would stand, among those that are written.
    new_positions = [0]
    for message in session.messages:
        translated = translation.translate_message(message)
        if translated is not None:
            messages.append(translated)
        new_positions.append(len(messages))
    compactions: list[RecordedCompaction] = []
    for compaction in session.compactions:
        new_position = new_positions[compaction.at]
        compactions.append(replace(compaction, at=new_position, keep=new_position))
    translated_session = replace(session, messages=tuple(messages), compactions=tuple(compactions))
    lines: list[str] = []
    for line in form.build_lines(translated_session, session_id, time.time()):
        line_text = json.dumps(line, ensure_ascii=False)
        lines.append(f"{line_text}\n")
    content = "".join(lines).encode("utf-8", "replace")
    texts = tuple(texts_in_context(translated_session))
    version = ""
    if is_own:
        version = session.version
    return RestoredSession(
        agent,
        session_id,
        session.folder,
        content=content,
        is_original=False,
        messages=len(messages),
        compactions=len(compactions),
        texts=texts,
        version=version,
        left_out_reasoning=translation.left_out_reasoning,
        left_out_context=translation.left_out_context,
        calls_as_text=translation.as_text,
    )


def describe_restored_session(restored: RestoredSession, path: Path) -> Iterator[str]:
    """Describe it for people, in sentences. The last one says how to continue."""
    form = FORMATS[restored.agent]
    yield f"Written to {path}. Messages: {restored.messages:,}; compactions: {restored.compactions}."
    if restored.is_folded:
        yield "Older parts were shortened to fit the context window of the agent's model. The originals stay in this workspace's cache."
    if not restored.fits:
        yield "The session may still be too long for the agent: the rest cannot be shortened."
    if restored.is_original:
        yield "The session file contains the agent's own lines, unchanged except for a new session ID and title, and without the permissions that it had: the agent asks as your settings say."
    if restored.lines_too_long:
        yield f"Lines left out, because they are too long to be read (this workspace keeps them): {restored.lines_too_long:,}."
    if restored.subagents:
        yield f"Histories of sub-agents that were saved with it: {restored.subagents:,}."
    if restored.left_out_reasoning:
        yield f"Reasoning blocks left out, because this agent's provider cannot read them: {restored.left_out_reasoning:,}."
    if restored.left_out_context:
        yield f"Messages left out, because an agent had added them automatically: {restored.left_out_context:,}."
    if restored.calls_as_text:
        yield f"Tool calls converted to text because the agent does not have these tools: {restored.calls_as_text:,}."
    if restored.version and restored.version != form.seen_version:
        yield f"The session is from version {restored.version}. Restoring was tested with {form.seen_version}."
    yield f"To continue in {restored.folder}, run: {command_to_resume(restored)}"


def command_to_resume(restored: RestoredSession) -> str:
    """Return the command line by which the agent continues the session, in its folder."""
    return FORMATS[restored.agent].resume.format(restored.session)


def write_restored_session(restored: RestoredSession, places: HistoryPlaces) -> Path:
    """Save the session where the agent looks for it. Return the file or database."""
    form = FORMATS[restored.agent]
    folder_of_variable = places.variables.get(form.variable, "")
    if folder_of_variable:
        root = Path(folder_of_variable)
        agent_folder = ""
    else:
        root = places.home
        agent_folder = f"{form.usual}/".lstrip("/")
    if form.add_to_store is not None:
        return form.add_to_store(root / agent_folder, restored.content)
    path_below_root = agent_folder + form.path_of_session(
        restored.session, restored.folder, root / agent_folder, time.time()
    )
    if form.path_of_marker is not None:
        marker = form.path_of_marker(path_below_root)
        with suppress(FileExistsError):
            _write_new_file(root, marker, restored.folder.encode())
    folder_of_session, _, _ = path_below_root.rpartition("/")
    for file in restored.files_of_subagents:
        # One that is still where the agent wrote it stays: the agent reads that one.
        if not os.path.lexists(root / folder_of_session / file.path):
            write_new_session_file(root, f"{folder_of_session}/{file.path}", file.content)
    return write_new_session_file(root, path_below_root, restored.content)


def write_new_session_file(root: Path, relative_path: str, content: bytes) -> Path:
    """Write a file that appears at once. Raises InvalidInput if it exists, or
    StoreFailed, also for a link.
    """
    try:
        _write_new_file(root, relative_path, content)
    except FileExistsError as error:
        raise InvalidInput(f"{root / relative_path} already exists.", remedy="Nothing was changed. Choose another name.") from error  # fmt: skip
    except OSError as error:
        raise StoreFailed(f"{root / relative_path} could not be written: {error.strerror}.", remedy="Nothing was changed. To write somewhere else, use `--to FILE`.") from error  # fmt: skip
    return root / relative_path


def _write_new_file(root: Path, relative_path: str, content: bytes) -> None:
    """Write a file beside its place and move it there, so that it never appears half-
    written.
    """
    folder, _, name = relative_path.rpartition("/")
    # The outermost folder comes first: for "a/b", "a" and then "a/b".
    folders_to_create = [str(parent) for parent in PurePosixPath(relative_path).parents]
    for folder_to_create in reversed(folders_to_create):
        if folder_to_create != ".":
            _create_folder_or_refuse_link(root, folder_to_create)
    with folders.open_folder(root, folder) as open_folder:
        draft = write_file_beside(open_folder, name, content, 0o600, replaces=False)
        try:
            open_folder.move_to_new_name(draft, name)
        finally:
            with suppress(FileNotFoundError):  # It has its new name.
                open_folder.delete_entry(draft)


def _create_folder_or_refuse_link(root: Path, relative_path: str) -> None:
    parent, _, name = relative_path.rpartition("/")
    with folders.open_folder(root, parent) as parent_folder:
        with suppress(FileExistsError):
            parent_folder.create_folder(name)
        if stat.S_ISLNK(parent_folder.stat_entry(name).st_mode):
            raise OSError(errno.ELOOP, f"{name} is a link", relative_path)
