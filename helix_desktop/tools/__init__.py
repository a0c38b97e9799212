"""The tools an agent can use. They are confined to the workspace, and the user is asked
before anything changes.
"""
