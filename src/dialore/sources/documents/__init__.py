"""Documents as a source of knowledge: an index of passages in a file or a database."""
