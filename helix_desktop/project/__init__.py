"""Reads what a project and the user's own folders provide for agents: rules, skills, commands,
hooks, agents. Each is trusted by its hash.
"""
