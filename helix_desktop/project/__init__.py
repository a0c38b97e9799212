"""Finds what projects and users provide for agents: rules, skills, commands, hooks,
agents; trusted by hash.
"""
