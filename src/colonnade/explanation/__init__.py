"""Which columns and which parties a model's answers rest on, found without moving a column."""
