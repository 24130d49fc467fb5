"""Methods: one file a paper; a dialogue in, a response out, by stages."""
