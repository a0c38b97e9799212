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
