"""Attacks on judges: a corpus made by rules, and a trial that counts how often an attack succeeds."""
