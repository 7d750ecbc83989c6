"""What can go wrong that is not a bug of ours. The command line turns each into one line and an exit code.

InputError        bad usage or bad input, every malformed file included    exit 2
EnvironmentFailed disk, memory, a lock, a loss that is no longer finite    exit 1
"""


class InputError(Exception):
    """Names the thing, where it was found, and both numbers where there are two."""


class EnvironmentFailed(Exception):
    """The request was fine; the machine could not carry it out."""
