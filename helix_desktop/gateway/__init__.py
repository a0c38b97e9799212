"""Runs a local gateway for other agents: records their requests in a journal and sends the folded
view to their provider.
"""
