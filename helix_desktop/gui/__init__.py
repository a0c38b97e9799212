"""The desktop window. It listens to the journal and calls the session's commands; the layers below must not know it."""

import sys


def _leave_sources_unread() -> None:
    """PySide6 reads the source of every module that is imported after it, to see whether it may want Qt's names spelled in
    Python's way, and Python keeps those sources: 10 MB, and 80 ms of the start. None of ours does.
    """
    feature = sys.modules.get("shibokensupport.feature")
    if hasattr(feature, "_mod_uses_pyside"):
        feature._mod_uses_pyside = lambda _module: False  # type: ignore[union-attr] # noqa: SLF001 - there is no switch


_leave_sources_unread()
