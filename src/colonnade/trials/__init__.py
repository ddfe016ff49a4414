"""Many runs for one answer: attacks, audits, sweeps."""
