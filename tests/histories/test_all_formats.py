"""Every kind of history is declared once, in its own module, and listed."""

import importlib
import pkgutil

from helix_desktop import histories
from helix_desktop.histories import openai_history
from helix_desktop.histories.all_formats import ALL_FORMATS
from helix_desktop.histories.history_format import HistoryFormat


def test_every_format_that_a_module_declares_is_listed() -> None:
    declared: list[HistoryFormat] = []
    for module_info in pkgutil.iter_modules(histories.__path__, f"{histories.__name__}."):
        module = importlib.import_module(module_info.name)
        if isinstance(getattr(module, "FORMAT", None), HistoryFormat):
            declared.append(module.FORMAT)

    assert {found.kind for found in declared} == {listed.kind for listed in ALL_FORMATS}
    assert len(declared) == len(ALL_FORMATS)


def test_the_format_that_recognizes_every_row_comes_last() -> None:
    unknown_row = {"unknown": True}
    knows_it = [listed for listed in ALL_FORMATS if listed.recognizes(unknown_row)]
    assert knows_it == [openai_history.FORMAT]
    assert ALL_FORMATS[-1] is openai_history.FORMAT
