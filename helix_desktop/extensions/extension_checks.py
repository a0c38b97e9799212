"""Checks, for the author of an extension, whether a format of histories, a kind of documents, a tool
or a fold strategy keeps what it promises.

A format and a kind need one example of their files. `helix-desktop extension check` prints the
result, and a test of the extension's own package can ask for it:

    assert check_history_format(history, Path("tests/talk.json")) == []
"""

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path

from helix_desktop.documents.document_kinds import DocumentKind
from helix_desktop.documents.document_reading import read_document_pages
from helix_desktop.engine.facts import ToolCall
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.extensions.added_fold_strategies import check_chosen_fold, check_summary
from helix_desktop.extensions.extension_interfaces import (
    ExtensionFoldStrategy,
    ExtensionHistoryFormat,
    ExtensionTool,
    FoldableContext,
    FoldableMessage,
    MessageToFold,
)
from helix_desktop.extensions.limited_calls import ExtensionFailed, run_with_limit
from helix_desktop.extensions.offered_kinds import (
    check_fold_strategy_declaration,
    check_history_format_declaration,
)
from helix_desktop.extensions.read_sessions import READING_SECONDS, read_and_check_sessions
from helix_desktop.histories.added_formats import BEGINNING, AddedReading
from helix_desktop.histories.recorded_session import (
    HistoryUnreadable,
    RecordedSession,
    reply_parts_from_message,
)

# What a program leaves behind if it is ended while it writes, and what a disk does to a file.
PARTS_OF_FILE = (0.0, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.99)
DAMAGE = b'\xff\xfe\x00{"not": [closed\n'
FILES_OF_OTHERS = (b"", b"\x00\xff" * 100, b"{}", b"[]", b"SQLite format 3\x00", b"hello\n")


def check_history_format(declared: ExtensionHistoryFormat, example: Path) -> list[str]:
    """Return a sentence for each promise that is not kept, or nothing if all are kept."""
    try:
        check_history_format_declaration(None, declared)
    except ExtensionFailed as error:
        return [f"The format cannot be offered: {error.what}."]
    problems = list(_check_recognizing(declared, example))
    content = example.read_bytes()
    try:
        sessions = _read_sessions(declared, example)
    except (ExtensionFailed, HistoryUnreadable) as error:
        return problems + [f"The example could not be read: {error.what}."]
    problems += _check_sessions(sessions)
    if example.read_bytes() != content:
        problems.append("Reading the example has changed the file.")
    problems += _check_parts_of_file(declared, example.name, content)
    return problems


def describe_read_sessions(declared: ExtensionHistoryFormat, example: Path) -> list[str]:
    """Return lines that say how much of an example was read, and what was left out of it."""
    reading = _read_history_with_limit(declared, example)
    lines: list[str] = []
    for session in reading.sessions:
        calls = sum(len(message.calls) for message in session.messages)
        lines.append(f"Read {session.name}: {len(session.messages)} messages, {calls} calls")
    for left_out in reading.left_out:
        lines.append(f"Left out: {left_out}")
    return lines


def check_tool_schema(declared: ExtensionTool) -> list[str]:
    """Return a sentence if the schema of a tool is no JSON schema."""
    from jsonschema import Draft202012Validator, SchemaError  # type: ignore[import-untyped]

    try:
        Draft202012Validator.check_schema(declared.schema)
    except SchemaError as error:
        return [f"The schema of {declared.name} is no JSON schema: {error.message}."]
    return []


def check_fold_strategy(declared: ExtensionFoldStrategy) -> list[str]:
    """Try a strategy with an example conversation. Returns a sentence for each problem."""
    try:
        check_fold_strategy_declaration(None, declared)
    except ExtensionFailed as error:
        return [f"The strategy cannot be offered: {error.what}."]
    context, messages = _build_example_conversation()
    problems: list[str] = []
    choose = declared.choose
    if choose is not None:

        def choose_and_check() -> object:
            chosen_fold = choose(context)
            return check_chosen_fold(chosen_fold, context, declared.name)

        name_of_choose = f"`choose` of {declared.name}"
        problems += _try_function(name_of_choose, choose_and_check, declared.limit_seconds)
    write = declared.write
    if write is not None:

        def write_and_check() -> object:
            summary = write(messages)
            return check_summary(summary)

        name_of_write = f"`write` of {declared.name}"
        problems += _try_function(name_of_write, write_and_check, declared.limit_seconds)
    return problems


def _try_function(name: str, work: Callable[[], object], seconds: float) -> Iterator[str]:
    try:
        run_with_limit(work, seconds, name)
    except ExtensionFailed as error:
        what = error.what
        if not what.startswith(name):
            what = f"{name} {what}"
        yield f"{what}."


def _build_example_conversation() -> tuple[FoldableContext, tuple[MessageToFold, ...]]:
    """Return ten questions, each with a call and its result."""
    foldable: list[FoldableMessage] = []
    messages: list[MessageToFold] = []
    for number in range(1, 31, 3):
        foldable.append(FoldableMessage(number, "user", tokens=8))
        foldable.append(
            FoldableMessage(number + 1, "assistant", 12, tools=("read_file",), may_be_last=False)
        )
        foldable.append(FoldableMessage(number + 2, "tool", tokens=400))
        messages.append(MessageToFold(number, "user", f"[{number}] user: Read part {number}."))
        call = f'[{number + 1}] call of read_file: {{"path": "part{number}.txt"}}'
        messages.append(MessageToFold(number + 1, "assistant", call))
        output = "line\n" * 200
        messages.append(MessageToFold(number + 2, "tool", f"[{number + 2}] output:\n{output}"))
    return FoldableContext(tuple(foldable), used=9_000, window=10_000), tuple(messages)


async def check_document_kind(kind: DocumentKind, example: Path) -> list[str]:
    """Read an example, and damaged copies of it, in the limited process that reads documents.

    The kind has to be offered, so this cannot be asked by a test of its package. Returns a sentence for each problem.
    """
    content = await asyncio.to_thread(example.read_bytes)
    problems: list[str] = []
    try:
        document = await read_document_pages(example.name, content, kind)
        if not any(page.text.strip() for page in document.pages):
            problems.append("No page of the example has a text.")
    except HelixError as error:
        problems.append(f"The example could not be read: {error.what}")
    half = content[: len(content) // 2]
    # An empty file is refused before a reader sees it.
    damaged_copies = (
        (content[:1], "the first byte of the example"),
        (half + DAMAGE, "a damaged copy"),
    )
    for damaged, description in damaged_copies:
        try:
            await read_document_pages(example.name, damaged, kind)
        except InvalidInput as error:
            if "the extension that reads" in error.what:
                problems.append(
                    f"For {description}, the reader failed. Raise DocumentDamaged: {error.what}"
                )
    return problems


def _check_recognizing(declared: ExtensionHistoryFormat, example: Path) -> Iterator[str]:
    if not example.name.endswith(tuple(declared.endings)):
        yield f"The name of {example.name} ends in none of the format's endings, so it is not found in a folder: {', '.join(declared.endings)}."
    with example.open("rb") as file:
        beginning = file.read(BEGINNING)
    try:
        if not _recognizes(declared, example, beginning):
            yield f"`recognizes` returned false for {example.name}."
        for content in FILES_OF_OTHERS:
            if _recognizes(declared, Path("/of-another-program/file.txt"), content):
                yield f"`recognizes` returned true for a file of another program that begins with {content[:20]!r}."
    except ExtensionFailed as error:
        yield f"For some files, {error.what}."


def _recognizes(declared: ExtensionHistoryFormat, path: Path, beginning: bytes) -> bool:
    def recognizes() -> bool:
        return bool(declared.recognizes(path, beginning))

    return run_with_limit(recognizes, READING_SECONDS, "`recognizes`")


def _read_sessions(declared: ExtensionHistoryFormat, path: Path) -> tuple[RecordedSession, ...]:
    return _read_history_with_limit(declared, path).sessions


def _read_history_with_limit(declared: ExtensionHistoryFormat, path: Path) -> AddedReading:
    """Raises HistoryUnreadable if the format says that the file is damaged, and else
    ExtensionFailed.
    """

    def read_or_return_refusal() -> AddedReading | HistoryUnreadable:
        try:
            return read_and_check_sessions(declared, path)
        except HistoryUnreadable as error:
            return error

    result = run_with_limit(read_or_return_refusal, READING_SECONDS, "`read`")
    if isinstance(result, HistoryUnreadable):
        raise result
    return result


def _check_sessions(sessions: Sequence[RecordedSession]) -> Iterator[str]:
    has_reply = False
    for session in sessions:
        yield from _check_calls_and_results(session)
        for field in sorted(set(_list_fields_with_broken_text(session))):
            yield f'In the session {session.session}, {field} has half of a surrogate pair, which cannot be stored, so other characters replace it. Decode the file\'s bytes with errors="replace", and join both halves of an escaped character.'
        has_reply |= any(message.role == "assistant" for message in session.messages)
    if not has_reply:
        yield "No session has a message with the role assistant, so none would be imported."


def _check_calls_and_results(session: RecordedSession) -> Iterator[str]:
    """An import takes a result for the one of a call only if the last reply has made that call, and
    no result before it has answered it.
    """
    unanswered_calls: set[str] = set()
    for message in session.messages:
        if message.role == "tool":
            if message.answers not in unanswered_calls:
                yield f"In the session {session.session}, a result answers {message.answers!r}, and the last reply before it has no such call, or another result answers it. It would be imported as an output that answers no call."
            unanswered_calls.discard(message.answers)
            continue
        parts = message.parts or reply_parts_from_message(message)
        calls = [part for part in parts if isinstance(part, ToolCall)]
        for call in calls:
            if not _is_json_object(call.arguments):
                yield f"In the session {session.session}, the arguments of the call {call.id!r} are no JSON object."
        if message.role == "assistant" and parts:
            unanswered_calls = {call.id for call in calls}


def _list_fields_with_broken_text(thing: object) -> Iterator[str]:
    """Yield the fields of a session, and of what it consists of, whose texts cannot be stored."""
    for field in fields(thing):  # type: ignore[arg-type]
        value = getattr(thing, field.name)
        items = value
        if not isinstance(value, tuple):
            items = (value,)
        for item in items:
            if is_dataclass(item):
                yield from _list_fields_with_broken_text(item)
            elif isinstance(item, str) and not _can_be_stored(item):
                yield f"{type(thing).__name__}.{field.name}"


def _can_be_stored(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _check_parts_of_file(
    declared: ExtensionHistoryFormat, name: str, content: bytes
) -> Iterator[str]:
    """Read the example as it was while its program still wrote it, and as a damaged disk leaves it.

    All are read at one path, because a format may identify its sessions by it.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        whole_sessions = _read_sessions(declared, path)
        if _identities(_read_sessions(declared, path)) != _identities(whole_sessions):
            yield "The sessions have another `session` when the same file is read again."
            return
        for part in PARTS_OF_FILE:
            path.write_bytes(content[: int(len(content) * part)])
            yield from _check_part(
                declared, path, whole_sessions, f"the first {part:.0%} of the example"
            )
        middle = len(content) // 2
        path.write_bytes(content[:middle] + DAMAGE + content[middle:])
        yield from _check_part(declared, path, (), "a damaged copy")


def _check_part(
    declared: ExtensionHistoryFormat,
    path: Path,
    whole_sessions: Sequence[RecordedSession],
    description: str,
) -> Iterator[str]:
    try:
        sessions = _read_sessions(declared, path)
    except HistoryUnreadable:
        return
    except ExtensionFailed as error:
        yield f"When it read {description}, {error.what}. Raise HistoryUnreadable for a damaged file."
        return
    if whole_sessions and not _identities(sessions) <= _identities(whole_sessions):
        yield f"In {description}, the sessions have another `session`, so a file that grows would be imported twice."


def _identities(sessions: Sequence[RecordedSession]) -> set[str]:
    return {session.session for session in sessions}
