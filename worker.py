"""`python worker.py`: a lastword worker, by the settings of its environment."""

from lastword.worker import main

if __name__ == "__main__":
    main()
