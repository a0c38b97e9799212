"""What is tried while nothing else runs: how soon a window is gone, on a screen of its own."""
