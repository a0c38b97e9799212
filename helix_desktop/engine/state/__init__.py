"""What was true at a moment of a conversation: its branch of
messages, folds, view and costs. Must not read or write anything.
"""
