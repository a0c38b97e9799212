"""Google's Gemini: what the program knows of it."""
