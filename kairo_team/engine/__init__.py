"""The engine runs a team over a plan. Every coordinator uses its `TeamRun`."""
