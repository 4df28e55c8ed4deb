"""Calibrated escalation: labelled examples, thresholds with a guarantee, and the certificates that hold them."""
