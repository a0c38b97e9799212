"""Reads other agents' histories from disk: a module for each format, one result. Knows
nothing of conversations.
"""
