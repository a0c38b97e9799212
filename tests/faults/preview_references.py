"""Files in the preview that name other files and addresses, in every spelling.

    python -m tests.faults.preview_references [--files 2000] [--seed 1]

Pictures in SVG are drawn and pages in HTML shown as in the preview. Each names a picture, a style
sheet or a font of another folder, or an address at which a server of the trial listens: at an element,
in a style sheet, as the default of an attribute, in an entity, in an encoding, inside of another file.
None of them may be opened or asked for.
"""

from __future__ import annotations

import argparse
import base64
import os
import random
import select
import socket
import sys
import tempfile
from collections import Counter
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtGui import QGuiApplication, QImage
from PySide6.QtWidgets import QApplication, QTextBrowser

from helix_desktop.gui.preview import svg_worker
from helix_desktop.gui.preview.html_limits import can_be_drawn_at_once
from helix_desktop.gui.preview.offline_document import OfflineDocument
from tests.gui.preview.opened_files import OpenedFiles

SVG_ELEMENTS = (*["image"] * 12, "use", "feImage", "font-face-uri", "a", "linearGradient", "pattern", "textPath", "script", "tref", "animate", "mpath", "cursor", "style", "link", "video", "foreignObject", "svg", "set")  # fmt: skip
SVG_ATTRIBUTES = (*["href", "xlink:href"] * 5, "q:href", "HREF", "src", "xlink:src", "fill", "style", "filter", "mask", "clip-path", "marker", "xml:base", "from", "to", "values", "font-family", "data", "poster", "cursor")  # fmt: skip
HTML_FORMS = (
    '<img src="{a}">', "<img src={a}>", "<img src='{a}' width=9 height=9>", '<img srcset="{a} 2x" src="{a}">', '<input type=image src="{a}">',
    '<link rel=stylesheet href="{a}">', '<link rel="stylesheet" type="text/css" href="{a}">', '<link rel=icon href="{a}">',
    "<style>{css}</style><p>x", '<p style="{css}">x', '<body background="{a}">x', '<table background="{a}"><tr><td background="{a}">x</table>',
    '<ul style="list-style-image:url({a})"><li>x</ul>', '<iframe src="{a}"></iframe>', '<object data="{a}"></object>', '<embed src="{a}">',
    '<base href="{dir}"><img src="{name}">', '<base href="{dir}"><link rel=stylesheet href="{name}">', '<meta http-equiv=refresh content="0;url={a}">',
    '<video poster="{a}" src="{a}"></video>', '<svg><image href="{a}"/></svg>', '<img src="data:image/svg+xml;base64,{svg}">',
    '<img src="data:text/html;base64,{html}">', '<iframe srcdoc="&lt;img src={a}&gt;"></iframe>', '<span style="font-family:x;{css}">x</span>',
    '<div style="border-image:url({a}) 9;border-image-source:url({a})">x</div>', '<p style="background-image:image-set(url({a}) 1x, \'{a}\' 2x)">x',
    '<p style="qproperty-pixmap:url({a});image:url({a})">x', '<hr style="background:url({a})">', '<img lowsrc="{a}" dynsrc="{a}" longdesc="{a}" src="">',
)  # fmt: skip
CSS_FORMS = (
    "@import url({a});", "@import '{a}';", '@import "{a}" screen;', "@import{a};", "@font-face{{font-family:x;src:url({a})}}", "@font-face{{font-family:x;src:local('{a}'),src('{a}')}}",
    "p{{background:url({a})}}", "p{{background-image:src('{a}')}}", "p{{background:image-set('{a}' 1x)}}", "background-image:url('{a}')", "background:url( {a} )",
    "p{{list-style-image:url({a})}}", "p{{content:url({a})}}", "p{{cursor:url({a}),auto}}", "p{{border-image:url({a}) 9}}", "@namespace url({a});", "@charset '{a}';", "rect{{fill:url({a}#a)}}",
    "rect{{fill:url({a})}}", "*{{behavior:url({a});-moz-binding:url({a})}}", "p{{background:url(data:text/css,@import '{a}';)}}",
)  # fmt: skip


class Targets:
    """A picture and a style sheet that nothing may open, and a server that nothing may ask."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.picture = folder / "other.png"
        self.sheet = folder / "other.css"
        QImage(3, 3, QImage.Format.Format_RGB32).save(str(self.picture))
        self.sheet.write_text("p { color: red }")
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]

    def was_asked(self) -> bool:
        readable, _, _ = select.select([self.listening], [], [], 0)
        if readable:
            self.listening.accept()[0].close()
        return bool(readable)


def draw_name(chance: random.Random, targets: Targets) -> str:
    path = chance.choice((targets.picture, targets.sheet))
    relative = os.path.relpath(path)
    forms = (
        *[str(path), f"file://{path}"] * 4, str(path), f"file://{path}", f"FILE:{path}", f"file://localhost{path}", f"file:{path}?a#b", relative, f"//{path}", f"/{path}", f"file:////{path}",
        f"http://127.0.0.1:{targets.port}/x", f"//127.0.0.1:{targets.port}/x.css", f"https://127.0.0.1:{targets.port}", f"ftp://127.0.0.1:{targets.port}/a", f"qrc:{path}", f":{path}", f"jar:file:{path}!/",
        f"\\\\127.0.0.1@{targets.port}\\x", f"data:,base64,{path}", f"data:text/css,@import '{path}';", f"data:image/svg+xml,<svg><image href='{path}'/></svg>",
    )  # fmt: skip
    return chance.choice(forms)


def spell(chance: random.Random, text: str) -> str:
    """Write some letters in another way that a reader of XML, HTML, CSS or addresses undoes."""
    kind = chance.randrange(8)
    if kind > 4:
        return text
    spelled = ""
    for letter in text:
        if chance.random() > 0.15:
            spelled += letter
            continue
        ways = (
            f"&#{ord(letter)};",
            f"&#x{ord(letter):x};",
            f"\\{ord(letter):x} ",
            f"%{ord(letter):02x}",
            f"{letter}/**/",
        )
        spelled += ways[kind]
    return spelled


def build_svg(chance: random.Random, targets: Targets, depth: int = 0) -> bytes:
    name = spell(chance, draw_name(chance, targets))
    element = chance.choice(SVG_ELEMENTS)
    attribute = chance.choice(SVG_ATTRIBUTES)
    quote = chance.choice("'\"")
    css = chance.choice(CSS_FORMS).format(a=name)
    value = chance.choice((name, f"url({name})", f"url({name}#a)", css, f"fill:url({name})"))
    if depth < 2 and chance.random() < 0.2:
        inner = base64.b64encode(build_svg(chance, targets, depth + 1)).decode()
        value = f"data:image/{chance.choice(('png', 'svg+xml'))};base64,{inner}"
    sign = chance.choice(("=", " = ", "\n=\t"))
    written = f"{attribute}{sign}{quote}{value.replace(quote, '')}{quote}"
    dtd = ""
    body = f"<{element} {written} width='9' height='9'/>"
    way = chance.randrange(9)
    if way == 0:
        kind = chance.choice(("CDATA", "CDATA #FIXED", "NMTOKEN"))
        dtd = f"<!DOCTYPE svg [<!ATTLIST {element} {attribute} {kind} {quote}{value.replace(quote, '')}{quote}>]>"
        body = f"<{element} width='9' height='9'/>"
    elif way == 1:
        dtd = f"<!DOCTYPE svg [<!ENTITY e {quote}{value.replace(quote, '')}{quote}>]>"
        body = f"<{element} {attribute}='&e;' width='9' height='9'/>"
    elif way == 2:
        dtd = f"<!DOCTYPE svg SYSTEM {quote}{name.replace(quote, '')}{quote}>"
    elif way == 3:
        dtd = f"<!DOCTYPE svg [<!ENTITY % p SYSTEM '{name}'> %p;]>"
    elif way == 4:
        body = f"<style type='text/css'><![CDATA[{css}]]></style><rect width='9' height='9'/><text>x</text>"
    elif way == 5:
        body = f"<style>{css}</style><rect class='x' width='9' height='9'/>"
    elif way == 6:
        dtd = f"<?xml-stylesheet type='text/css' href='{name}'?>"
    elif way == 7:
        body = f"<!-- href={quote} -->{body}<!-- {quote} -->"
    root = "xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink' xmlns:q='http://www.w3.org/1999/xlink' width='20' height='20'"
    text = f"{dtd}<svg {root}>{body}</svg>"
    encoding = chance.choice(("utf-8", "utf-8", "utf-8", "utf-16", "utf-16-le", "utf-32", "utf-7"))
    return text.encode(encoding, "replace")


def build_html(chance: random.Random, targets: Targets) -> str:
    page = ""
    for _ in range(chance.randint(1, 4)):
        name = draw_name(chance, targets)
        spelled = spell(chance, name)
        css = chance.choice(CSS_FORMS).format(a=spelled)
        svg = base64.b64encode(build_svg(chance, targets)).decode()
        html = base64.b64encode(f"<img src='{name}'>".encode()).decode()
        page += chance.choice(HTML_FORMS).format(
            a=spelled, css=css, dir=f"{targets.folder}/", name="other.png", svg=svg, html=html
        )
    return page


def show_html(html: str) -> bool:
    if not can_be_drawn_at_once(html):
        return False
    view = QTextBrowser()
    view.resize(300, 200)
    document = OfflineDocument(view)
    view.setDocument(document)
    document.setHtml(html)
    view.grab()
    QGuiApplication.processEvents()
    return True


def trials(files: int, seed: int, found: Counter[str]) -> None:
    application = QApplication.instance() or QApplication(["preview"])
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        targets = Targets(Path(name))
        with OpenedFiles(targets.picture) as pictures, OpenedFiles(targets.sheet) as sheets:
            targets.picture.read_bytes()
            assert pictures.is_any_opened(), "the trial would notice nothing"
            for number in range(files):
                if number % 2:
                    svg = build_svg(chance, targets)
                    content: object = svg
                    kept = svg_worker.without_outside_references(svg)
                    if svg_worker.draws_too_much(kept):
                        continue
                    found["pictures drawn"] += bool(svg_worker._draw_svg(kept))
                else:
                    content = build_html(chance, targets)
                    found["pages shown"] += show_html(str(content))
                found["files"] += 1
                if pictures.is_any_opened() or sheets.is_any_opened():
                    found[
                        f"LOST: file {number} of seed {seed} opened another: {content!r:.300}"
                    ] += 1
                if targets.was_asked():
                    found[
                        f"LOST: file {number} of seed {seed} asked a server: {content!r:.300}"
                    ] += 1
        targets.listening.close()
    del application


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--files", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    found: Counter[str] = Counter()
    trials(arguments.files, arguments.seed, found)
    for key, count in sorted(found.items()):
        print(f"{count:6} {key}")
    return int(any(key.startswith("LOST") for key in found))


if __name__ == "__main__":
    sys.exit(main())
