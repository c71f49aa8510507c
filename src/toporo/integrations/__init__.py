"""Trainers of other libraries with objectives; each module needs an extra."""
