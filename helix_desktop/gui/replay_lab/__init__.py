"""The replay lab: replays recorded conversations with other policies and compares the results."""
