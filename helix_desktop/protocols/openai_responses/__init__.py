"""OpenAI's Responses: what the program knows of them."""
