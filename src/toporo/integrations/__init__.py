"""What other libraries need to work with toporo; each module needs the extra of its name."""
