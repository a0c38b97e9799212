"""Reads command lines: which programs a line would start, and what it would do with which files."""
