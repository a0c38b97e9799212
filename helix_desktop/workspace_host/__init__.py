"""What may be asked of the process that has a workspace open, in that process and from others."""
