"""The six ways of folding. Each plans folds; none appends them."""
