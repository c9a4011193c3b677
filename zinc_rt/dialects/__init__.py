"""How families of models write reasoning and tool calls: one record each, from which grammar and parser come."""
