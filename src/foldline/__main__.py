"""`python -m foldline`: the command line."""

from foldline.apps.cli import main

if __name__ == "__main__":
    main()
