"""Every process that the program starts: the one place that starts them (`starter.py`)."""
