"""What the writers of all agents' formats share: how each declares itself, and functions."""

import base64
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

from helix_desktop.engine.facts import ReplyPart, ToolCall
from helix_desktop.engine.request_building import with_plain_name
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import recorded_session
from helix_desktop.histories.openai_chat_export import parse_arguments_object
from helix_desktop.json_values import parse_json_or_none

Line = dict[str, Any]
SessionItem = recorded_session.RecordedMessage | recorded_session.RecordedCompaction


def list_session_items(session: recorded_session.RecordedSession) -> Iterator[SessionItem]:
    """Yield messages in order, each compaction before the message it precedes."""
    compactions = {compaction.at: compaction for compaction in session.compactions}
    taken_ids: set[str] = set()
    new_ids: dict[str, str] = {}
    for position, message in enumerate(session.messages):
        if position in compactions:
            yield compactions[position]
        yield _with_unique_call_ids(message, taken_ids, new_ids)
    compaction_at_end = compactions.get(len(session.messages))
    if compaction_at_end is not None:
        yield compaction_at_end


def _with_unique_call_ids(
    message: recorded_session.RecordedMessage, taken_ids: set[str], new_ids: dict[str, str]
) -> recorded_session.RecordedMessage:
    """Make call ids unique, as some servers repeat them in each reply and providers refuse that.

    Both collections are filled on the way: a later result of a call finds its new id in `new_ids`.
    """
    parts: list[ReplyPart] = []
    for part in message.parts:
        if not isinstance(part, ToolCall):
            parts.append(part)
            continue
        plain_id = plain_call_id(part.id)
        unique_id = plain_id
        while unique_id in taken_ids:
            unique_id = f"{plain_id[:54]}_{len(taken_ids)}"
        taken_ids.add(unique_id)
        new_ids[part.id] = unique_id
        parts.append(replace(part, id=unique_id))
    answered_call = new_ids.get(message.answers, message.answers)
    return replace(message, parts=tuple(parts), answers=answered_call)


def list_items_with_results(
    session: recorded_session.RecordedSession,
) -> list[tuple[SessionItem, dict[str, recorded_session.RecordedMessage]]]:
    """Return each item with its results by call, for formats in which a reply contains
    its results.
    """
    items: list[tuple[SessionItem, dict[str, recorded_session.RecordedMessage]]] = []
    for item in list_session_items(session):
        if items and isinstance(item, recorded_session.RecordedMessage) and item.role == "tool":
            _last_item, results_by_call = items[-1]
            results_by_call[item.answers] = item
        else:
            items.append((item, {}))
    return items


def plain_call_id(call: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", call)[:64]


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call as every agent can read it: its id and name of plain letters, its arguments as an
    object.
    """

    id: str
    name: str
    arguments: Mapping[str, Any]


def build_written_call(call: ToolCall) -> WrittenCall:
    call_id = plain_call_id(call.id)
    name = with_plain_name(call).name
    arguments = parse_arguments_object(call.arguments)
    return WrittenCall(call_id, name, arguments)


def format_iso_time(time: float) -> str:
    moment = datetime.fromtimestamp(time, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_picture_data(picture: recorded_session.RecordedPicture) -> str:
    return base64.b64encode(picture.data).decode("ascii")


def format_picture_url(picture: recorded_session.RecordedPicture) -> str:
    return f"data:{picture.media_type};base64,{format_picture_data(picture)}"


def is_image(file: recorded_session.RecordedPicture) -> bool:
    return file.media_type.startswith("image/")


def describe_left_out_file(file: recorded_session.RecordedPicture) -> str:
    """Return the text of a document, or what stands for another file, for which an agent's session has no form. Written as a
    picture, it would be refused by the agent's provider, with the whole request.
    """
    if file.text:
        return file.text
    return f"[A file of type {file.media_type}, which this agent's sessions cannot contain]"


def change_json_lines(content: bytes, change: Callable[[Line], Line | None]) -> bytes:
    """Return a file of JSON with each line as `change` returns it, and without those for which it
    returns None. A line that `change` returns as it is stays to the byte.

    A line that is no object is left out, because the agent might read it otherwise than we do.
    """
    changed_lines: list[bytes] = []
    for written_line in content.split(b"\n"):
        line = parse_json_or_none(written_line)
        if not isinstance(line, dict):
            continue
        changed_line = change(line)
        if changed_line is line:
            changed_lines.append(written_line)
        elif changed_line is not None:
            written_anew = json.dumps(changed_line, separators=(",", ":"))
            changed_lines.append(written_anew.encode("ascii"))
    return b"".join(line + b"\n" for line in changed_lines)


def _create_uuid() -> str:
    return str(uuid.uuid4())


def _leave_title_out(content: bytes, _session_id: str, _title: str) -> bytes:
    return content


def _keep_permissions(content: bytes) -> bytes:
    return content


def _no_path_of_session(
    _session_id: str, _folder: str, _agent_folder: Path, _start_time: float
) -> str:
    raise NotImplementedError("The agent keeps its sessions in a database.")


class KeptContext(Enum):
    """Which messages that an agent added itself are written back to it: those that it stores as
    messages, as it does not add them anew. `OWN_LINES`: what it shows from lines of its own.
    """

    NONE = 0
    OWN_LINES = 1
    BESIDE = 2
    BESIDE_AND_SYSTEM = 3


@dataclass(frozen=True, slots=True)
class AgentFormat:
    """How a session is given to an agent, declared in the module that writes for it.

    `seen_version`: the version that resumed what is written. `resume`: the command line, with {}
    for the session's id. `window`: of the agent's usual model, in tokens.

    Where it goes: in the folder that the variable `variable` names, or else in the folder `usual`
    of the home. `path_of_session` gets the session's id, its working folder, the agent's folder and
    the time, and returns where the agent looks for it, below that folder. `path_of_marker` gets that path, and
    returns the file in which the agent keeps the working folder, if it has one. `add_to_store`:
    an agent with a database gets the session's document there instead.

    What is written: `build_lines` gets the session, its new id and the time of its start.
    `provider`: whose signed reasoning the agent can send back. `id_fields` contain a session's
    id, and `compaction` is a field of a compaction's line, with its value: without these two,
    original lines are never used, unless `build_document_of_kept_lines` makes the document of an
    agent with a database from them, with a new id, title and time. `kept_context`: which messages
    that the agent adds itself are written back. `with_title` puts the title where the agent keeps it.
    `without_permissions` takes out of original lines what lets the agent do more, when it resumes,
    than its user's settings allow: the conversation may be somebody else's.

    The workspace's server for it, whose tools the folds name: `mcp_client` is its name in
    `mcp_server/client_configuration.py`, and `mcp_fields` are added to the server's entry.
    """

    kind: str
    seen_version: str
    resume: str
    variable: str
    usual: str
    window: int
    build_lines: Callable[
        [recorded_session.RecordedSession, str, float], Iterator[Mapping[str, Any]]
    ]
    path_of_session: Callable[[str, str, Path, float], str] = _no_path_of_session
    path_of_marker: Callable[[str], str] | None = None
    add_to_store: Callable[[Path, bytes], Path] | None = None
    provider: str = ""
    kept_context: KeptContext = KeptContext.NONE
    id_fields: str = ""
    build_document_of_kept_lines: Callable[[Sequence[bytes], str, str, float], bytes] | None = None
    compaction: tuple[str, str] = ("", "")
    create_session_id: Callable[[], str] = _create_uuid
    with_title: Callable[[bytes, str, str], bytes] = _leave_title_out
    mcp_client: str = ""
    mcp_fields: Mapping[str, object] = field(default_factory=dict)
    without_permissions: Callable[[bytes], bytes] = _keep_permissions
