"""The six ways of folding. Each plans folds; none of them appends one."""
