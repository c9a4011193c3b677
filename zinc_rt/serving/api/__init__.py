"""The HTTP side of serving: requests are checked, turned into tokens, and their tokens into text and events."""
