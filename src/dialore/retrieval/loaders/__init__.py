"""Loaders: the text of files of every kind that is read, as sections of blocks."""
