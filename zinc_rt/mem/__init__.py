"""Memory: what a model will need, where step temporaries go, and the pages of the KV cache."""
