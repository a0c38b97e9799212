"""How pages without text, such as scanned ones, are sent as pictures."""

MOST_PICTURES = 20  # Pages of one attachment; an agent asks for others with read_document.
MOST_PICTURES_OF_A_CALL = 8
PICTURE_EDGE = 1_568  # Pixels of the longer edge: providers scale down what is larger.
