"""Bringing in conversations of other programs: what was found, how far it is, and the way back."""
