"""Connects agents that people already use: the known agents, the gateway's address, and
the first request.
"""
