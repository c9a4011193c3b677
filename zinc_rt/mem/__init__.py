"""Memory: the plan of a model's needs, the placement of step temporaries, and reads from disks to their place."""
