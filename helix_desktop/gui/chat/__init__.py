"""The page Chat: the composer and all that stands around it, but the transcript."""
