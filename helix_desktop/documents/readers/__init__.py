"""One module for each format. Each yields a document's pages, in the limited process."""
