"""The ways of folding. Each module plans folds; none of them appends a fact."""
