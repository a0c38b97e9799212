"""What the model is sent, at the right of the chat: by kind, by block, at any step."""
