"""Reads other agents' histories from the disk: a module for each format, one result. It must not know conversations."""
