"""One team on many machines: what a unit of work is delivered by. Needs the extra `cluster`."""
