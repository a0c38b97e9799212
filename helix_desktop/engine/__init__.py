"""The rules of a conversation: facts, folds, the view and the turn. It must not know
the disk, the network or Qt.

Only the standard library is used here. Everything outside is reached through `ports.py`.
"""
