"""Physics-informed problems: an equation and its conditions, one loss each."""
