"""Choosing without test labels: regions held out, scores on them, which penalty, prior and epoch."""
