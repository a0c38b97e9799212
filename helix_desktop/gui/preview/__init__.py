"""The preview at the right: a file that was pressed, drawn without scripts and network."""
