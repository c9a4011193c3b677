"""Ways to write tool calls; each module has a way's grammar and its reader side by side."""
