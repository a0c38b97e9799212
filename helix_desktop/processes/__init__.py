"""Starts every process of the program, in `starter.py`."""
