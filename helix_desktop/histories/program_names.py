"""The display names of the programs whose histories can be read, by kind of history (`KIND` of each module here)."""

NAMES = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "opencode": "opencode",
    "gemini-cli": "Gemini CLI",
    "pi": "pi",
    "cline": "Cline",
    "goose": "goose",
}
# Those that a conversation can be written for, by what `conversation restore --to` calls them.
AGENTS_TO_CONTINUE_IN = {
    "claude": "Claude Code",
    "codex": "Codex",
    "opencode": "opencode",
    "gemini": "Gemini CLI",
    "pi": "pi",
}
