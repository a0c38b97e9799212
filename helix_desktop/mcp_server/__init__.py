"""Offers the cache to other programs as an MCP server, builtin_context_cache."""
