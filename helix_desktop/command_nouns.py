"""What the program's own commands are called, in the order of the help.

For each noun, the module `commands/NOUN_command.py` has a function `add_NOUN_commands`. No
extension can bring a command with one of these names.
"""

NOUNS = (
    "workspace", "conversation", "cache", "changes", "copy", "project", "forget", "ask", "acp",
    "task", "worker", "schedule", "fleet", "cost", "gateway", "wrap", "resident", "recorder",
    "provider", "model", "replay", "mcp", "host", "extension", "doctor",
)  # fmt: skip
