"""What was true at a moment of a conversation: its branch of messages, its folds, what is shown and
what it cost. It must not read or write anything.
"""
