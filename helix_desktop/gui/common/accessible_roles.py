"""Tells screen readers the roles of widgets that draw themselves, which Qt does not know."""

from functools import cache

from PySide6.QtCore import QObject
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QAccessibleWidget, QWidget

_ROLES = {
    "TextSurface": QAccessible.Role.Document,
    "PdfPagesView": QAccessible.Role.Document,
    "StepPlot": QAccessible.Role.Chart,
}


def _build_accessible_interface(name: str, widget: QObject) -> QAccessibleWidget | None:
    """Builds the interface for a widget. Qt asks for the widget's class by name, and
    then for its base classes.
    """
    if name not in _ROLES or not isinstance(widget, QWidget):
        return None
    return QAccessibleWidget(widget, _ROLES[name])


@cache
def install_accessible_roles() -> None:
    """Installs the roles. Called once."""
    QAccessible.installFactory(_build_accessible_interface)
