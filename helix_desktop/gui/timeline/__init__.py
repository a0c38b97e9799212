"""The page of a conversation's folds: when and why they were made, what they replaced,
and how to undo them.
"""
