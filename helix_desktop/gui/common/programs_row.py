"""Shows what a command line starts: each program, whether it is allowed, and what it writes and
deletes.
"""

from collections.abc import Sequence

from PySide6.QtWidgets import QHBoxLayout, QLabel, QWidget

from helix_desktop.engine.hidden_characters import mark_on_one_line, mark_program
from helix_desktop.engine.ports import AskedProgram
from helix_desktop.gui.common.widgets import build_plain_label, build_surface
from helix_desktop.gui.rows_and_columns import build_row
from helix_desktop.gui.translation import tr, translate_name

LONG_NAME = 76  # A name of more characters wraps instead of standing on one line.


def describe_command_access(access: str) -> str:
    """Says where a command runs and whether it can reach the network, as far as that is known."""
    if access == "sandbox":
        return tr("Runs in the sandbox, without network access")
    if access == "sandbox_network":
        return tr("Runs in the sandbox, with network access")
    if access == "no_sandbox":
        return tr("Runs without a sandbox, with network access")
    return tr("Runs")


def build_programs_row(
    programs: Sequence[AskedProgram], parent: QWidget, access: str = ""
) -> QHBoxLayout:
    """Builds a row of frames, one for each program, that wraps if there are many. In front of
    them stands where the command runs.
    """
    words = describe_command_access(access)
    row = build_row(build_plain_label(words, "small", parent, wraps=False), wraps=True)
    row.setSpacing(8)
    for program in programs:
        row.addWidget(_build_program_frame(program, parent))
    row.addStretch(1)
    return row


def _build_program_frame(program: AskedProgram, parent: QWidget) -> QWidget:
    """Shows a program that a command starts: whether a rule allows it already, and
    which files it deletes or writes.
    """
    frame = build_surface(parent, "program")
    name = mark_program(program.name)
    words = name
    if program.is_allowed:
        words = tr("✓ {program}", program=name)
        frame.setToolTip(tr("A rule of this workspace allows it already."))
    name_label = build_plain_label(words, "mono", frame, wraps=len(words) > LONG_NAME)
    labels: list[QLabel] = [name_label]
    if program.risk:
        risk = translate_name("risk of a program", program.risk)
        risk_label = build_plain_label(risk, "danger", frame, wraps=False)
        labels.append(risk_label)
    if program.deletes:
        deleted_files = _list_files(program.deletes)
        deletes = tr("deletes {files}", files=deleted_files)
        is_long = len(deletes) > LONG_NAME
        deletes_label = build_plain_label(deletes, "danger", frame, wraps=is_long)
        labels.append(deletes_label)
    if program.writes:
        written_files = _list_files(program.writes)
        writes = tr("writes {files}", files=written_files)
        is_long = len(writes) > LONG_NAME
        writes_label = build_plain_label(writes, "warning", frame, wraps=is_long)
        labels.append(writes_label)
    build_row(*labels, owner=frame, margins=(8, 3, 8, 3), spacing=5)
    return frame


def _list_files(files: Sequence[str]) -> str:
    return ", ".join(map(mark_on_one_line, files))
