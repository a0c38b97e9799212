"""Puts the desktop program together: the implementations of the window's ports."""
