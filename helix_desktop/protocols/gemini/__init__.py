"""Google's Gemini protocol."""
