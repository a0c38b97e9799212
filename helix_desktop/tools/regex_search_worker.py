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

_LONGEST = 400  # Lines with more characters are shortened when they are shown.
_LONGEST_LINE = 1 << 20  # Lines with more bytes are matched in parts.


class LineMatcher:
    """Matches lines of content one by one, and writes the matching ones and those around them."""

    def __init__(self, options: dict[str, object]) -> None:
        self._pattern = re.compile(
            str(options["pattern"]), re.IGNORECASE if options.get("ignore_case") else 0
        )
        self._context = int(str(options.get("context", 0)))
        self._most = int(str(options.get("most", 200)))
        self.hits = 0
        self._reset_for_next_content("")

    def _reset_for_next_content(self, content_name: str) -> None:
        self._name = content_name
        self._number = 1
        self._before: deque[tuple[int, str]] = deque(maxlen=self._context)
        self._after = 0
        self._rest = b""

    def match_piece(self, name: str, content: bytes, *, more: bool) -> None:
        if name != self._name:
            self._reset_for_next_content(name)
        lines = (self._rest + content).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._match_line(line)
            self._number += 1
        if len(self._rest) > _LONGEST_LINE or not more:
            if self._rest:
                # The next part of this line has the same number.
                self._match_line(self._rest)
            self._rest = b""
        if not more:
            self._reset_for_next_content("")

    def _match_line(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip("\r")
        match = self._pattern.search(text)
        if match:
            self.hits += 1
            if self.hits > self._most:
                return
            for number, earlier in self._before:
                self._write_found_line(number, earlier, hit=False)
            self._before.clear()
            self._write_found_line(self._number, _cut_around_match(text, *match.span()), hit=True)
            self._after = self._context
        elif self._after:
            self._after -= 1
            self._write_found_line(self._number, _cut_around_match(text, 0, 0), hit=False)
        else:
            self._before.append((self._number, _cut_around_match(text, 0, 0)))

    def _write_found_line(self, number: int, text: str, *, hit: bool) -> None:
        json.dump({"name": self._name, "line": number, "text": text, "hit": hit}, sys.stdout)
        sys.stdout.write("\n")


def _cut_around_match(text: str, start: int, end: int) -> str:
    """Cut a line to the length that can be shown, keeping the match in it."""
    if len(text) <= _LONGEST:
        return text
    first = max(0, min(start - _LONGEST // 3, len(text) - _LONGEST))
    last = max(min(end, first + 2 * _LONGEST), first + _LONGEST)
    return ("…" if first else "") + text[first:last] + ("…" if last < len(text) else "")


def match_standard_input() -> None:
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
        about = json.loads(header)
        matcher.match_piece(about["name"], stream.read(about["size"]), more=about["more"])
    json.dump({"hits": matcher.hits}, sys.stdout)


if __name__ == "__main__":
    match_standard_input()
