"""Pictures: decoded, fitted to a tower's size in exact arithmetic, and turned into rows of a text model."""
