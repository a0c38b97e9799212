"""The chat as a document: only what is on screen is laid out, however long the conversation is."""
