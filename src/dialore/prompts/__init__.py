"""Prompts as files: `prompts/<method>/<stage>.<language>.md`, which any folder of the user's may override."""
