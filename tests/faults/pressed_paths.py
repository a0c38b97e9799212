"""Paths of ten kinds in answers, pressed with the mouse in the real window: each opens the right
file at the right line, or a sentence says why not.

    python -m tests.faults.pressed_paths [--paths 50] [--seed 1]

Needs a display. A path stands in a sentence, a list, a piece of code or a block of code. It is
written in full, from the folder, with a dot or a letter before it, with the other system's slashes,
or as the name alone. One kind of ten leads to no file of the workspace: it is not there, outside,
a link that leads outside, a folder, or one of several files of this name.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel

from helix_desktop import program_folders
from helix_desktop.desktop.window_program import WindowProgram
from helix_desktop.engine.facts import Fact, ModelReplied, Stop, Text, TurnEnd, TurnEnded, UserSaid
from helix_desktop.gui.transcript import message_bar
from helix_desktop.gui.transcript.chat_actions import OpenFile
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from tests.documents import written_documents as written
from tests.soak.driven import HOME, drive, opened, until

WORKSPACE = "w"
SECONDS = 20.0
REST = 0.15  # seconds in which the window lays itself out
LINES = 400
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9"/></svg>'
PLACES = (
    "Look at {} first.", "- one\n- {}\n- three", "I changed `{}`.", "```\n{}\n```", "**{}** is the one.",
    "> {}", "1. {}: it is wrong there", "```text\nerror in {} and more\n```",
)  # fmt: skip
NO_FILES = ("src/gone.py", "../outside.txt", "/etc/passwd", "links/out.txt", "same.py")


@dataclass(frozen=True)
class WrittenPath:
    """`path`: the file that must open, or "" if a sentence must say why none does."""

    kind: str
    text: str
    pressed: str
    path: str
    line: int = 0


def write_files(folder: Path) -> None:
    source = "".join(f"line {number}\n" for number in range(1, LINES + 1))
    texts = ["src/lock/manager.rs", "src/app.ts", "lib/tools/read_me.py", "src/main.cs"]
    contents = {name: source.encode() for name in texts}
    contents |= {
        "docs/notes.md": b"# Notes\n\nwords\n", "docs/chart.svg": SVG, "docs/terms.pdf": written.pdf(9),
        "data/table.csv": b"a,b\n1,2\n", "docs/page.html": b"<h1>Hi</h1>", "docs/letter.docx": written.word(),
        "one/same.py": b"1\n", "two/same.py": b"2\n",
    }  # fmt: skip
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    Image.new("RGB", (20, 20), (200, 0, 0)).save(folder / "docs/picture.png")
    (folder / "links").mkdir()
    (folder.parent / "outside.txt").write_text("outside")
    (folder / "links/out.txt").symlink_to(folder.parent / "outside.txt")


def spell(path: str, folder: Path, chance: random.Random) -> str:
    ways = [path, f"./{path}", f"b/{path}", path.replace("/", "\\"), path.rpartition("/")[2]]
    return chance.choice([*ways, str(folder / path)])


def choose_path(kind: int, folder: Path, chance: random.Random) -> WrittenPath:
    """One of ten kinds."""
    line = chance.randint(1, LINES)
    if kind < 4:
        names = ("src/lock/manager.rs", "src/app.ts", "lib/tools/read_me.py", "src/main.cs")
        path = names[kind]
        spelled = spell(path, folder, chance)
        ways = (
            f"{spelled}:{line}",
            f"{spelled}:{line}-{line + 5}",
            f'File "{spelled}", line {line}, in main',
            f"{spelled}({line},3): error",
        )
        return WrittenPath(
            ("line", "range", "traceback", "compiler")[kind], ways[kind], spelled, path, line
        )
    if kind == 9:
        pressed = chance.choice(NO_FILES)
        return WrittenPath("no file", f"{pressed}:{line}", pressed, "", line)
    if kind == 7:
        page = chance.randint(1, 9)
        spelled = spell("docs/terms.pdf", folder, chance)
        return WrittenPath("pdf", f"{spelled}, page {page}", spelled, "docs/terms.pdf", page)
    path = {
        4: "docs/notes.md", 5: "docs/picture.png", 6: "docs/chart.svg",
        8: chance.choice(("data/table.csv", "docs/page.html", "docs/letter.docx")),
    }[kind]  # fmt: skip
    spelled = spell(path, folder, chance)
    return WrittenPath(path.rpartition(".")[2], spelled, spelled, path)


async def prepare(home: Path, folder: Path, paths: list[str]) -> str:
    """A workspace with a conversation in which each path stands in an answer. Its id."""
    places = program_folders.find_program_folders(home / HOME)
    desk = Workbenches(places, SecretStorage(places.key_file, environ={}))
    bench = await desk.create_workspace(WORKSPACE, folder)
    facts: list[Fact] = []
    for number, text in enumerate(paths):
        facts += [
            UserSaid((Text(f"question {number}"),)),
            ModelReplied((Text(text),), "peer/scripted", Stop.END),
            TurnEnded(TurnEnd.DONE),
        ]
    started = await bench.start_conversation()
    name: str = started.id
    await desk.aclose()
    again = Workbenches(places, SecretStorage(places.key_file, environ={}))
    bench = await again.open_workspace(WORKSPACE)
    await bench.workspace.journal.append_to_journal(name, facts)
    await again.aclose()
    return name


class Presser:
    def __init__(self, run: WindowProgram, found: Counter[str]) -> None:
        self.window = run.window
        self.found = found

    async def open_conversation(self, name: str) -> None:
        self.window.sidebar.list.opened.emit(name)
        await until(lambda: getattr(self.window.current_session, "id", "") == name)
        await until(lambda: len(self.window.chat.transcript.view.items.all) > 0)

    async def press(self, number: int, path: WrittenPath, folder: Path) -> None:
        """Press it, and compare what is shown with what it names."""
        where = f"{number}, {path.kind}, {path.text!r}"
        await self._close_all()
        place = await self._find_place(path)
        if place is None:
            self.found[f"LOST {where}: it cannot be pressed"] += 1
            return
        QTest.mouseClick(
            self.window.chat.transcript.view.viewport(), Qt.MouseButton.LeftButton, pos=place
        )
        preview = self.window.pages.preview
        notices = self.window.notices
        try:
            await until(lambda: preview._shown is not None or notices.isVisible(), SECONDS)
        except TimeoutError:
            self.found[f"LOST {where}: nothing came"] += 1
            return
        shown = preview._shown
        said = " ".join(label.text() for label in notices.findChildren(QLabel) if label.isVisible())
        if not path.path:
            name = path.pressed.rpartition("/")[2]
            if shown is not None or name not in said:
                self.found[f"LOST {where}: {shown and shown.file.full_path}, {said!r}"] += 1
            self.found["told why not"] += 1
            return
        if shown is None:
            self.found[f"LOST {where}: said {said!r}"] += 1
            return
        if shown.file.full_path != folder / path.path or shown.first_line != path.line:
            opened_at = f"{shown.file.full_path}:{shown.first_line}"
            self.found[f"LOST {where}: opened {opened_at}"] += 1
            return
        self.found[f"opened: {path.kind}"] += 1

    async def _close_all(self) -> None:
        """What was shown of the path before; the transcript is wider without it."""
        preview = self.window.pages.preview
        while preview._shown is not None:
            preview.close_preview()
        self.window.notices.hide()
        await asyncio.sleep(REST)

    async def _find_place(self, path: WrittenPath):  # type: ignore[no-untyped-def] # noqa: ANN202
        """Scroll from the top until it is in sight."""
        view = self.window.chat.transcript.view
        bar = view.verticalScrollBar()
        view._scroll_to(0)
        while True:
            await asyncio.sleep(REST)
            for index, spot in view.visible_hot_spots():
                layout = view.column.existing_layout(index)
                if layout is None or spot.box == message_bar.BAR:
                    continue
                hot_spot, rect = layout.hot_spot_and_rect(spot)
                if not isinstance(hot_spot.act, OpenFile) or hot_spot.act.path != path.pressed:
                    continue
                if hot_spot.act.first_line != path.line:
                    continue
                placed = view.rect_in_viewport(index, rect).toRect()
                if view.viewport().rect().contains(placed.center()):
                    return placed.center()
            if bar.value() >= bar.maximum():
                return None
            view._scroll_to(min(bar.maximum(), bar.value() + view.viewport().height() // 2))


async def story(
    run: WindowProgram, name: str, paths: list[WrittenPath], folder: Path, found: Counter[str]
) -> None:
    await opened(run, WORKSPACE)
    presser = Presser(run, found)
    await presser.open_conversation(name)
    for number, path in enumerate(paths):
        await presser.press(number, path, folder)
        found["pressed"] += 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--paths", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    begun = time.monotonic()
    chance = random.Random(arguments.seed)
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as place:
        home = Path(place)
        folder = home / "folders" / "project"
        folder.mkdir(parents=True)
        write_files(folder)
        paths = [choose_path(number % 10, folder, chance) for number in range(arguments.paths)]
        texts = [chance.choice(PLACES).format(path.text) for path in paths]
        name = asyncio.run(prepare(home, folder, texts))
        code = drive(home, lambda run: story(run, name, paths, folder, found))
    lost = [key for key in found if key.startswith("LOST")]
    counts = ", ".join(f"{count} {key}" for key, count in found.items() if key not in lost)
    print(
        f"pressed_paths: {counts}; {len(lost)} failures; {time.monotonic() - begun:.0f} s,"
        f" seed {arguments.seed}"
    )
    print("\n".join(lost))
    return code or int(bool(lost) or found["pressed"] != arguments.paths)


if __name__ == "__main__":
    sys.exit(main())
