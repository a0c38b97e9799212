"""Connecting agents people already use: which there are, the address, and the first request."""
