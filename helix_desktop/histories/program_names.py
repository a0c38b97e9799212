"""What the programs are called whose histories are read, by the kind of history (`KIND` of each module here)."""

NAMES = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "opencode": "opencode",
    "gemini-cli": "Gemini CLI",
    "pi": "pi",
    "cline": "Cline",
    "goose": "goose",
}
