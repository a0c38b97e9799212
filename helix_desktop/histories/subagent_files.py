"""Finds the files of a session's sub-agents, which come with the session when it is imported.

What a sub-agent did stands in its own file alone. Where these lie, each format declares.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from helix_desktop.histories import claude_code_history
from helix_desktop.histories.all_formats import ALL_FORMATS
from helix_desktop.json_values import object_at, parse_json_or_none, text_at

# A file of Claude Code may begin with the titles of other sessions, a line for each, before the
# first line that names its own session.
_MOST_LINES_OF_BEGINNING = 1_000
_MOST_BYTES_OF_LINE = 4 << 20


def is_file_of_subagent(file: Path) -> bool:
    """Whether its name and place say that a file is a sub-agent's, in any program's folders."""
    for history_format in ALL_FORMATS:
        pattern = history_format.file_pattern
        if not pattern or not file.match(pattern) or not history_format.holds_session(file):
            continue
        if not history_format.is_main_session(file):
            return True
    return False


def put_subagents_last(files: Iterable[Path]) -> list[Path]:
    """Return the files in their order, but those of sub-agents behind all others: what a session
    started is imported after it, so that it is known which conversation it belongs to.
    """
    main_files: list[Path] = []
    files_of_subagents: list[Path] = []
    for file in files:
        if is_file_of_subagent(file):
            files_of_subagents.append(file)
        else:
            main_files.append(file)
    return main_files + files_of_subagents


def list_files_with_subagents(file: Path) -> Sequence[Path]:
    """Return a session's own file and those of its sub-agents."""
    return find_files_of_sessions([file])[file]


def find_files_of_sessions(files: Iterable[Path]) -> Mapping[Path, Sequence[Path]]:
    """Return, for each session's own file, that file and those of its sub-agents.

    A folder with many sessions of Claude Code is looked through once for all of them.
    """
    files_by_session: dict[Path, Sequence[Path]] = {}
    older_subagents_by_folder: dict[Path, Mapping[str, Sequence[Path]]] = {}
    for file in files:
        folder = file.parent
        if folder not in older_subagents_by_folder:
            older_subagents_by_folder[folder] = _find_older_claude_subagents(folder)
        files_of_session = [file]
        for history_format in ALL_FORMATS:
            files_of_session.extend(history_format.list_subagents(file))
        files_of_session.extend(_list_older_subagents(file, older_subagents_by_folder[folder]))
        files_by_session[file] = tuple(files_of_session)
    return files_by_session


# --- Older versions of Claude Code, which wrote sub-agents beside the sessions of a project


def _find_older_claude_subagents(folder: Path) -> Mapping[str, Sequence[Path]]:
    """Return the files of sub-agents that lie beside sessions, by the session that each names.
    Links that lead out of the folder are not followed.
    """
    files_by_session: dict[str, list[Path]] = {}
    with suppress(OSError):
        resolved_folder = folder.resolve()
        for file in sorted(folder.glob(f"{claude_code_history.SUBAGENT_FILE}.jsonl")):
            if not file.is_file() or not file.resolve().is_relative_to(resolved_folder):
                continue
            session_id = _read_session_id_of_claude(file)
            files_by_session.setdefault(session_id, []).append(file)
    return files_by_session


def _list_older_subagents(
    file: Path, subagents_by_session: Mapping[str, Sequence[Path]]
) -> Sequence[Path]:
    """Return those of a folder's older sub-agents that this session started."""
    if not subagents_by_session or file.match(claude_code_history.SUBAGENT_FILE):
        return ()
    # A file that was renamed names its session in its lines alone.
    session_id = _read_session_id_of_claude(file) or file.stem
    return subagents_by_session.get(session_id, ())


def _read_session_id_of_claude(file: Path) -> str:
    """Return the session that the first lines of a file name, or an empty text."""
    with suppress(OSError), file.open("rb") as opened_file:
        for _ in range(_MOST_LINES_OF_BEGINNING):
            line = opened_file.readline(_MOST_BYTES_OF_LINE)
            if not line:
                break
            session_id = text_at(object_at(parse_json_or_none(line)), "sessionId")
            if session_id:
                return session_id
    return ""
