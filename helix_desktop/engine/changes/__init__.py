"""Describes files at a moment, differences between moments, and partial reverts. Does
not touch the disk.
"""
