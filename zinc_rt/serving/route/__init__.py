"""`zinc route`: one address before several servers of one model. A stream outlives the server that began it."""
