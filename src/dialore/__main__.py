"""`python -m dialore`: the same as the `dialore` command."""

from __future__ import annotations

from dialore.cli import main

if __name__ == "__main__":
    main()
