"""Histories of agents, as they lie on the disk: one module a form, and what all of them come to."""
