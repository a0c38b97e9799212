"""Tells screen readers what widgets are that draw themselves. Qt knows no role for them."""

from functools import cache

from PySide6.QtCore import QObject
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QAccessibleWidget, QWidget

_ROLES = {"TextSurface": QAccessible.Role.Document, "StepPlot": QAccessible.Role.Chart}


def _build_accessible_interface(name: str, widget: QObject) -> QAccessibleWidget | None:
    """Qt asks for the name of a widget's class, then for those it is made from."""
    return QAccessibleWidget(widget, _ROLES[name]) if name in _ROLES and isinstance(widget, QWidget) else None


@cache
def install_accessible_roles() -> None:
    """Once for the program."""
    QAccessible.installFactory(_build_accessible_interface)
