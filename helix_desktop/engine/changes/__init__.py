"""Computes what files were at a moment, how two moments differ, and how part of a difference is
reverted. It never touches the disk.
"""
