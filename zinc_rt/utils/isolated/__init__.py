"""Work on what strangers send, in a child process that is left with nothing but memory and two pipes, under limits."""
