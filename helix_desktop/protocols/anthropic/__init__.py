"""Anthropic's Messages: what the program knows of them."""
