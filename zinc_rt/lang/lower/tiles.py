"""Matrix registers."""
