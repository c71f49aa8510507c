"""``python -m toporo``."""

from toporo.cli import main

if __name__ == "__main__":
    main()
