"""Draws one SVG file as a PNG in a process that can be ended. A script.

    svg_worker.py FOLDERS      folders with the libraries, if any are needed

Standard input has the SVG, standard output the PNG, or nothing if it cannot be drawn. Qt's drawing of
an SVG opens the files that it names, and small files hold it for minutes, so references to anything
outside the file are taken out, and the system limits the process.
"""

import base64
import codecs
import os
import re
import sys
from collections import defaultdict
from contextlib import suppress
from xml.parsers import expat

SECONDS = 5  # Of the processor. A picture of 100,000 shapes needs about one.
MOST_DRAWN_ELEMENTS = 500_000
LONGEST_EDGE = 4_000
_REFERENCE = re.compile(
    r"""(?:[\w.-]+:)?(?:href|src)\s*=\s*(["'])(.*?)\1""", re.IGNORECASE | re.DOTALL
)
# Neither can have another reference in it.
_PART_OF_FILE = re.compile(r"""#[^"'=&<>]*""")
_OWN_CONTENT = re.compile(r"""data:[^"'&<>]*""")
_IMPORTS = re.compile(r"@import[^;]*;|url\(\s*[\"']?(?!#|data:)[^)]*\)", re.IGNORECASE)
_NAMED_PART = re.compile(r"""url\(\s*["']?#([^"')\s]+)""")
_DECLARATION = re.compile(r"<\?xml\s[^>]*\?>")
# An entity with words alone, such as a long name for a namespace.
_PLAIN_ENTITY = re.compile(r"""<!ENTITY\s+[\w.-]+\s+(?:"[^"&<%]*"|'[^'&<%]*')\s*>""")
# The longer marks first: one of them begins with a shorter one.
_ENCODING_BY_MARK = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# An SVG inside of the SVG would be drawn, too, with all that it names.
_BEGINNINGS_OF_PICTURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM")
_BASE64 = re.compile(r"[A-Za-z0-9+/]")
_LOOKED_AT = 16  # Letters of a picture in base64, by which its beginning is known.


def draw_standard_input() -> None:
    for folder in sys.argv[1].split(os.pathsep):
        if folder:
            sys.path.append(folder)
    _limit_drawing_process()
    svg = without_outside_references(sys.stdin.buffer.read())
    if draws_too_much(svg):
        return
    from PySide6.QtGui import QGuiApplication

    # Without an application, Qt has no fonts for the texts of the picture.
    application = QGuiApplication(["svg", "-platform", "offscreen"])
    png = _draw_svg(svg)
    sys.stdout.buffer.write(png)
    sys.stdout.buffer.flush()
    del application


def without_outside_references(svg: bytes) -> bytes:
    """Returns the file without what names other files, or nothing if that cannot be known.

    What is found is what Qt reads: it is given plain UTF-8, whatever the encoding was. In place of
    each reference stands a blank, so that what was around it does not become another one.
    """
    text = _decode_svg(svg).replace("\0", "")
    text = _DECLARATION.sub(" ", text, count=1).lstrip()
    if "<!ENTITY" in _PLAIN_ENTITY.sub(" ", text):
        return b""  # Its text may become any mark-up.
    if "<!ATTLIST" in text:
        return b""  # Each element may get a reference that is not written at it.
    text_before = ""
    while text != text_before:  # What stands around a blank may be a reference now.
        text_before = text
        text = _REFERENCE.sub(_keep_inner_reference, text)
        text = _IMPORTS.sub(" ", text)
    return text.encode("utf-8", "replace")


def draws_too_much(svg: bytes) -> bool:
    """Whether a small file draws a part of itself very often: ten parts, of which each draws the one
    before it ten times, are ten billion shapes. What a style sheet adds is not counted.
    """
    counter = _ElementCounter()
    reader = expat.ParserCreate()
    reader.StartElementHandler = counter.add_element
    reader.EndElementHandler = counter.end_element
    # Qt may draw what stands before a mistake.
    with suppress(expat.ExpatError):
        reader.Parse(svg, True)
    return counter.count_drawn_elements() > MOST_DRAWN_ELEMENTS


class _ElementCounter:
    """Counts the elements of a picture with what each draws by naming it. A part is an element with
    an id, or the whole picture, without the parts within it. Of several with one id, the others have none.
    """

    def __init__(self) -> None:
        self._elements = defaultdict[str, int](int)  # How many are in each part.
        # Which parts each part draws, as often as it does, those within it among them.
        self._drawn_parts = defaultdict[str, list[str]](list)
        self._open_parts = [""]

    def add_element(self, _name: str, attributes: dict[str, str]) -> None:
        part = self._open_parts[-1]
        identity = attributes.get("id", "")
        if identity and identity not in self._elements:
            self._drawn_parts[part].append(identity)
            part = identity
        self._open_parts.append(part)
        self._elements[part] += 1
        for name, value in attributes.items():
            times = 1
            if name.startswith("marker"):  # It is drawn at each point of a line.
                points = attributes.get("d", "") + attributes.get("points", "")
                times += len(points.split())
                self._elements[part] += times
            for named in _named_parts(name, value):
                self._drawn_parts[part].extend([named] * times)

    def end_element(self, _name: str) -> None:
        self._open_parts.pop()

    def count_drawn_elements(self) -> int:
        """Stops soon after there are too many, as in a part that draws itself."""
        count = 0
        waiting = [""]
        while waiting and count <= MOST_DRAWN_ELEMENTS:
            part = waiting.pop()
            count += 1 + self._elements[part]
            waiting += self._drawn_parts[part]
        return count


def _named_parts(name: str, value: str) -> list[str]:
    if name.rpartition(":")[2] == "href":
        return [value.strip().removeprefix("#")]
    return _NAMED_PART.findall(value)


def _decode_svg(svg: bytes) -> str:
    for mark, encoding in _ENCODING_BY_MARK:
        if svg.startswith(mark):
            return svg.decode(encoding, "replace")
    try:
        return svg.decode("utf-8-sig")
    except UnicodeDecodeError:
        return svg.decode("latin-1")


def _keep_inner_reference(reference: "re.Match[str]") -> str:
    """Returns a reference to a part of the file, or to a picture that stands in it, or else a blank."""
    value = reference[2]
    if _PART_OF_FILE.fullmatch(value) is not None:
        return reference[0]
    # Qt takes what stands behind the last of these words.
    _, begins_content, content = value.rpartition("base64,")
    if _OWN_CONTENT.fullmatch(value) is None or not begins_content:
        return " "
    letters = "".join(_BASE64.findall(content[: 10 * _LOOKED_AT])[:_LOOKED_AT])
    beginning = base64.b64decode(letters[: len(letters) // 4 * 4])
    if beginning.startswith(_BEGINNINGS_OF_PICTURES):
        return reference[0]
    return " "


def _draw_svg(svg: bytes) -> bytes:
    """Returns nothing for a file that is no picture."""
    from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QSize, Qt
    from PySide6.QtGui import QImage, QPainter
    from PySide6.QtSvg import QSvgRenderer

    renderer = QSvgRenderer(QByteArray(svg))
    size = renderer.defaultSize() * 2  # Sharp on screens with two pixels for one.
    if not renderer.isValid() or size.isEmpty():
        return b""
    if max(size.width(), size.height()) > LONGEST_EDGE:
        size.scale(QSize(LONGEST_EDGE, LONGEST_EDGE), Qt.AspectRatioMode.KeepAspectRatio)
    image = QImage(size, QImage.Format.Format_ARGB32_Premultiplied)
    image.fill(Qt.GlobalColor.white)
    painter = QPainter(image)
    renderer.render(painter)
    painter.end()

    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "png")  # type: ignore[call-overload]  # Its annotations want bytes, Qt wants text.
    return bytes(buffer.data().data())


def _limit_drawing_process() -> None:
    if sys.platform == "win32":  # There, the parent process ends this process.
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # It writes no file.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    draw_standard_input()
