"""The Chat page: the composer and everything around it except the transcript."""
