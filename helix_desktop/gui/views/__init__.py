"""Views that several pages have: text by lines, boxes, two texts side by side."""
