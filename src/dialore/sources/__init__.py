"""Where knowledge comes from: the commonsense graph."""
