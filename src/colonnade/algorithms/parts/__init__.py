"""What both families of algorithms share."""
