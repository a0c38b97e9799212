"""Imports conversations of other programs: what was found, the progress, and the undo."""
