"""Diagnostics of cards: trials before a first use, the log of how they went, reports, calibration."""
