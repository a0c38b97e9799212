"""The desktop program put together: what the window's ports are in truth."""
