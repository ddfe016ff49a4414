"""What a federation is: federation.toml, party.toml, the plan that all share, and how a party is built from them."""
