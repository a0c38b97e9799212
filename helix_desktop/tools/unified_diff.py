"""What changed in a file, as a unified diff that is cheap for any size.

difflib holds the interpreter for seconds on large inputs, so it only ever sees the part between the first and the
last changed line, and where even that is long, the old lines are shown as gone and the new ones as come.
"""

import difflib

CONTEXT = 3
_LONG = 1500


def format_unified_diff(before: str, after: str, name: str) -> str:
    """A unified diff; empty where nothing changed."""
    old, new = _split_at_line_feeds(before), _split_at_line_feeds(after)
    if old == new:
        return ""
    start = _count_common_lines(old, new)
    end = _count_common_lines(old[start:][::-1], new[start:][::-1])
    first = max(0, start - CONTEXT)
    old_part = old[first : len(old) - max(0, end - CONTEXT)]
    new_part = new[first : len(new) - max(0, end - CONTEXT)]
    lines = (
        _format_hunks(old_part, new_part, first)
        if len(old_part) + len(new_part) <= _LONG
        else _format_whole_replacement(old_part, new_part, first)
    )
    return "".join([f"--- {name}\n", f"+++ {name}\n", *map(_with_missing_newline_note, lines)])


def _split_at_line_feeds(text: str) -> list[str]:
    """As git sees them: only a line feed ends one. What else passes for an end of a line stays within it, to be seen."""
    return [f"{line}\n" for line in text.split("\n")[:-1]] + [last for last in [text.rpartition("\n")[2]] if last]


def _count_common_lines(old: list[str], new: list[str]) -> int:
    for index, (one, other) in enumerate(zip(old, new, strict=False)):
        if one != other:
            return index
    return min(len(old), len(new))


def _format_hunks(old: list[str], new: list[str], first: int) -> list[str]:
    lines = []
    groups = difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(CONTEXT)
    for group in groups:
        lines.append(_format_hunk_header(first, (group[0][1], group[-1][2]), (group[0][3], group[-1][4])))
        for tag, old_from, old_to, new_from, new_to in group:
            if tag == "equal":
                lines += [f" {line}" for line in old[old_from:old_to]]
                continue
            lines += [f"-{line}" for line in old[old_from:old_to]]
            lines += [f"+{line}" for line in new[new_from:new_to]]
    return lines


def _format_whole_replacement(old: list[str], new: list[str], first: int) -> list[str]:
    header = _format_hunk_header(first, (0, len(old)), (0, len(new)))
    return [header, *(f"-{line}" for line in old), *(f"+{line}" for line in new)]


def _format_hunk_header(first: int, old: tuple[int, int], new: tuple[int, int]) -> str:
    return f"@@ -{_format_hunk_range(first, *old)} +{_format_hunk_range(first, *new)} @@\n"


def _format_hunk_range(first: int, start: int, stop: int) -> str:
    length = stop - start
    return f"{first + start + (1 if length else 0)},{length}"


def _with_missing_newline_note(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
