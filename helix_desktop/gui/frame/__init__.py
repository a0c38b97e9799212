"""The frame of the window, and what opens above it."""
