"""Recipes that fine-tune encoders and generators, with torch; those of the small parts are in `dialore.learned`."""
