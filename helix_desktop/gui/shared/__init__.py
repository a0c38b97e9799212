"""What the pages share: figures and folds in words, moments of the past, plots, ranges of rows."""
