"""Reads the histories of other agents from the disk: one module for each format, and one common
result. It must not know conversations.
"""
