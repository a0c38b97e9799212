"""Shared by the pages: figures and folds in words, past moments, plots, ranges of rows."""
