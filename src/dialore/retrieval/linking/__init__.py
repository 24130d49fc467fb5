"""Linking: from phrases and texts, English and Chinese, to concepts of a graph."""
