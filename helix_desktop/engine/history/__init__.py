"""What holds at a moment of a conversation: its branch of messages, its folds, what is shown, what it cost."""
