"""Virtual time on a heap: every party in one process, same seed same trace."""
