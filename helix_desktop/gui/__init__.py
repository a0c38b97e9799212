"""The desktop window. It listens to the journal and calls session commands; the layers below must not import it."""

import builtins

# PySide6 replaces Python's import function with one that reads each module's source, to look for Qt's names.
# Our modules need no such check, so Python's own function is restored. This saves 10 MB, and 80 ms at the start.
builtins.__import__ = getattr(builtins, "__orig_import__", builtins.__import__)
