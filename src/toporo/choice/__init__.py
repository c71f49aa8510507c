"""Choosing without test labels: regions held out, scores on them, which penalty, which prior, which epoch."""
