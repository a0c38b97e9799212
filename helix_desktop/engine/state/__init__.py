"""What was true at a moment of a conversation: branch, folds, view and costs. Does no I/O."""
