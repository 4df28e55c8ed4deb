"""Plans: the checks before work, planning, growth."""
