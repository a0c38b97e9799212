"""The chat as a document. Only what is on the screen is laid out, however long the
conversation is.
"""
