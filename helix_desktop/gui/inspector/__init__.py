"""Shows what the model is sent, beside the chat: by kind, by block, at any step."""
