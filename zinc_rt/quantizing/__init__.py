"""Models of floats written in smaller formats: the search for scales, which tensor gets which format, the new file."""
