"""What ends the benchmark, or one case of it."""


class UsageError(Exception):
    """A word of the command line or a missing package; the message says what to do. Exit status 2."""


class CaseError(Exception):
    """A case that gives no numbers: a contender failed, or losses differ. Exit status 1."""
