"""Memory: the plan of a model's needs, the placement of step temporaries, the pages of the KV cache."""
