"""The four protocols, a folder for each: the client's requests and replies, and the
messages that other programs write.

`*_gateway` reads those messages as parts, changes a part that a fold replaces, reads
streams and hides calls in them; `*_client` translates what the engine asks for. What
all protocols share is beside the folders. Nothing here does I/O.
"""
