"""The user's own MCP servers as tools."""
