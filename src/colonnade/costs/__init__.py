"""What a plan will release, send and cost, before anything is sent."""
