"""Extensions: packages of other people that add tools and history formats to the program."""
