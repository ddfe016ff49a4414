"""Every way to start a run, and what is made of it when it has ended."""
