"""A page about runs that go on, or have ended: `colonnade watch`. It reads run directories and serves what they say."""
