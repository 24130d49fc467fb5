"""Graph files made, changed, checked and written out."""
