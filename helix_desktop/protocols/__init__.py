"""The four protocols, a folder for each: the client's requests and replies, and the messages that other programs write.

`*_wire` reads those messages as parts, changes a part where a fold stands for one, reads a stream, and hides calls from one;
the other modules translate what the engine asks. What all protocols share stands beside the folders. It must not do any I/O.
"""
