"""The desktop window. It listens to the journal and calls the session's commands; the layers below must not know it."""

import builtins

# PySide6 puts a function of its own before every import, which reads the source of each imported module to see whether it
# wants Qt's names spelled in Python's way. None of ours does. Python would keep those sources: 10 MB, and 80 ms of the start.
builtins.__import__ = getattr(builtins, "__orig_import__", builtins.__import__)
