"""The frame of the window, and what opens over it."""
