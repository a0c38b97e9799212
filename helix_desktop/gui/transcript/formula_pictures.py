"""Draws formulas with ziamath, in a process with limits. What cannot be drawn is shown
as its source.
"""

import asyncio
import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PySide6.QtCore import QByteArray, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QImage, QPainter
from PySide6.QtSvg import QSvgRenderer

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.transcript import formula_worker
from helix_desktop.gui.transcript.basic_boxes import FormulaPicture, LayoutBox, utf16_length
from helix_desktop.gui.transcript.drawing_style import DrawingStyle, TextMarks
from helix_desktop.gui.transcript.markdown_blocks import MathBlock
from helix_desktop.processes import starter

LONGEST = 400  # A formula of more characters is shown as its source.
LONGEST_SVG = 4 << 20
MOST_BYTES = 1 << 30  # The maximum address space of the process that draws formulas.
# Enough for a busy machine. The process limits its own processor time.
START_SECONDS = 20.0
WAIT_SECONDS = 5.0
WIDEST = 8_000  # A formula's picture may not be wider or higher than this many pixels.
MOST_PIXELS = 16_000_000
_LIBRARIES = ("ziamath", "ziafont", "latex2mathml")


@dataclass(frozen=True, slots=True)
class FormulaRequest:
    """A formula and its look. `size`: the size of letters in pixels; `ratio`: device
    pixels per pixel.
    """

    latex: str
    display: bool
    size: float
    colour: str
    ratio: float = 1.0


async def draw_formulas(requests: Sequence[FormulaRequest]) -> Sequence[FormulaPicture | None]:
    """Draws formulas in one process, restarted after a crash. None for a formula that fails."""
    pictures: list[FormulaPicture | None] = []
    process: starter.Process | None = None
    try:
        for request in requests:
            if len(request.latex) > LONGEST:
                pictures.append(None)
                continue
            seconds = WAIT_SECONDS
            if process is None:
                process = await _start_formula_process()
                seconds = START_SECONDS
            answer = await _ask_formula_process(process, request, seconds)
            if answer is None:
                # It crashed or hangs. The next formula gets another process.
                await starter.end_process(process)
                process = None
                pictures.append(None)
                continue
            picture = await asyncio.to_thread(_picture_from_answer, answer, request.ratio)
            pictures.append(picture)
    finally:
        if process is not None:
            await starter.end_process(process)
    return pictures


async def _start_formula_process() -> starter.Process:
    """Starts the separate Python process that draws formulas.

    It is isolated from the user's Python settings and has limited memory. It cannot find the
    drawing libraries by itself, so their folders are its argument.
    """
    library_folders: list[str] = []
    for library in _LIBRARIES:
        spec = importlib.util.find_spec(library)
        if spec is None or not spec.origin:
            continue
        folder = str(Path(spec.origin).parents[1])
        if folder not in library_folders:
            library_folders.append(folder)
    argv = starter.isolated_python_command(
        "-S", formula_worker.__file__, os.pathsep.join(library_folders)
    )

    environment: dict[str, str] = {}
    for name in ("SYSTEMROOT", "LD_LIBRARY_PATH"):
        if name in os.environ:
            environment[name] = os.environ[name]
    launch = starter.ProcessLaunch(
        starter.CommandAuthor.PROGRAM, argv, environment=environment, memory_bytes=MOST_BYTES
    )
    return await starter.start_process(
        launch, stdin=starter.PIPE, stderr=starter.DEVNULL, line_limit=LONGEST_SVG
    )


async def _ask_formula_process(
    process: starter.Process, formula: FormulaRequest, seconds: float
) -> dict[str, Any] | None:
    """Returns what the process answered, or None if it ended or did not answer in time."""
    if process.stdin is None or process.stdout is None:
        return None
    message = {
        "latex": formula.latex,
        "size": formula.size,
        "colour": formula.colour,
        "display": formula.display,
    }
    try:
        process.stdin.write(json.dumps(message).encode() + b"\n")
        async with asyncio.timeout(seconds):
            await process.stdin.drain()
            line = await process.stdout.readline()
        if not line:
            return None
        return dict(json.loads(line))
    except (TimeoutError, OSError, ValueError, RecursionError):
        return None


def _picture_from_answer(answer: Mapping[str, Any], ratio: float) -> FormulaPicture | None:
    """Paints the SVG that the drawing process has answered, in the screen's density (`ratio`).

    Returns None, so that the formula's source is shown, if there is no usable SVG, or if its
    picture would be too large.
    """
    if "svg" not in answer:
        return None
    svg = QByteArray(answer["svg"].encode())
    renderer = QSvgRenderer(svg)
    view_box = renderer.viewBoxF()
    if not renderer.isValid() or view_box.isEmpty():
        return None
    width = view_box.width() * ratio
    height = view_box.height() * ratio
    if max(width, height) > WIDEST or width * height > MOST_PIXELS:
        return None

    size = QSize(round(width), round(height))
    image = QImage(size, QImage.Format.Format_ARGB32_Premultiplied)
    image.fill(Qt.GlobalColor.transparent)
    whole_image = QRectF(0, 0, image.width(), image.height())
    painter = QPainter(image)
    renderer.render(painter, whole_image)
    painter.end()
    image.setDevicePixelRatio(ratio)

    # The library draws on the baseline, which is y = 0. What is below it is the depth.
    depth = view_box.bottom()
    if depth <= 0:
        depth = answer["depth"]
    return FormulaPicture(image, view_box.width(), view_box.height(), depth)


class FormulaBox(LayoutBox):
    def __init__(
        self,
        ink: DrawingStyle,
        width: float,
        block: MathBlock,
        picture: FormulaPicture,
        *,
        gap: float = 0.0,
    ) -> None:
        """Puts the picture of a formula in the middle of the column. Copied, it is its
        source between dollar signs.
        """
        left = ink.left_edge_of(block)
        super().__init__(ink, max(width - left, 40.0), left=left, gap=gap)
        self._picture = picture
        # A formula that is too wide for the column is shown smaller.
        scale = min(1.0, self.width / max(picture.width, 1.0))
        shown_width = picture.width * scale
        shown_height = picture.height * scale
        shown_left = (self.width - shown_width) / 2
        self._place = QRectF(shown_left, ink.scaled_pixels(4), shown_width, shown_height)
        self.height = shown_height + ink.scaled_pixels(8)
        self.text = f"$${block.text}$$"

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        if marks.has_selection or marks.found:
            painter.fillRect(self._place, self.ink.selection_colour)
        painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
        painter.drawImage(self._place, self._picture.image)

    def nearest_offset(self, place: QPointF) -> int:
        if place.x() < self.width / 2:
            return 0
        return utf16_length(self.text)
