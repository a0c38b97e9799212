"""What a conversation is: standard library only, no I/O, no Qt."""
