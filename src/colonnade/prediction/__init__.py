"""After a training: models that can be taken along, and what they say of rows."""
