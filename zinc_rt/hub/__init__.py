"""Models from the Hugging Face hub: names, the choice of a file, downloads, and what lies in the cache."""
