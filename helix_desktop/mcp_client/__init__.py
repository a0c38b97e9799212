"""Offers the tools of the user's own MCP servers."""
