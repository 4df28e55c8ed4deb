"""One team on many machines: workers, and how they receive units of work. Needs the extra `cluster`."""
