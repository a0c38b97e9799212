"""A script that matches a regular expression against what it is sent, in a process that
can be killed.

Patterns come from a model. Some would take years, and Python cannot be interrupted
while it matches. Input: a line of JSON (`pattern`, `context`, `most`, `ignore_case`,
`seconds`), then for each piece of content a line of JSON (`name`, `size`, and `more` if
the next piece continues it) and `size` bytes. Output: a line of JSON for each line to
show. It imports nothing of ours, so that it starts in 20 ms.
"""

import json
import re
import signal
import sys
from collections import deque

_MOST_SHOWN_CHARACTERS = 400  # Lines with more characters are shortened when they are shown.
_MOST_LINE_BYTES = 1 << 20  # Lines with more bytes are matched in parts.


class LineMatcher:
    """Matches lines of content one by one, and writes the matching ones and those around them."""

    def __init__(self, options: dict[str, object]) -> None:
        flags = re.NOFLAG
        if options.get("ignore_case"):
            flags = re.IGNORECASE
        self._pattern = re.compile(str(options["pattern"]), flags)
        context = options.get("context", 0)
        most_matches = options.get("most", 200)
        self._context = int(str(context))
        self._most_matches = int(str(most_matches))
        self.hits = 0
        self._reset_for_next_content("")

    def _reset_for_next_content(self, content_name: str) -> None:
        self._content_name = content_name
        self._line_number = 1
        self._lines_before: deque[tuple[int, str]] = deque(maxlen=self._context)
        self._lines_to_show_after = 0
        self._unfinished_line = b""

    def match_piece(self, name: str, content: bytes, *, more: bool) -> None:
        """Search the next piece of a content. Its last line may go on in the next piece, so it
        waits for that one, unless it is already too long or there is no more.
        """
        if name != self._content_name:
            self._reset_for_next_content(name)
        lines = (self._unfinished_line + content).split(b"\n")
        self._unfinished_line = lines.pop()
        for line in lines:
            self._match_line(line)
            self._line_number += 1
        if len(self._unfinished_line) > _MOST_LINE_BYTES or not more:
            if self._unfinished_line:
                # The next part of this line has the same number.
                self._match_line(self._unfinished_line)
            self._unfinished_line = b""
        if not more:
            self._reset_for_next_content("")

    def _match_line(self, line: bytes) -> None:
        """Print a line if it matches or is near a match. Lines before a match are only known to be
        near it when it is reached, so the last few are kept until then.
        """
        text = line.decode("utf-8", "replace").rstrip("\r")
        match = self._pattern.search(text)
        if match:
            self.hits += 1
            if self.hits > self._most_matches:
                return
            for number, line_before in self._lines_before:
                self._write_found_line(number, line_before, hit=False)
            self._lines_before.clear()
            shown_text = _cut_around_match(text, *match.span())
            self._write_found_line(self._line_number, shown_text, hit=True)
            self._lines_to_show_after = self._context
        elif self._lines_to_show_after:
            self._lines_to_show_after -= 1
            shown_text = _cut_around_match(text, 0, 0)
            self._write_found_line(self._line_number, shown_text, hit=False)
        else:
            shown_text = _cut_around_match(text, 0, 0)
            self._lines_before.append((self._line_number, shown_text))

    def _write_found_line(self, number: int, text: str, *, hit: bool) -> None:
        json.dump(
            {"name": self._content_name, "line": number, "text": text, "hit": hit}, sys.stdout
        )
        sys.stdout.write("\n")


def _cut_around_match(text: str, start: int, end: int) -> str:
    """Cut a line to the length that can be shown, keeping the match in it."""
    if len(text) <= _MOST_SHOWN_CHARACTERS:
        return text
    cut_start = max(0, min(start - _MOST_SHOWN_CHARACTERS // 3, len(text) - _MOST_SHOWN_CHARACTERS))
    cut_end = max(
        min(end, cut_start + 2 * _MOST_SHOWN_CHARACTERS), cut_start + _MOST_SHOWN_CHARACTERS
    )
    shown = text[cut_start:cut_end]
    if cut_start > 0:
        shown = f"…{shown}"
    if cut_end < len(text):
        shown = f"{shown}…"
    return shown


def match_standard_input() -> None:
    """Run the worker: read the options from one line, then pieces of contents, each after a line
    that says how long it is, and print the lines found, last their number.
    """
    stream = sys.stdin.buffer
    options = json.loads(stream.readline())
    if hasattr(signal, "alarm"):
        signal.alarm(options["seconds"])  # Ends the process if the program that started it is gone.
    try:
        matcher = LineMatcher(options)
    except (re.error, RecursionError, OverflowError) as error:
        json.dump({"error": str(error)}, sys.stdout)
        return
    while header := stream.readline():
        header_fields = json.loads(header)
        matcher.match_piece(
            header_fields["name"], stream.read(header_fields["size"]), more=header_fields["more"]
        )
    json.dump({"hits": matcher.hits}, sys.stdout)


if __name__ == "__main__":
    match_standard_input()
