"""The page of a conversation's folds: when, why, what they replaced, and how to take them back."""
