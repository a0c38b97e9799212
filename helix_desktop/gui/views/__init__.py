"""Views for several pages: text by lines, boxes, and two texts side by side."""
