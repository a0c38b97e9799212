"""Starts every process of the program: `starter.py` is the one place that does so."""
