"""Trials that fork this process, run before others leave threads in it."""
