"""Documents that people attach or agents read: PDF, Word, slides, tables, books, as text in pages."""
