"""builtin_context_cache: the cache as an MCP server."""
