"""What is known of Ollama's own protocol."""
