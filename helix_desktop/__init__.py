"""Helix Desktop: work with AI agents for hours without the context window in the way."""

__version__ = "0.2.0"
