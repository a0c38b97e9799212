"""Every kind of history that the program reads, each declared in its own module.

A file of rows has the first format that recognizes one of them. Formats of extensions are in
`added_formats.py`.
"""

from collections.abc import Sequence

from helix_desktop.histories import (
    anthropic_history,
    chatgpt_history,
    claude_code_history,
    cline_history,
    codex_history,
    copilot_history,
    gemini_cli_history,
    goose_history,
    openai_history,
    opencode_history,
    pi_history,
    qwen_code_history,
    trajectories,
)
from helix_desktop.histories.history_format import HistoryFormat

ALL_FORMATS: Sequence[HistoryFormat] = (
    claude_code_history.FORMAT,
    codex_history.FORMAT,
    opencode_history.FORMAT,
    gemini_cli_history.FORMAT,
    pi_history.FORMAT,
    qwen_code_history.FORMAT,
    copilot_history.FORMAT,
    cline_history.FORMAT,
    goose_history.FORMAT,
    trajectories.FORMAT,
    chatgpt_history.FORMAT,
    anthropic_history.FORMAT,
    # The last one: it recognizes every row.
    openai_history.FORMAT,
)


def find_format(kind: str) -> HistoryFormat | None:
    """Return the format of a kind, or None for an extension's or an unknown one."""
    for history_format in ALL_FORMATS:
        if history_format.kind == kind:
            return history_format
    return None
