"""What files were at a moment, how two moments differ, how part of a difference is reverted. No disk is touched."""
