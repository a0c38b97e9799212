"""Views that several pages use: text by lines, boxes, and two texts side by side."""
