"""The ladder of sameness."""
