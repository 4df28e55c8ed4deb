"""The engine: it runs a team over a plan. `TeamRun` is its front; every coordinator stands on that."""
