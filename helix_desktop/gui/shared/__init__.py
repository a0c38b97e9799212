"""What the pages share: asking for something that takes time, figures in words, lines of text, ranges of rows."""
