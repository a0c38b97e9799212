"""The window. Listens to the journal, calls commands of the session."""
