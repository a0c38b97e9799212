"""OpenAI's Chat Completions: what the program knows of them."""
