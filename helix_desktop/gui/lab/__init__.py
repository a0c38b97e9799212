"""The replay lab: other policies on conversations that were, side by side."""
