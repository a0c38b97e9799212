"""What the files of a workspace were at a moment, how two moments differ, and how a part of that is taken back."""
