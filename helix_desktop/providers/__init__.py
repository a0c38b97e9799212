"""Calls models over HTTP, by one request form for all providers."""
