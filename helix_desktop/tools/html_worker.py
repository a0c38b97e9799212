"""A script that converts HTML from standard input to readable text, in a process that
can be killed.
"""

import re
import sys
from html.parser import HTMLParser

_UNSEEN = frozenset({"script", "style", "noscript", "template", "svg", "head"})
_BREAKS = frozenset((
    "p", "div", "section", "article", "header", "footer", "main", "nav", "aside", "ul", "ol",
    "table", "tr", "pre", "blockquote", "form", "dl", "dt", "dd", "br", "hr",
))  # fmt: skip
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}


class ReadableTextParser(HTMLParser):
    """Collects what a reader sees. Headings, list items and links are marked; other
    text is kept as it is.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.out: list[str] = []
        self._unseen = 0
        self._verbatim = 0
        self._links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _UNSEEN:
            self._unseen += 1
        elif tag == "a":
            self._links.append(dict(attrs).get("href") or "")
        elif tag == "li":
            self.out.append("\n- ")
        elif tag in _HEADINGS:
            self.out.append(f"\n\n{_HEADINGS[tag]}")
        elif tag in ("td", "th"):
            self.out.append(" | ")
        elif tag in _BREAKS:
            self.out.append("\n")
        self._verbatim += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        if tag in _UNSEEN:
            self._unseen = max(0, self._unseen - 1)
        elif tag == "a" and self._links:
            address = self._links.pop()
            if address.startswith(("http:", "https:", "/")):
                self.out.append(f" ({address})")
        elif tag in _HEADINGS or tag in _BREAKS:
            self.out.append("\n")
        self._verbatim = max(0, self._verbatim - (tag == "pre"))

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.out.append(data if self._verbatim else re.sub(r"\s+", " ", data))


def convert_standard_input() -> None:
    reader = ReadableTextParser()
    reader.feed(sys.stdin.buffer.read().decode("utf-8", "replace"))
    reader.close()
    text = re.sub(r"[ \t]+\n", "\n", "".join(reader.out))
    sys.stdout.buffer.write(
        re.sub(r"\n{3,}", "\n\n", text).strip().encode("utf-8", "replace") + b"\n"
    )


if __name__ == "__main__":
    convert_standard_input()
