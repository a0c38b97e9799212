"""What of a stranger's SVG is drawn: no other file, and not billions of shapes."""

from __future__ import annotations

import base64
import gzip
import time
from xml.etree import ElementTree as ET
from xml.parsers import expat

import pytest
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication

from helix_desktop.gui.preview import svg_worker
from tests.conftest import Expect

OUTSIDE = "/outside/picture.png"


IMAGE = f"<svg xmlns='http://www.w3.org/2000/svg'><image href='{OUTSIDE}'/></svg>"


SVG_OF_ENEMIES = {
    "plain": IMAGE.encode(),
    "in 16 bits": IMAGE.encode("utf-16"),
    "in 16 bits without a mark": IMAGE.encode("utf-16-le"),
    "in 32 bits": IMAGE.encode("utf-32"),
    "in 32 bits without a mark": IMAGE.encode("utf-32-be"),
    "declared": ('<?xml version="1.0" encoding="UTF-16"?>' + IMAGE).encode("utf-16"),
    "packed": gzip.compress(IMAGE.encode()),
    "in two halves": IMAGE.replace("href", "hrhref='x'ef").encode(),
    "around another one": IMAGE.replace("href=", "href href='x' =").encode(),
    "around an import": IMAGE.replace("href=", "href@import x;=").encode(),
    "around an address": IMAGE.replace("href=", "href url(x)=").encode(),
    "in what seems a part": IMAGE.replace("href", "title='href=\"#' href").replace("/></svg", " alt='\"'/></svg").encode(),
    "behind a part": IMAGE.replace("<image", "<![CDATA[ href='# ]]><image").encode(),
    "in an entity": f"<!DOCTYPE svg [<!ENTITY i \"<image h&#114;ef='{OUTSIDE}'/>\">]><svg>&i;</svg>".encode(),
    "as a default": f"<!DOCTYPE svg [<!ATTLIST image href CDATA '{OUTSIDE}'>]><svg xmlns='http://www.w3.org/2000/svg'><image/></svg>".encode(),
    "as a fixed default": f"<!DOCTYPE svg [<!ATTLIST image href CDATA #FIXED '{OUTSIDE}'>]><svg><image/></svg>".encode(),
    "in a style sheet": f'<?xml-stylesheet href="{OUTSIDE}"?>{IMAGE}'.encode(),
    "in itself": f"<svg><image href='data:image/png;base64,{base64.b64encode(IMAGE.encode()).decode()}'/></svg>".encode(),
    "in itself, hidden": f"<svg><image href='data:image/png;base64,iVBORw0KGgo;base64, {base64.b64encode(IMAGE.encode()).decode()}'/></svg>".encode(),
}  # fmt: skip


@pytest.mark.parametrize("svg", SVG_OF_ENEMIES.values(), ids=SVG_OF_ENEMIES)
def test_an_svg_names_no_other_file_however_it_is_written(svg: bytes) -> None:
    """The defect: in another encoding, packed, or put together, the name of a file stayed in it."""
    kept = svg_worker.without_outside_references(svg)
    assert b"\0" not in kept
    assert not kept.startswith(b"\x1f\x8b")
    assert base64.b64encode(IMAGE.encode()) not in kept
    try:
        elements = list(ET.fromstring(kept).iter())  # noqa: S314 -- our own texts
    except ET.ParseError:  # Qt does not read it, either.
        return
    for element in elements:
        references = [value for name, value in element.items() if name.endswith("href")]
        assert OUTSIDE not in references


def parts_in_parts(part: str, drawn: str, count: int = 10) -> bytes:
    """A picture with `count` parts, of which each draws the one before it."""
    parts = [part.format(number=0, inside="<rect width='1' height='1'/>")]
    for number in range(1, count):
        parts.append(part.format(number=number, inside=drawn.format(number=number - 1)))
    last = drawn.format(number=count - 1)
    return f"<svg width='9' height='9'><defs>{''.join(parts)}</defs>{last}</svg>".encode()


LINE = "d='M0 0" + " L1 1" * 300 + "'"


SVG_OF_BILLIONS = {
    "by using": parts_in_parts("<g id='a{number}'>{inside}</g>", "<use href='#a{number}'/>" * 10),
    "by two": parts_in_parts("<g id='a{number}'>{inside}</g>", "<use xlink:href=' #a{number}'/>" * 2, 40),
    "by patterns": parts_in_parts("<pattern id='a{number}'>{inside}</pattern>", "<rect fill='url(#a{number})'/>" * 10),
    "by a style": parts_in_parts("<mask id='a{number}'>{inside}</mask>", "<g style='x:1;mask:url( \"#a{number}\" )'/>" * 10),
    "at points": parts_in_parts("<marker id='a{number}'>{inside}</marker>", f"<path {LINE} marker-mid='url(#a{{number}})'/>", 4),
    "in itself": b"<svg><g id='a'><use href='#a'/></g></svg>",
    "before a mistake": parts_in_parts("<g id='a{number}'>{inside}</g>", "<use href='#a{number}'/>" * 10) + b"<",
}  # fmt: skip


@pytest.mark.parametrize("svg", SVG_OF_BILLIONS.values(), ids=SVG_OF_BILLIONS)
def test_a_small_svg_that_draws_billions_of_shapes_is_known_before_it_is_drawn(svg: bytes) -> None:
    """The defect: it was drawn until the process was ended, after up to 15 seconds."""
    begun = time.process_time()
    assert svg_worker.draws_too_much(svg)
    assert time.process_time() - begun < 3


def test_an_svg_with_many_shapes_or_with_ids_that_are_not_unique_is_drawn() -> None:
    shapes = "<rect id='a' width='1' height='1'/>" * 5_000
    icons = "".join(
        f"<symbol id='i{n}'><path d='M0 0'/></symbol><use href='#i{n}'/>" for n in range(500)
    )
    assert not svg_worker.draws_too_much(f"<svg>{shapes}{icons}</svg>".encode())
    assert not svg_worker.draws_too_much(b"no picture")


def test_what_an_svg_has_itself_stays() -> None:
    entity = '<!DOCTYPE svg [<!ENTITY ns "http://www.w3.org/2000/svg">]>'
    for svg in (
        "<svg><use href='#a'/><rect fill='url(#b)'/></svg>",
        "<svg><image href='data:image/png;base64,iVBORw0KGgoAAAANSUhEUg=='/></svg>",
        f"{entity}<svg xmlns='&ns;'/>",
        "<svg><text>Grüße</text></svg>",
    ):
        assert svg_worker.without_outside_references(svg.encode()).decode() == svg
        assert svg_worker.without_outside_references(svg.encode("utf-16")).decode() == svg


# --- What is counted


@pytest.mark.parametrize(
    ("content", "drawn"),
    [
        ("", 2),  # The picture, and what is in no part.
        ("<rect/>", 3),
        ("<g id='a'><rect/></g>", 5),
        ("<g id='a'/><use href='#a'/>", 7),
        ("<g id='a'/><g id='a'/>", 5),  # The second one has no part of its own.
        ("<g id='a'/><rect fill='url(#a)'/>", 7),
        ("<g id='a'/><rect fill='url(#b)'/>", 6),
        ("<path d='M0 0 L1 1' marker-mid='url(#m)'/>", 13),
    ],
)
def test_each_part_counts_as_often_as_it_is_drawn(content: str, drawn: int) -> None:
    counter = svg_worker._ElementCounter()
    reader = expat.ParserCreate()
    reader.StartElementHandler = counter.add_element
    reader.EndElementHandler = counter.end_element
    reader.Parse(f"<svg>{content}</svg>".encode(), True)
    assert counter.count_drawn_elements() == drawn


@pytest.mark.parametrize(("shapes", "is_too_much"), [(8, False), (9, True)])
def test_a_picture_draws_too_much_from_one_shape_beyond_the_limit(
    monkeypatch: pytest.MonkeyPatch, shapes: int, *, is_too_much: bool
) -> None:
    monkeypatch.setattr(svg_worker, "MOST_DRAWN_ELEMENTS", 10)
    content = "<rect/>" * shapes
    assert svg_worker.draws_too_much(f"<svg>{content}</svg>".encode()) is is_too_much


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("href", " #a ", ["a"]),
        ("xlink:href", "#a", ["a"]),
        ("fill", "url(#a)", ["a"]),
        ("style", "fill:url('#a');stroke:url( #b )", ["a", "b"]),
        ("fill", "red", []),
        ("title", "#a", []),
    ],
)
def test_a_part_is_named_by_a_reference_or_an_address(
    name: str, value: str, parts: list[str]
) -> None:
    assert svg_worker._named_parts(name, value) == parts


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1"])
def test_each_encoding_is_read(encoding: str) -> None:
    assert svg_worker._decode_svg("<svg>Grüße</svg>".encode(encoding)) == "<svg>Grüße</svg>"


@pytest.mark.parametrize(
    ("reference", "stays"),
    [
        ("href='#part'", True),
        ("HREF = '#'", True),
        ("src='data:image/png;base64,iVBORw0KGgoAAAANSUhEUg=='", True),
        ("src='data:image/jpeg;base64,/9j/4AAQSkZJRgABAQ=='", True),
        ("src='data:image/svg;base64,PHN2Zz48L3N2Zz4AAAA='", False),
        ("src='data:image/png,iVBORw0KGgo'", False),
        ("href='https://example.org'", False),
        ("href='a#b'", False),
        ("href=''", False),
    ],
)
def test_a_reference_stays_if_it_is_to_a_part_or_a_picture_in_the_file(
    reference: str, *, stays: bool
) -> None:
    kept = svg_worker.without_outside_references(f"<a {reference}/>".encode()).decode()
    assert (reference in kept) is stays
    if not stays:
        assert kept == "<a  />", "a blank stands in its place"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<style>@import 'a.css'; b{}</style>", "<style>  b{}</style>"),
        ("<a fill='url(b.png)'/>", "<a fill=' '/>"),
        ("<a fill='url(#b)'/>", "<a fill='url(#b)'/>"),
        ("\n<?xml version='1.0'?><svg/>", "<svg/>"),
        ("<!ENTITY a SYSTEM 'b'><svg/>", ""),
    ],
)
def test_what_loads_another_file_is_taken_out(text: str, left: str) -> None:
    assert svg_worker.without_outside_references(text.encode()).decode() == left


# --- What is drawn


def drawn(svg: str, application: QApplication) -> QImage:
    return QImage.fromData(svg_worker._draw_svg(svg.encode()))


@pytest.mark.parametrize(
    ("width", "height", "pixels"),
    [(20, 10, (40, 20)), (2_000, 1_000, (4_000, 2_000)), (4_000, 1_000, (4_000, 1_000))],
)
def test_a_picture_is_twice_as_large_up_to_a_limit(
    application: QApplication, width: int, height: int, pixels: tuple[int, int]
) -> None:
    picture = drawn(
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}'>"
        "<rect width='9' height='9' fill='#ff0000'/></svg>",
        application,
    )
    assert picture.size().toTuple() == pixels
    assert picture.pixelColor(2, 2).name() == "#ff0000"
    assert picture.pixelColor(pixels[0] - 1, pixels[1] - 1).name() == "#ffffff"


@pytest.mark.parametrize(
    "svg", ["no picture", "<svg xmlns='http://www.w3.org/2000/svg' width='0'/>"]
)
def test_what_is_no_picture_is_nothing(application: QApplication, expect: Expect, svg: str) -> None:
    expect("Cannot read SVG|qt.svg", may_be_missing=True)
    assert svg_worker._draw_svg(svg.encode()) == b""
